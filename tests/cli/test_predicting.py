"""`wri predict` and `wri site`: files in, files out, and a sentence for everything else."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import wri
from wri.cli import app
from wri.cli.predicting import ModelColumns, predict_file
from wri.datasets import table_files
from wri.datasets.schema import TableSchema
from wri.datasets.table_files import TableFile, open_table, reading_bytes, reading_options
from wri.datasets.text_tables import Dialect
from wri.errors import InputError
from wri.estimators import load

N = 240


def draw(n=N, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    return pd.DataFrame(
        {
            "id": [f"{i:04d}" for i in range(n)],
            "age": x.round(3),
            "dose": random.normal(size=n).round(3),
            "ward": random.choice(["north", "söuth"], n),
            "smoker": random.choice(["yes", "no", ""], n),
            "site": np.array(["a", "b", "c"])[np.arange(n) % 3],
            "sick": np.where(x + random.normal(size=n) > 0, "ill", "well"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier and a regressor of tables."""
    home, rows = tmp_path_factory.mktemp("models"), draw()
    for name, kind, target in (
        ("model", wri.ERMClassifier, "sick"),
        ("numbers", wri.ERMRegressor, "dose"),
    ):
        schema = TableSchema.infer(rows, target, "site", leave_out=["id"])
        last = kind(environment="site", steps=60)
        model = wri.make_pipeline(*schema.make_preprocessing(), last)
        model.fit(rows, rows[target]).save(home / name)
    wri.ERMClassifier(steps=5).fit(rows[["age", "dose"]], rows["sick"], groups=rows["site"]).save(
        home / "plain"
    )
    return home


@pytest.fixture
def new(tmp_path):
    rows = draw(50, 1)
    rows.to_csv(tmp_path / "new.csv", index=False)
    return rows


def run(*arguments):
    """Exit code, output and message of the command."""
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    if isinstance(found.exception, InputError):
        return 2, "", str(found.exception)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.stdout, found.stderr


def refused(*arguments):
    code, _, message = run(*arguments)
    assert code == 2
    return message


def test_rows_keep_their_order_and_their_cells(folder, new, tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_ROWS", 7)  # several pieces
    code, text, _ = run("predict", folder / "model", tmp_path / "new.csv", "-o", tmp_path / "o.csv")
    assert code == 0
    assert "50 rows: " in text
    assert "probability is that of class 'well'" in text
    given = pd.read_csv(tmp_path / "new.csv", dtype=str, keep_default_na=False)
    found = pd.read_csv(tmp_path / "o.csv", dtype=str, keep_default_na=False)
    assert found[given.columns].equals(given)
    model = load(folder / "model")
    judged = model.assess(new.drop(columns=["id", "sick"]))
    assert found["prediction"].tolist() == judged.predictions.tolist()
    assert np.allclose(found["probability"].astype(float), judged.probabilities[:, 1], atol=5e-7)
    assert np.allclose(found["typicality"].astype(float), judged.typicality, atol=5e-5)
    assert found["verdict"].tolist() == judged.verdicts.tolist()
    assert found["nearest"].tolist() == judged.nearest.tolist()
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "o.csv"]


