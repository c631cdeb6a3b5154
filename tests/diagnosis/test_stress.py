"""What models lose when a relation breaks or turns round is what their coefficients say."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from wri.datasets import hospitals, joined
from wri.diagnosis import changing_features, stress_test
from wri.errors import InputError
from wri.futures import reverse_classes, reverse_numbers


@pytest.fixture(scope="module")
def patients():
    return joined(hospitals(400, 0)), joined(hospitals(400, 1))


class CauseAlone:
    """Predicts by the first column, with the chance that is true."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        chance = 1 / (1 + np.exp(-2 * np.asarray(X)[:, 0]))
        return np.column_stack([1 - chance, chance])


def test_a_marker_costs_its_user_and_nobody_else(patients):
    (x, y, _), (new, sick, site) = patients
    models = {"marker": LogisticRegression().fit(x, y), "cause": CauseAlone()}
    found = stress_test(models, new, sick, site, [1, 2], draws=3)
    table = found.table().set_index(["model", "relation"])
    assert table.loc["marker", "loss"].is_monotonic_increasing
    assert table.loc[("marker", "reversed"), "loss"] > 2 * table.loc[("cause", "reversed"), "loss"]
    assert table.loc[("marker", "unchanged"), "loss"] < table.loc[("cause", "unchanged"), "loss"]
    assert np.allclose(table.loc["cause", "change"], 0)
    assert "costs" in found.meaning
    assert "saves" in found.meaning
    assert repr(found) == found.meaning


def test_equal_models_are_said_to_be_equal(patients):
    _, (new, sick, site) = patients
    found = stress_test({"one": CauseAlone(), "other": CauseAlone()}, new, sick, site, 1, draws=1)
    assert found.meaning.endswith("other is the same predictor as one here.")


def test_unchanged_is_the_mean_of_the_sites_losses(patients):
    (x, y, _), (new, sick, site) = patients
    model = LogisticRegression().fit(x, y)
    found = stress_test([model], new, sick, site, 1, draws=1)
    losses = -np.log(model.predict_proba(new)[np.arange(len(sick)), sick])
    each = [losses[site == name].mean() for name in found.labels]
    assert np.allclose(found.losses[0, 0], each)
    line = found.table().iloc[0]
    assert line["error"] == pytest.approx(np.std(each, ddof=1) / 2)
    assert line["worst_site"] == found.labels[np.argmax(each)]


def test_numbers_are_reversed_by_rank():
    """y = x without noise: broken, errors are 2 variances; reversed and symmetric, 4."""
    random = np.random.default_rng(0)
    x, site = random.normal(size=(6000, 1)), np.repeat(["a", "b", "c"], 2000)
    y = x[:, 0]
    found = stress_test(LinearRegression().fit(x, y), x, y, site, [0], draws=2)
    assert found.losses[0].mean(1) == pytest.approx([0, 2, 4], abs=0.1)
    assert (np.sort(reverse_numbers(y[:50], random)) == np.arange(50)).all()
    taken = reverse_numbers(y[:50], random)
    assert (y[taken][y[:50].argsort()] == np.sort(y[:50])[::-1]).all()


def test_classes_are_drawn_from_the_others_about_equally_often():
    random = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [30, 5, 10])
    taken = reverse_classes(y, random)
    assert (y[taken] != y).all()
    times = np.bincount(taken[y == 0], minlength=45)[y != 0]
    assert times.tolist() == [2] * 15
    assert reverse_classes(np.zeros(4), random) is None


def test_frames_with_texts_go_through_pipelines_and_keep_their_types(patients):
    (x, y, _), (new, sick, site) = patients
    frames = [pd.DataFrame(each, columns=["smoking", "marker", "noise"]) for each in (x, new)]
    for frame in frames:
        frame["level"] = np.where(frame["marker"] > 0, "high", "low")
    steps = make_column_transformer((OneHotEncoder(), ["level"]), remainder="passthrough")
    plain = make_pipeline(steps, LogisticRegression()).fit(frames[0], y)
    trees = HistGradientBoostingClassifier(max_iter=20).fit(frames[0].drop(columns="level"), y)
    before = frames[1].copy()
    found = stress_test(plain, frames[1], sick, site, ["marker", "level"], draws=1)
    assert found.models == ("Pipeline",)
    assert found.losses[0, 2].mean() > found.losses[0, 1].mean() > found.losses[0, 0].mean()
    pd.testing.assert_frame_equal(frames[1], before)
    numbers = frames[1].drop(columns="level")
    assert stress_test([trees, trees], numbers, sick, site, "marker", draws=1).models == (
        "HistGradientBoostingClassifier 1",
        "HistGradientBoostingClassifier 2",
    )


def test_a_site_with_one_outcome_is_not_reversed(patients):
    (x, y, _), (new, sick, site) = patients
    kept = (site != "north") | (sick == 1)
    found = stress_test(LogisticRegression().fit(x, y), new[kept], sick[kept], site[kept], [1])
    assert np.isnan(found.losses[0, 2]).sum() == 1
    assert "reversed at 3 of them" in found.meaning
    assert np.isfinite(found.table()["loss"]).all()


def test_the_picture_takes_axes(patients):
    (x, y, _), (new, sick, site) = patients
    found = stress_test(LogisticRegression().fit(x, y), new, sick, site, [1], draws=1)
    drawn = found.plot()
    assert found.plot(ax=drawn.axes[0]) is drawn
    assert drawn.axes[0].get_yticklabels()[0].get_text() == "LogisticRegression"


def test_columns_that_another_diagnosis_names_are_taken():
    """Names of an array's columns, and of a table's columns that are numbers."""
    random, site = np.random.default_rng(0), np.repeat(np.arange(4), 100)
    x = random.normal(size=(400, 3))
    y = x @ [1.0, 0.0, 0.5] + np.array([-1.5, -0.5, 0.5, 1.5])[site] * x[:, 1]
    y += random.normal(size=400)
    model = LinearRegression().fit(x, y)
    for X, name in ((x, "column 1"), (pd.DataFrame(x, columns=[7, 8, 9]), "8")):
        flagged = changing_features(X, y, site, draws=99).flagged
        assert flagged == (name,)
        found = stress_test(model, np.asarray(X), y, site, [1], draws=1)
        own = stress_test(NoNames(model), X, y, site, flagged, draws=1)
        assert own.columns == flagged
        np.testing.assert_allclose(own.losses, found.losses, rtol=1e-13)  # columns lie otherwise


class NoNames:
    """A model that takes any table."""

    def __init__(self, model):
        self.model = model

    def predict(self, X):
        return self.model.predict(np.asarray(X))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"columns": []}, "columns names no column"),
        ({"columns": [7]}, "column 7, which is not in X: .* or numbers from 0"),
        ({"columns": "marker"}, "column 'marker', which is not in X"),
        ({"models": []}, "models is empty"),
        ({"draws": 0}, "draws"),
    ],
)
def test_what_cannot_be_asked_is_refused(changed, message, patients):
    _, (new, sick, site) = patients
    given = {"models": CauseAlone(), "columns": [1], "draws": 1} | changed
    with pytest.raises(InputError, match=message):
        stress_test(X=new, y=sick, groups=site, **given)
    with pytest.raises(InputError, match="'age', which is not in X: it has 0, 1 and 2"):
        stress_test(CauseAlone(), pd.DataFrame(new), sick, site, ["age"])
