"""The command as a person or a script meets it."""

import json
import subprocess
import sys


def wri(*arguments, cwd=None):
    command = [sys.executable, "-m", "wri.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120)


def test_reproduce_prints_one_json_document(tmp_path):
    done = wri("reproduce", "figure1", "--quick", "--json", "--seed", "3", "-o", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["experiment"] == "figure1"
    assert len(document["rows"]) == 8
    assert all((tmp_path / path).exists() for path in document["figures"])


def test_reproduce_shows_a_table_and_the_figures(tmp_path):
    done = wri("reproduce", "all", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in ("WRI", "test accuracy", "standard error over 2 seeds", "figure: out/figure1.png"):
        assert text in done.stdout


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path):
    done = wri("reproduce", "figure7")
    assert done.returncode == 2
    assert "there is no experiment 'figure7'; choose one of figure1" in done.stderr
    assert "Traceback" not in done.stderr
    file = tmp_path / "file"
    file.write_text("")
    done = wri("reproduce", "figure1", "-o", str(file))
    assert done.returncode == 2
    assert "cannot be made a folder: File exists" in " ".join(done.stderr.split())
    assert wri("reproduce", "figure1", "--seed", "-1").returncode == 2


def test_version():
    assert wri("--version").stdout.startswith("wri 0.")