def test_parquet_and_other_dialects_tell_the_same(folder, new, tmp_path):
    new.to_parquet(tmp_path / "new.parquet")
    new.to_csv(tmp_path / "semi.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    outputs = {}
    for name in ("new.csv", "new.parquet", "semi.csv"):
        out = tmp_path / f"out-{name}"
        options = ["--keep", "id", "--prefix", "wri_"]
        assert run("predict", folder / "model", tmp_path / name, "-o", out, *options)[0] == 0
        outputs[name] = out
    texts = {"dtype": {"id": str}, "keep_default_na": False}
    one = pd.read_csv(outputs["new.csv"], **texts)
    two = pd.read_parquet(outputs["new.parquet"])
    three = pd.read_csv(outputs["semi.csv"], sep=";", decimal=",", **texts)
    added = ("prediction", "probability", "typicality", "verdict", "reason", "nearest")
    assert one.columns.tolist() == ["id", *(f"wri_{name}" for name in added)]
    for other in (two, three):
        pd.testing.assert_frame_equal(one, other, check_dtype=False)


def test_outcomes_are_measured_and_the_promise_checked(folder, new, tmp_path):
    new.loc[4, "sick"] = ""
    new.to_csv(tmp_path / "new.csv", index=False)
    code, text, _ = run(
        *("predict", folder / "model", tmp_path / "new.csv", "-o", tmp_path / "o.csv"),
        *("--target", "sick", "--json"),
    )
    assert code == 0
    document = json.loads(text)
    found = document["outcomes"]
    there = new[new["sick"] != ""].drop(columns=["id"])
    model = load(folder / "model")
    p = model.predict_proba(there.drop(columns="sick"))[:, 1]
    ill = (there["sick"] == "ill").to_numpy()
    assert (found["rows"], found["missing"]) == (49, 1)
    assert found["loss"] == pytest.approx(-np.log(np.where(ill, 1 - p, p)).mean())
    assert found["accuracy"] == pytest.approx(
        model.score(there.drop(columns="sick"), there["sick"])
    )
    pairs = p[~ill][:, None] - p[ill][None]
    assert found["auroc"] == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    site = model.score_new_site(there.drop(columns="sick"))
    assert (found["low"], found["high"]) == pytest.approx((site.loss.low, site.loss.high))
    assert found["within_interval"] == (site.loss.low <= found["loss"] <= site.loss.high)
    assert document["seconds"].keys() == {"reading", "evaluation", "writing"}
    assert sum(document["verdicts"].values()) == document["rows"] == 50


def test_a_regression_is_measured_by_squared_errors(folder, new, tmp_path):
    code, text, _ = run(
        *("predict", folder / "numbers", tmp_path / "new.csv", "-o", tmp_path / "o.csv"),
        *("--target", "dose", "--json", "--keep", "none"),
    )
    assert code == 0
    found = pd.read_csv(tmp_path / "o.csv")
    assert found.columns.tolist() == ["prediction", "typicality", "verdict", "reason", "nearest"]
    errors = new["dose"] - found["prediction"]
    outcomes = json.loads(text)["outcomes"]
    assert outcomes["loss"] == pytest.approx(np.mean(errors**2))
    assert outcomes["r2"] == pytest.approx(1 - np.mean(errors**2) / new["dose"].var(ddof=0))


def test_a_model_without_a_schema_takes_its_columns_by_name(folder, new, tmp_path):
    out = tmp_path / "o.csv"
    code, _, said = run("predict", folder / "plain", tmp_path / "new.csv", "-o", out)
    assert code == 0
    assert "are ignored: 'id', 'ward'" in said
    judged = load(folder / "plain").assess(new[["age", "dose"]])
    assert pd.read_csv(out)["prediction"].tolist() == judged.predictions.tolist()


def test_what_to_expect_at_a_site(folder, new, tmp_path):
    code, text, _ = run("site", folder / "model", tmp_path / "new.csv")
    site = load(folder / "model").score_new_site(new.drop(columns=["id", "sick"]))
    assert code == 0
    # the folder was saved by Python: nothing says how the model does at sites held out
    assert text.startswith("May I use it at this site? With care: the model was not saved by")
    code, text, _ = run(
        *("site", folder / "model", tmp_path / "new.csv", "--json"),
        *("--plot", tmp_path / "site.png", "--level", "0.9"),
    )
    found = json.loads(text)
    assert found["rows"] == 50
    assert found["rare"] == pytest.approx(site.rare)
    assert found["loss"]["expected"] == pytest.approx(site.loss.new)
    assert found["loss"]["low"] >= site.loss.low
    assert sum(found["nearest"].values()) == pytest.approx(1)
    assert (tmp_path / "site.png").read_bytes().startswith(b"\x89PNG")


def write(path, text):
    path.write_text(text)
    return path


def test_bad_tables_are_refused_with_a_sentence_and_leave_nothing(folder, new, tmp_path):
    model, out = folder / "model", tmp_path / "o.csv"
    header = ",".join(new.columns)
    bad = {
        "": "is empty; write a table to it first",
        header + "\n": "has columns but no rows; add rows to it first",
        "id,age\n1,2\n": "has no column 'dose', 'ward', 'smoker', which the model was trained on",
        f"{header}\n1,old,1,north,no,a,ill\n": r"'age' (row 1 is 'old', not a number)",
        f"{header}\n1,1,1,north,no,a,ill\n2,1,1,north,maybe,a,ill\n": "row 2 is 'maybe', not yes",
        "age,age\n1,2\n": "column 'age' occurs twice",
        "PK\x03\x04": "Excel",
    }
    for text, said in bad.items():
        path = write(tmp_path / "bad.csv", text)
        message = refused("predict", model, path, "-o", out)
        assert said in message
        assert said in refused("site", model, path)
        assert not out.exists()
        assert sorted(os.listdir(tmp_path)) == ["bad.csv", "new.csv"]
    message = refused("predict", model, write(tmp_path / "bad.csv", "dosis,age\n1,2\n"), "-o", out)
    assert "it has columns that were not in training: 'dosis'" in message


def test_bad_models_and_outputs_are_refused_with_a_sentence(folder, new, tmp_path):
    model, rows, out = folder / "model", tmp_path / "new.csv", tmp_path / "o.csv"
    assert "does not exist" in refused("predict", tmp_path / "none", rows, "-o", out)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    assert "is not a saved model: it has no model.json" in refused(
        "predict", foreign, rows, "-o", out
    )
    write(foreign / "model.json", "{}")
    assert 'has no entry "format"' in refused("site", foreign, rows)
    record = (model / "model.json").read_text()
    write(foreign / "model.json", record.replace('"median"', '"mean"'))
    assert "was changed after it was written" in refused("predict", foreign, rows, "-o", out)
    for path, said in (
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "no" / "o.csv", "is not a folder; create it first"),
        (tmp_path / "o.xlsx", "must end in .csv or .parquet"),
        (tmp_path / "o.txt", "must end in .csv or .parquet"),
        (rows, "is the file of the rows"),
        ("/proc/o.csv", "cannot be written"),
    ):
        assert said in refused("predict", model, rows, "-o", path)
    assert "which --keep names" in refused("predict", model, rows, "-o", out, "--keep", "name")
    assert "no column 'ill', which --target names" in refused(
        "predict", model, rows, "-o", out, "--target", "ill"
    )
    assert "row 1 is 'north', not one of ill, well" in refused(
        "predict", model, write(tmp_path / "w.csv", rows.read_text()), "-o", out, "--target", "ward"
    ).replace("söuth", "north")
    new.assign(verdict="fine").to_csv(rows, index=False)
    assert "'verdict' already; give --prefix" in refused("predict", model, rows, "-o", out)
    assert "model of tables" in refused("predict", model, tmp_path, "-o", out)
    assert "must end in .png" in refused("site", model, rows, "--plot", tmp_path / "a.txt")
    assert not out.exists()


