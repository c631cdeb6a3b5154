"""The command as a person or a script meets it."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from wri import cli
from wri.experiments import EXPERIMENTS


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


def test_all_runs_every_experiment_and_writes_one_page(tmp_path, monkeypatch, capsys):
    chosen = {name: EXPERIMENTS[name] for name in ("figure1", "sample_complexity")}
    monkeypatch.setattr(cli, "EXPERIMENTS", chosen)
    monkeypatch.setattr(sys, "argv", ["wri", "reproduce", "all", "-o", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for text in ("WRI", "test accuracy", "standard error over 2 seeds", "sample_complexity"):
        assert text in shown
    page = (tmp_path / "index.html").read_text()
    for name, experiment in chosen.items():
        assert f'<section id="{name}">' in page
        assert experiment.about in page
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "wri reproduce all --quick --seed 0" in page


def test_every_experiment_has_a_module_that_runs():
    for experiment in EXPERIMENTS.values():
        module = import_module(f"wri.experiments.{experiment.module}")
        assert callable(module.run)
        assert module.__doc__


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


def test_a_sweep_is_forecast_trained_shown_and_not_repeated(tmp_path):
    size = ("--datasets", "simulation", "--algorithms", "erm", "vrex", "--trials", "2")
    asked = ("sweep", *size, "--steps", "20", "--store", "s.db")
    dry = wri(*asked, "--dry-run", "--json", cwd=tmp_path)
    forecast = json.loads(dry.stdout)
    assert (forecast["runs"], forecast["finished"]) == (16, 0)
    assert not list(tmp_path.iterdir())
    first = json.loads(wri(*asked, "--json", cwd=tmp_path).stdout)
    assert first["trained"] == 16
    again = json.loads(wri(*asked, "--json", cwd=tmp_path).stdout)
    assert (again["trained"], again["rows"]) == (0, first["rows"])
    keys = {"selection", "dataset", "environment", "algorithm", "mean", "standard_error", "n"}
    assert all(keys <= set(row) <= keys | {"reason"} for row in first["rows"])
    assert len(first["rows"]) == 4 * 2 * 5  # selections, algorithms, environments and average
    shown = wri("results", "s.db", "--format", "csv", cwd=tmp_path).stdout
    assert shown.splitlines()[0].startswith("selection,dataset,environment,algorithm,mean")
    assert "leave-one-out" in shown
    assert "pairs" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "--store", "s.db"), "name a data set by --datasets, or a file by --data"),
        (("sweep", "--datasets", "mnist", "--store", "s.db"), "no built-in data set 'mnist'"),
        (("sweep", "--data", "no.csv", "--store", "s.db"), "--data needs --target and --env"),
        (
            ("sweep", "--datasets", "simulation", "--set", "rate=x", "--store", "s.db"),
            "--set rate=x must be name=number",
        ),
        (
            ("sweep", "--datasets", "simulation", "--preset", "foo", "--store", "s.db"),
            "unknown preset 'foo'",
        ),
        (("results", "s.db"), "there is no store s.db"),
        (
            ("sweep", "--datasets", "simulation", "--test-envs", "9", "--store", "s.db"),
            "has no environment 9",
        ),
        (
            (
                "sweep",
                "--datasets",
                "gaussian2d",
                "--selection",
                "leave-one-out",
                "--store",
                "s.db",
            ),
            "leave-one-out holds out two of the 3 environments of 'gaussian2d'",
        ),
        (
            ("sweep", "--datasets", "simulation", "--memory", "inf", "--store", "s.db"),
            "memory must be a positive number",
        ),
    ],
)
def test_bad_sweeps_are_one_sentence_and_leave_nothing(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["wri", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_lists_may_be_spread_in_three_ways():
    expected = ["sweep", "--algorithms", "erm", "--algorithms", "wri", "--json"]
    assert cli.repeat_lists(["sweep", "--algorithms", "erm", "wri", "--json"]) == expected
    assert cli.repeat_lists(["sweep", "--algorithms", "erm,wri", "--json"]) == expected
    assert cli.repeat_lists(expected) == expected
    assert cli.repeat_lists(["sweep", "--algorithms=erm,wri", "--json"]) == expected
    for plain in (["reproduce", "all", "-o", "x"], ["sweep", "--algorithms", "--store", "s"], []):
        assert cli.repeat_lists(plain) == plain
    shown = ["results", "--selection", "oracle", "s.db"]
    assert cli.repeat_lists(shown) == shown
