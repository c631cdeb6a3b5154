"""The command where the system gets in its way: outputs, signals, files and sizes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest

from helpers import needs_root
from wri import cli

SWEEP = ("sweep", "--datasets", "simulation", "--store", "s.db")
SMALL = (*SWEEP, "--algorithms", "erm", "--trials", "2", "--steps", "5")


def start(folder, *arguments, **options):
    command = [sys.executable, "-m", "wri.cli", *arguments]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, **options)


def ended(process):
    """Exit code and message, which is no traceback."""
    message = process.communicate(timeout=120)[1].decode()
    assert "Traceback" not in message
    assert "Exception ignored" not in message
    return process.returncode, " ".join(message.split())


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    with redirect_stdout(StringIO()):
        small = [each if each != "s.db" else str(folder / each) for each in SMALL]
        cli.app(cli.repeat_lists(small), standalone_mode=False)
    return folder


@pytest.fixture
def run_into(monkeypatch, capsys, store):
    """The command in this process, with a given standard output; its exit code and message."""

    def run(output, *arguments):
        monkeypatch.chdir(store)
        monkeypatch.setattr(sys, "argv", ["wri", *arguments])
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as end:
            cli.main()
        monkeypatch.undo()
        message = capsys.readouterr().err
        assert "Traceback" not in message
        return end.value.code or 0, " ".join(message.split())

    return run


@pytest.mark.parametrize("arguments", [("results", "s.db"), ("--help",), ("data",)])
def test_a_full_output_is_a_sentence(arguments, run_into):
    with open("/dev/full", "w") as full:
        code, message = run_into(full, *arguments)
    assert code == 2
    assert "the output cannot be written: No space left on device" in message


def test_a_full_output_is_a_sentence_at_the_end_of_the_process(tmp_path):
    with open("/dev/full", "w") as full:
        code, message = ended(start(tmp_path, "--version", stdout=full))
    assert code == 2
    assert "the output cannot be written: No space left on device" in message


def closed_pipe():
    """The end for writing, as in `wri data | head -1`: the reader has seen enough."""
    reading, writing = os.pipe()
    os.close(reading)
    return open(writing, "w")


@pytest.mark.parametrize("arguments", [("results", "s.db"), ("--help",), ("data",)])
def test_a_closed_pipe_ends_the_command_without_a_word(arguments, run_into):
    with closed_pipe() as nobody:
        assert run_into(nobody, *arguments) == (141, "")


def test_a_closed_pipe_ends_the_process_without_a_word(tmp_path):
    with closed_pipe() as nobody:
        process = start(tmp_path, "--help", stdout=nobody)
    assert ended(process) == (141, "")


def test_a_closed_output_is_a_sentence(tmp_path):
    command = f"exec {sys.executable} -m wri.cli results s.db >&-"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "the standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "arguments", [("results", "s.db"), ("results", "s.db", "--best"), ("--help",)]
)
def test_characters_that_an_output_lacks_are_replaced(arguments, encoding, run_into):
    shown = BytesIO()
    code, message = run_into(TextIOWrapper(shown, encoding=encoding), *arguments)
    assert code == 0, message
    text = shown.getvalue().decode(encoding)
    if arguments == ("results", "s.db"):
        assert ("±" if encoding == "latin-1" else "?") in text


@pytest.mark.slow
def test_sigterm_keeps_what_is_finished(tmp_path):
    many = (*SWEEP, "--algorithms", "erm", "--trials", "5", "--steps", "20000")
    process = start(tmp_path, *many, stdout=subprocess.DEVNULL)
    while not (tmp_path / "s.db-wal").exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    code, message = ended(process)
    assert code == 143
    assert "finished runs are in s.db; run the same command to continue" in message


TABLE = ("rows.csv", "--target", "y", "--env", "site")


@pytest.mark.parametrize(
    ("arguments", "at"),
    [
        (("reproduce", "figure1"), "wri.cli.reproduce.run_experiment"),
        (("diagnose", *TABLE), "wri.datasets.table_rows.read_rows"),
        (("fit", *TABLE, "-o", "m"), "wri.datasets.table_rows.read_rows"),
        (("predict", "model", "rows.csv", "-o", "o.csv"), "wri.estimators.load"),
        (("site", "model", "rows.csv"), "wri.estimators.load"),
        (SMALL, "wri.sweep.run_sweep"),
        (("results", "s.db"), "wri.sweep.Store"),
        (("data",), "wri.cli.data.echo"),
    ],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_every_command_tells_the_signal_that_ended_it(
    arguments, at, number, code, command, monkeypatch
):
    def end(*arguments, **options):
        os.kill(os.getpid(), number)
        time.sleep(60)

    Path("model").mkdir()
    monkeypatch.setattr(at, end)
    done = command(*arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SWEEP, "--trials", "99999999999", "--dry-run"), "at most 1,000,000 runs"),
        ((*SWEEP, "--set", "@nested.json"), "--set @nested.json must be name=number"),
        ((*SWEEP, "--set", "@long.json"), "--set @long.json must be name=number"),
        ((*SWEEP, "--set", "@" + "n" * 300), "File name too long; check the path"),
        ((*SWEEP[:3], "--store", "s" * 300), "cannot be used: File name too long"),
        ((*SWEEP[:3], "--store", "s" * 300, "--dry-run"), "File name too long; check the path"),
        (("results", "s" * 300), "cannot be used: File name too long"),
        (("reproduce", "figure1", "-o", "o" * 300), "File name too long; check the path"),
        (
            ("sweep", "--data", "d" * 300 + ".csv", "--target", "y", "--env", "e", "--store", "s"),
            "cannot be read: File name too long",
        ),
    ],
)
def test_absurd_arguments_are_a_sentence_and_leave_nothing(arguments, message, command):
    Path("nested.json").write_text("[" * 100_000)
    Path("long.json").write_text(json.dumps({"learning_rate": 10**400}))
    done = command(*arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert sorted(os.listdir()) == ["long.json", "nested.json"]


@needs_root
def test_an_output_folder_that_is_read_only(command, tmp_path):
    folder = tmp_path / "fixed"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", folder]).returncode:
        pytest.skip("this machine allows no mounts")
    try:
        done = command("reproduce", "figureC1", "-o", str(folder))
        assert done.returncode == 2
        assert "Read-only file system; check the path" in " ".join(done.stderr.split())
    finally:
        subprocess.run(["umount", folder], check=True)
