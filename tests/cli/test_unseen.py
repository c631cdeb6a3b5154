"""Categories and gaps that training never had are counted, and such rows are not supported."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import wri
from wri.cli import app
from wri.datasets import table_files
from wri.datasets.schema import TableSchema
from wri.estimators import load


def draw(n, seed):
    random = np.random.default_rng(seed)
    x = random.normal(size=n)
    return pd.DataFrame(
        {
            "age": x.round(3),
            "dose": random.normal(size=n).round(3),
            "ward": random.choice(["north", "south"], n),
            "smoker": random.choice(["yes", "no", ""], n),
            "site": np.array(["a", "b", "c"])[np.arange(n) % 3],
            "sick": np.where(x + random.normal(size=n) > 0, "ill", "well"),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home, rows = tmp_path_factory.mktemp("models") / "model", draw(240, 0)
    schema = TableSchema.infer(rows, "sick", "site")
    last = wri.ERMClassifier(environment="site", steps=60, site_spread=False)
    wri.make_pipeline(*schema.make_preprocessing(), last).fit(rows, rows["sick"]).save(home)
    return home


@pytest.fixture(scope="module")
def new():
    rows = draw(60, 1)
    rows.loc[:4, "ward"] = ["attic", "cellar", "attic", "roof", "attic"]
    return rows.assign(dose=np.nan)


def run(*arguments):
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    assert found.exit_code == 0, found.exception
    return found.stdout, found.stderr


def test_no_such_row_is_supported_without_a_word(folder, new):
    model = load(folder)
    plain = draw(60, 1)
    assert (model.verdict(plain) == "supported").mean() > 0.8
    assert not model.assess(plain).unseen
    found = model.assess(new)
    assert (found.verdicts != "supported").all()
    assert found.verdicts.tolist() == model.verdict(new).tolist()
    assert all("missing dose" in each for each in model.reason(new))
    assert ["unknown category in ward" in each for each in found.reasons[:6]] == [True] * 5 + [
        False
    ]
    one = plain.assign(ward="attic").iloc[:1]
    assert model.reason(one)[0].endswith("unknown category in ward")


def test_a_column_that_had_gaps_may_have_them(folder):
    model, rows = load(folder), draw(60, 1)
    assert not model.assess(rows.assign(smoker="")).unseen


def test_predict_counts_them(folder, new, tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "MOST_ROWS", 7)  # several pieces
    new.to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "out.csv"
    shown, told = run("predict", folder, tmp_path / "new.csv", "-o", output)
    assert "dose: missing in all 60 rows, and never in training" in told
    assert "ward: 5 of 60 rows have a category unknown to training, such as 'attic'" in told
    assert "0.0% supported" in shown
    assert "  60 missing dose" in shown
    written = pd.read_csv(output)
    assert (written["reason"].str.contains("missing dose")).all()
    shown, _ = run("predict", folder, tmp_path / "new.csv", "-o", output, "--json")
    document = json.loads(shown)
    by_column = {each["column"]: each for each in document["unseen"]}
    assert (by_column["dose"]["rows"], by_column["dose"]["kind"]) == (60, "missing")
    assert (by_column["ward"]["rows"], by_column["ward"]["of"]) == (5, 60)
    assert by_column["ward"]["examples"] == ["attic", "cellar", "roof"]


def test_site_counts_them(folder, new, tmp_path):
    new.to_csv(tmp_path / "new.csv", index=False)
    shown, _ = run("site", folder, tmp_path / "new.csv")
    assert "dose: missing in all 60 rows, and never in training" in shown
    assert "ward: 5 of 60 rows have a category unknown to training" in shown
    assert "not supported: missing dose              100.0 %" in shown
    document = json.loads(run("site", folder, tmp_path / "new.csv", "--json")[0])
    assert document["reasons"]["unknown category in ward"] == 5
    assert {each["column"] for each in document["unseen"]} == {"dose", "ward"}
