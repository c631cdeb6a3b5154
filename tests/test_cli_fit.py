"""`wri fit`, `wri diagnose` and `wri data` as a person with a table meets them."""

import json
from pathlib import Path
from socket import gaierror
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import typer

from wri import cli
from wri.datasets import hospitals
from wri.estimators import load

FIT = ("--target", "sick", "--env", "site", "-o", "model")
QUICK = ("--steps", "8", "--algorithms", "erm")


def table(n=40, sites=3):
    frames = [
        pd.DataFrame(each.x, columns=["smoking", "marker", "noise"]).assign(
            sick=each.y, site=each.name
        )
        for each in hospitals(n, seed=0)[:sites]
    ]
    return pd.concat(frames, ignore_index=True)


def text(frame=None):
    return (table() if frame is None else frame).to_csv(index=False)


def changed(**columns):
    return text(table(6, 2).assign(**columns))


EXCEL = b"PK\x03\x04" + bytes(100)
CASES = {
    "empty": ("", "is empty; write a table to it first"),
    "header only": ("a,sick,site\n", "has columns but no rows"),
    "wrong delimiter": ("a:sick:site\n1:0:u\n", "give --delimiter if that is several columns"),
    "duplicate columns": ("a,a,sick,site\n1,2,0,u\n", "column 'a' occurs twice; rename or drop"),
    "Excel": (EXCEL, "it is an Excel workbook or another packed file; save the sheet as CSV"),
    "constant target": (changed(sick=1), "holds only one class, '1'; at least two are needed"),
    "constant number": (changed(sick=0.5), "holds only one class, '0.5'; at least two"),
    "one site": (changed(site="Oslo"), "holds only one site, 'Oslo'; at least two"),
    "small site": (changed(site=["u"] * 11 + ["v"]), "site 'v' of column 'site' has 1 row"),
    "no site in a row": (changed(site=["u", ""] * 6), "column 'site', row 2 is missing"),
    "no outcome in a row": (changed(sick=["a", "b", None] * 4), "column 'sick', row 3 is missing"),
    "infinity": (changed(noise=[np.inf] + [1.0] * 11), "infinite"),
    "no target": ("a,b,site\n1,2,u\n", "has no column 'sick' for the target; it has 'a', 'b'"),
    "no environment": ("a,b,sick\n1,2,0\n", "has no column 'site' for the site"),
    "nothing to learn from": ("sick,site\n1,u\n", "has no features: columns besides 'sick'"),
    "constant columns": (
        changed(smoking=1, marker=1, noise=1),
        "no column is left to learn from",
    ),
    "id": (
        text(table().assign(patient_id=np.arange(120) * 7 + 1000)),
        "column 'patient_id' looks like an id, which holds no information about new rows. Leave "
        "them out (--drop patient_id)",
    ),
    "date": (
        changed(seen=pd.date_range("2024-01-01", periods=12).astype(str)),
        "column 'seen' looks like a date; make numbers of it",
    ),
    "row too long": ("a,sick,site\n1,0,u\n1,0,u,9\n", "Expected 3 fields in line 3, saw 4"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_tables_are_one_sentence_and_leave_nothing(case, command):
    content, message = CASES[case]
    Path("rows.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    done = command("fit", "rows.csv", *FIT, *QUICK)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rows.csv", "--env", "site", "-o", "m"], "name the column to be predicted with --target"),
        (["rows.csv", "--target", "sick", "-o", "m"], "name the column of sites with --env"),
        (["rows.csv", *FIT, "--env-from-file"], "both define the sites"),
        (["none_*.csv", *FIT], "no file matches none_*.csv"),
        (["none.csv", *FIT], "none.csv cannot be read: No such file"),
        (["rows.csv", "rows.csv", *FIT], "rows.csv is given twice"),
        (["rows.csv", *FIT, "--drop", "age"], "--drop names 'age', but there is no such column"),
        (["rows.csv", *FIT, "--number", "age"], "has no column 'age'"),
        (["rows.csv", *FIT, "--algorithms", "boost"], "--algorithms must be one of erm"),
        (["rows.csv", *FIT, "--predictors", "forest"], "--predictors must be one of linear"),
        (["rows.csv", *FIT, "--encoding", "klingon"], "--encoding klingon is unknown"),
        (["rows.csv", *FIT, "--delimiter", "ab"], "must be one character"),
        (["rows.csv", *FIT, "--blocks", "week"], "has no column 'week' for the blocks"),
        (["rows.csv", *FIT, "--memory", "0.01", "--task", "numbers"], None),
        (["rows.csv", *FIT[:-1], "taken"], "holds notes.txt, which is not part of a saved model"),
        (["rows.csv", *FIT[:-1], "rows.csv"], "rows.csv is a file; give a folder"),
    ],
)
def test_bad_commands_are_one_sentence_and_leave_nothing(arguments, message, command):
    Path("rows.csv").write_text(text())
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    if message is None:  # it works: a small file needs little memory, and classes may be numbers
        assert command("fit", *arguments, *QUICK, "--fast").returncode == 0
        return
    done = command("fit", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert sorted(path.name for path in Path().iterdir()) == ["rows.csv", "taken"]


def awkward():
    """Missing cells, a category, unicode, a site named nan, a quoted line end, both line ends."""
    frame = table().assign(ward=["a", 'b "x"\ny', None] * 40, größe=np.arange(120) % 7 / 2)
    frame.loc[3, "marker"] = None
    frame["site"] = frame["site"].replace("north", "nan")
    lines = frame.to_csv(index=False).split("\n")
    return "\ufeff" + "\r\n".join(lines[:50]) + "\n" + "\n".join(lines[50:])


@pytest.mark.slow
def test_from_an_awkward_table_to_a_model_and_its_report(command):
    Path("rows.csv").write_bytes(awkward().encode())
    done = command("fit", "rows.csv", *FIT, "--steps", "8", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["model"] == "model"
    assert document["kept"]["algorithm"] in ("erm", "wri")
    models = list(document["futures"])
    assert models[-2:] == ["regression", "constant"]
    assert {"erm", document["kept"]["model"]} < {*models}
    places = [(each["environment"], each["model"]) for each in document["held_out"]]
    assert places == [(s, m) for s in ("east", "nan", "south") for m in models]
    for model, futures in document["futures"].items():
        own = [each["loss"] for each in document["held_out"] if each["model"] == model]
        assert np.isclose(futures["like"], np.mean(own))
    assert document["verdict"]["answer"] in ("no", "care", "likely")
    assert document["verdict"]["question"] == "Will it hold at a new site?"
    assert all(each["n"] == 40 and 0 <= each["score"] <= 1 for each in document["held_out"])
    kinds = {column["name"]: column["kind"] for column in document["columns"]}
    assert kinds["ward"] == "category"
    assert kinds["größe"] == "number"
    page = Path(document["report"]).read_text()
    for heading in (
        "Will &#39;sick&#39; hold at a new site?",
        "Loss by model and future",
        "What it was trained on",
        "How well it holds at a site that it has not seen",
        "Risk and coverage",
        "What the sites have in common",
        "Columns whose relation to &#39;sick&#39; changes",
        "thresholds of the verdict",
        "Model card",
        "wri fit rows.csv --target sick --env site -o model --steps 8 --json",
    ):
        assert heading in page, heading
    model = load("model")
    new = table(5).drop(columns=["sick", "site"]).assign(ward="never seen", größe=None)
    assert set(model.predict(new)) <= {0, 1}
    # again, over the old model
    assert command("fit", "rows.csv", *FIT, *QUICK, "--fast").returncode == 0
    assert "--fast left no site out" in Path("model/report.html").read_text()


@pytest.mark.slow
def test_fast_and_two_sites_say_what_is_unknown(command):
    Path("rows.csv").write_text(text())
    done = command("fit", "rows.csv", *FIT, *QUICK, "--fast")
    told = " ".join(done.stdout.split())
    assert "Will it hold at a new site? Unknown: --fast left no site out, so nothing" in told
    Path("two.csv").write_text(text(table(40, 2)))
    done = command("fit", "two.csv", *FIT, *QUICK, "--json")
    document = json.loads(done.stdout)
    assert document["held_out"] == []
    assert document["futures"] == {}
    assert document["verdict"]["answer"] == "unknown"
    assert "with two sites none can be left out" in document["verdict"]["sentence"]


@pytest.mark.slow
def test_the_verdict_comes_first_then_the_table_and_what_is_kept(command):
    table(80, 4).rename(columns={"site": "hospital"}).to_csv("rows.csv", index=False)
    where = ("--target", "sick", "--env", "hospital", "--predictors", "linear", "-o", "model")
    done = command("fit", "rows.csv", *where, "--keep", "erm")
    assert done.returncode == 0, done.stderr
    parts = ("Will it hold at a new hospital?", "hospitals like", "constant", "Kept: ERM", "Next: ")
    places = [done.stdout.index(part) for part in parts]
    assert places == sorted(places)
    screen = done.stdout[places[0] :].splitlines()
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80
    assert type(load("model").steps[-1][1]).__name__ == "ERMClassifier"
    done = command("fit", "rows.csv", *where, "--keep", "boost")
    assert done.returncode == 2
    assert "--keep must be one of wri 0.48" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_files_are_sites_and_numbers_are_regressed(command):
    frame = table()
    frame["sick"] = frame["smoking"] * 2 + frame["noise"]
    for site, own in frame.groupby("site"):
        own.drop(columns="site").to_csv(f"site_{site}.csv", index=False)
    options = ("--target", "sick", "--env-from-file", "-o", "model", *QUICK)
    done = command("fit", "site_*.csv", *options)
    assert done.returncode == 0
    assert "target 'sick': a number, so this is regression" in done.stdout
    assert "3 sites in 'file': site_east 40, site_north 40 and site_south 40" in done.stdout
    assert "loss (squared error)" in done.stdout
    frame[["smoking", "sick"]].to_csv("site_north.csv", index=False)
    done = command("fit", "site_*.csv", *options)
    assert done.returncode == 2
    assert "site_north.csv has no column 'marker', 'noise', which other files have" in (done.stderr)


def test_an_interrupted_fit_writes_nothing(command, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("wri.evaluation.fitting.fit_table", interrupted)
    Path("rows.csv").write_text(text())
    done = command("fit", "rows.csv", *FIT)
    assert done.returncode == 130
    assert "stopped; nothing was written" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.csv"]


def test_a_save_that_fails_leaves_no_folder(command, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device", "model.json")

    monkeypatch.setattr("wri.saving.save", full)
    Path("rows.csv").write_text(text())
    done = command("fit", "rows.csv", *FIT, *QUICK, "--fast")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows.csv"]


@pytest.mark.slow
def test_diagnose_answers_and_draws(command):
    Path("rows.csv").write_text(text(table(60)))
    options = ("--target", "sick", "--env", "site")
    done = command("diagnose", "rows.csv", *options, "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    answers = document["answers"]
    assert list(answers) == ["changes", "overlap"]
    assert all(each["meaning"] for each in answers.values())
    assert document["verdict"]["sentence"] == answers["changes"]["meaning"]
    assert "environment" not in done.stdout
    assert document["next"].startswith("wri fit rows.csv --target sick --env site -o model/")
    assert len(answers["overlap"]["table"]) == 3  # pairs
    page = Path("out/diagnosis.html").read_text()
    assert "Do the sites have cases in common?" in page
    assert Path("out/overlap.png").exists()
    assert command("fit", "rows.csv", *FIT, *QUICK, "--fast").returncode == 0
    done = command("diagnose", "rows.csv", *options, "--model", "model", "--json")
    assert "gaps" in json.loads(done.stdout)["answers"]
    done = command("diagnose", "rows.csv", *options, "--model", "model", "--task", "numbers")
    assert done.returncode == 2
    assert "model predicts classes, but the target 'sick' holds numbers" in done.stderr


def test_data_writes_tables_for_trying_things_out(command):
    done = command("data", "hospitals", "--write", "hospitals.csv")
    assert "next: wri fit hospitals.csv --target sick --env hospital" in done.stdout
    rows, new = pd.read_csv("hospitals.csv"), pd.read_csv("hospitals-new.csv")
    assert rows.groupby("hospital").size().to_dict() == dict.fromkeys(
        ["east", "north", "south", "west"], 500
    )
    assert np.corrcoef(rows.marker, rows.sick)[0, 1] > 0.3
    assert np.corrcoef(new.marker, new.sick)[0, 1] < -0.3
    assert "exists; name another" in command("data", "hospitals", "--write", "hospitals.csv").stderr
    assert "--write is for the tables" in command("data", "mnist", "--write", "m.csv").stderr


def test_data_says_clearly_that_there_is_no_network(command, monkeypatch, tmp_path):
    def offline(address):
        raise URLError(gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WRI_DATA", raising=False)
    monkeypatch.setattr("wri.datasets.heart.load_heart.__defaults__", (offline,))
    done = command("data", "heart")
    assert done.returncode == 2
    assert "there is no network: " in done.stderr
    assert "set WRI_DATA to a folder" in done.stderr
    assert command("data", "nonsense").returncode == 2


def commands(app, name="wri"):
    group = typer.main.get_command(app)

    def walk(found, words):
        for key, each in getattr(found, "commands", {}).items():
            yield from walk(each, [*words, key])
        yield words, found

    return {" ".join(words): each for words, each in walk(group, [name])}


def test_every_command_teaches_by_two_examples_and_exit_codes():
    found = commands(cli.app)
    # figures and tables share the examples of their group
    own = [name for name in found if not name.startswith(("wri reproduce ", "wri results"))]
    assert {"wri fit", "wri predict", "wri site", "wri diagnose", "wri data", "wri sweep"} <= {*own}
    for name in (*own, "wri results export", "wri results import", "wri results show"):
        help_text = found[name].help or ""
        stem = "wri" if name == "wri" else name.removesuffix(" show")
        assert help_text.count(f"`{stem}") >= 2, name
    for name in own:
        assert "Exit codes: 0" in found[name].help, name


@pytest.mark.slow
def test_boosted_trees_are_fitted_saved_and_compared_with_their_own_erm(command):
    pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")
    table(60).to_csv("rows.csv", index=False)
    asked = ("--steps", "8", "--algorithms", "erm-boosting", "wri-boosting")
    done = command("fit", "rows.csv", *FIT, *asked, "--keep", "wri-boosting 3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"erm-boosting", "wri-boosting 3"} < {each["model"] for each in found["held_out"]}
    assert found["kept"]["model"] == "wri-boosting 3"
    page = Path("model/report.html").read_text()
    assert "WRI boosting" in page
    assert "rounds of 4 leaves" in page
    model = load("model")
    assert type(model.steps[-1][1]).__name__.endswith("BoostingClassifier")
    new = table(20).drop(columns=["sick", "site"])
    new.to_csv("new.csv", index=False)
    assert command("predict", "model", "new.csv", "-o", "out.csv").returncode == 0
    assert len(pd.read_csv("out.csv")) == 60
