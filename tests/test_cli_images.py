"""Folders of pictures on the command line: sweeps, the paper's tables, predictions."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pictures import make_backbone, make_folder
from wri.features import FeatureLayer, backbones
from wri.paper.experiments import pictures as experiment
from wri.paper.experiments.pictures import PictureTableSize
from wri.sweep import Store

DOMAINS = ("amazon", "dslr", "webcam")
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be read and are left out")


@pytest.fixture
def wri(command):
    return command


@pytest.fixture
def office(tmp_path, monkeypatch):
    """Three domains with two classes, and a broken picture; features are kept in a new folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    root = make_folder(tmp_path / "office", DOMAINS, ("bike", "mug"), each=6)
    (root / "dslr" / "mug" / "05.png").write_bytes(b"no picture")
    return root


@pytest.fixture
def halves(monkeypatch):
    """A small backbone by a name of its own."""
    monkeypatch.setitem(backbones.BACKBONES, "halves", lambda name: make_backbone())


@pytest.fixture
def short_layers(monkeypatch):
    """Feature layers are trained in 20 steps, where a test is not about what they learn."""
    fit = FeatureLayer.fit

    def fit_shortly(self, *given, **named):
        return fit(replace(self, steps=20), *given, **named)

    monkeypatch.setattr(FeatureLayer, "fit", fit_shortly)


@pytest.mark.slow
def test_a_folder_is_swept_with_the_built_in_backbone(wri, office):
    asked = ("sweep", "--images", str(office), "--algorithms", "erm", "wri", "--steps", "20")
    size = ("--draws", "2", "--trials", "1", "--store", "s.db")
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of its own
        done = wri(*asked, *size)
    assert done.returncode == 0, done.stderr
    assert "1 of 36 pictures cannot be read" in " ".join(done.stderr.split())
    assert "05.png" in done.stderr
    said = "office: 35 rows, 1280 columns, 3 environments; the target is one of 2 classes; preset "
    assert f"{said}domainbed; a feature layer of 64 or 32 in each trial" in done.stdout
    assert "12 runs trained; s.db now holds 12 finished runs" in done.stdout
    assert "0 runs trained" in wri(*asked, *size).stdout
    with Store("s.db") as store:
        (info,) = store.infos().values()
        accuracies = [run.measures["accuracy"]["env0_in"][-1] for run in store.outcomes()]
    assert info.environments == DOMAINS
    assert np.mean(accuracies) > 0.6  # brighter above or below
    refused = wri("results", "s.db", "--best", "--algorithm", "erm", "--fit", "model")
    assert refused.returncode == 2
    assert "office --images` trains one" in " ".join(refused.stderr.split())


@pytest.mark.usefixtures("halves", "short_layers")
@pytest.mark.slow
def test_widths_of_the_feature_layer_and_none(wri, office):
    asked = ("sweep", "--images", str(office), "--backbone", "halves", "--algorithms", "erm")
    size = ("--steps", "2", "--trials", "1", "--draws", "8", "--test-envs", "0")
    done = wri(*asked, *size, "--feature-layer", "4,8", "--store", "narrow.db")
    assert "a feature layer of 8 or 4 in each trial" in done.stdout
    done = wri(*asked, *size, "--feature-layer", "0", "--store", "wide.db")
    assert "6 columns" in done.stdout
    assert "feature layer" not in done.stdout
    wrong = wri(*asked, "--feature-layer", "x", "--store", "x.db")
    assert wrong.returncode == 2
    assert "--feature-layer x must be widths such as 32,16" in wrong.stderr
    wrong = wri("sweep", "--datasets", "hospitals", "--backbone", "halves", "--store", "x.db")
    assert "name their folder with --images" in " ".join(wrong.stderr.split())


@pytest.mark.usefixtures("short_layers")
def test_a_feature_matrix_is_swept_behind_a_layer(wri, tmp_path):
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 90)
    x = random.normal(size=(90, 50)).astype(np.float32) + 2 * y[:, None]
    np.savez(tmp_path / "rows.npz", x=x, y=y, site=np.repeat([*"abc"], 30))
    asked = ("--data", str(tmp_path / "rows.npz"), "--target", "y", "--env", "site")
    more = ("--algorithms", "erm", "--steps", "5", "--trials", "1", "--store", "s.db")
    done = wri("sweep", *asked, *more, "--feature-layer", "8", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trained"] == 3
    dry = wri("sweep", *asked, *more[:-1], "t.db", "--feature-layer", "8", "--dry-run")
    assert "3 runs, 0 of them finished; 3 to train in 3 stacks" in dry.stdout


@pytest.mark.usefixtures("halves", "short_layers", "short_weights")
@pytest.mark.slow
def test_the_papers_table_on_a_folder(wri, office, monkeypatch):
    size = PictureTableSize(draws=2, trials=2, steps=10, layer_steps=FeatureLayer().steps)
    monkeypatch.setattr(experiment, "QUICK", size)
    small = ("--backbone", "halves")
    done = wri("reproduce", "tableE4", "--data", str(office), *small, "--json", "-o", "out")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len({row["algorithm"] for row in document["rows"]}) == 9
    assert {*DOMAINS, "average", "office"} == {row["column"] for row in document["rows"]}
    assert all(row["paper"] is None and row["n"] == 2 for row in document["rows"])
    assert any("05.png was left out" in note for note in document["notes"])

    # the same runs by the command for sweeps
    asked = ("sweep", "--images", str(office), "--algorithms", "erm", "vrex", "--steps", "10")
    wri(*asked, *small, "--draws", "2", "--trials", "2", "--selection", "oracle", "--store", "s.db")
    shown = json.loads(wri("results", "s.db", "--selection", "oracle", "--json").stdout)
    ours = {(row["algorithm"], row["environment"]): row["mean"] for row in shown["rows"]}
    theirs = {
        (row["algorithm"].lower(), row["column"]): row["ours"]
        for row in document["rows"]
        if row["table"].startswith("office, oracle")
    }
    assert ours == {key: theirs[key] for key in ours}


@pytest.mark.usefixtures("halves")
@pytest.mark.slow
def test_class_folders_tell_how_well_a_model_predicts(wri, office, tmp_path):
    from wri import ERMClassifier, PictureClassifier
    from wri.datasets import ImageFolder

    estimator = ERMClassifier(steps=30, site_spread=False)
    train = ImageFolder(office).only("amazon", "dslr")
    PictureClassifier(estimator, backbone="halves").fit(train).save("model")
    new = ("predict", "model", str(office / "webcam"), "-o", "out.csv")
    done = wri(*new, "--target", "class", "--json")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)["outcomes"]
    table = pd.read_csv("out.csv")
    right = [row.picture.startswith(row.prediction) for row in table.itertuples()]
    assert outcomes["accuracy"] == np.mean(right)
    wrong = wri(*new, "--target", "label")
    assert "give --target class" in " ".join(wrong.stderr.split())
    (office / "webcam" / "mug").rename(office / "webcam" / "cup")
    wrong = wri(*new, "--target", "class")
    assert wrong.returncode == 2
    assert "lies in no folder of a class of the model, 'bike', 'mug'" in " ".join(
        wrong.stderr.split()
    )