def test_an_interrupt_leaves_the_old_output(folder, tmp_path):
    """A signal between two pieces, as Ctrl-C is."""
    draw(5000, 2).to_csv(tmp_path / "new.csv", index=False)
    out = write(tmp_path / "o.csv", "old")
    model, seen = load(folder / "model"), []

    def stop(share):
        seen.append(share)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(model, open_table(tmp_path / "new.csv"), out, progress=stop)
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["new.csv", "o.csv"]


def test_ctrl_c_ends_the_command(folder, new, tmp_path, monkeypatch):
    def interrupted(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pd.DataFrame, "to_csv", interrupted)
    code, _, message = run(
        "predict", folder / "model", tmp_path / "new.csv", "-o", tmp_path / "o.csv"
    )
    assert code == 130
    assert "stopped; nothing was written" in message
    assert os.listdir(tmp_path) == ["new.csv"]


@pytest.mark.slow
def test_a_site_that_would_not_fit_into_memory_is_refused_unread(folder, new, tmp_path):
    """Columns that are not read do not count: the same rows with 5,000 more are accepted."""
    wide = pd.concat([new.drop(columns="sick")] * 20, ignore_index=True)
    extra = pd.DataFrame(1, index=wide.index, columns=[f"extra {k}" for k in range(5000)])
    pd.concat([wide, extra], axis=1).to_csv(tmp_path / "wide.csv", index=False)
    site = ("site", folder / "model", tmp_path / "wide.csv")
    assert reading_bytes(tmp_path / "wide.csv") > 0.1e9
    assert run(*site, "--memory", "0.1")[0] == 0
    pd.concat([wide] * 60).to_csv(tmp_path / "wide.csv", index=False)
    assert "GB, but --memory allows 0.01; raise it, or leave rows out" in refused(
        *site, "--memory", "0.01"
    )


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        CountedName.compared += 1
        return str.__eq__(self, other)


def test_the_cost_of_columns_that_are_not_in_training_grows_with_their_number(tmp_path):
    """A list in the place of a set would compare every name with every other."""
    names = [CountedName(f"column {k}") for k in range(500)]
    dialect = Dialect(",", "utf-8", ".", names)
    CountedName.compared = 0
    assert [*reading_options(dialect, names, names)["converters"]] == names
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * 500) + "\n")
    table = TableFile(tmp_path / "t.csv", tuple(names), dialect)
    assert next(table.chunks(names, names))[0].shape == (1, 500)
    model = SimpleNamespace(feature_names_in_=names, environment=None)
    assert ModelColumns.of(model, table).ignored == ()
    assert CountedName.compared < 20 * len(names)
