"""Trees without a penalty are LightGBM's own; with one they let go of what changes."""

import numpy as np
import pytest

from wri.boosting import TreeSettings, WeightedRows, grow
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.training import ModelSpec

lightgbm = pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")

SETTINGS = TreeSettings(rounds=40, leaves=4, least_rows=20, learning_rate=0.1)
OWN = {"logistic": "binary", "squared": "regression", "cross_entropy": "multiclass"}


def make_table(loss, seed=0, n=400):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 4))
    x[::9, 1] = np.nan
    x[:, 3] = random.integers(6, size=n)
    signal = x[:, 0] + np.isin(x[:, 3], (1, 4)) + random.normal(size=n)
    targets = {
        "logistic": (signal > 0.5).astype(int),
        "cross_entropy": np.digitize(signal, (0, 1)),
        "squared": signal,
    }[loss.name]
    rows = WeightedRows(
        features=np.nan_to_num(x),
        targets=targets,
        environment=np.repeat([0, 1], n // 2),
        loss=loss,
        weights=np.ones(n),
    )
    return x, rows


@pytest.mark.parametrize("loss", [LOGISTIC, SQUARED, CROSS_ENTROPY], ids=lambda loss: loss.name)
def test_without_a_penalty_trees_are_those_of_lightgbm(loss):
    x, rows = make_table(loss)
    classes = 3 if loss is CROSS_ENTROPY else None
    spec = ModelSpec.of("erm", preset="table", hidden=(), steps=40).complete(4, 400, 200)
    ours = grow(x, rows, spec.objective, spec.hyper, SETTINGS, classes=classes, categorical=[3])
    own = {"objective": OWN[loss.name], **({"num_class": 3} if classes else {})}
    data = lightgbm.Dataset(x, rows.targets, categorical_feature=[3])
    theirs = lightgbm.train({**SETTINGS.parameters(0), **own}, data, SETTINGS.rounds)
    expected = theirs.predict(x, raw_score=True).reshape(len(x), -1)
    np.testing.assert_allclose(ours.scores(x), expected, atol=1e-6)


def sample_hospital(random, n, centre, marker):
    """Two causes that act together, and a marker that follows the diagnosis."""
    causes = random.normal(centre, 1, (n, 2))
    sick = random.random(n) < 1 / (1 + np.exp(-2.5 * np.sign(causes[:, 0] * causes[:, 1])))
    return np.column_stack([causes, random.normal((2 * sick - 1) * marker, 1)]), sick.astype(int)


def test_a_penalty_lets_go_of_a_marker_that_changes():
    random = np.random.default_rng(0)
    sites = [((-0.5, 0), 1.5), ((0, 0.5), 0.3), ((0.5, 0), 1.0), ((0, -0.5), 0.6)]
    parts = [sample_hospital(random, 500, *site) for site in sites]
    x, y = (np.concatenate(both) for both in zip(*parts, strict=True))
    new_x, new_y = sample_hospital(random, 2000, (0, 0), -1.0)
    rows = WeightedRows(
        features=x / x.std(0),
        targets=y,
        environment=np.repeat(np.arange(4), 500),
        loss=LOGISTIC,
        weights=np.ones(len(y)),
    )
    settings = TreeSettings(rounds=100, leaves=4, least_rows=50, learning_rate=0.1)
    right = {}
    for name in ("erm", "wri"):
        spec = ModelSpec.of(name, preset="table", hidden=(), steps=100).complete(3, 2000, 500)
        halves = None if name == "erm" else random.permutation(len(y)) % 2
        trees = grow(x, rows, spec.objective, spec.hyper, settings, halves=halves)
        right[name] = np.mean((trees.scores(new_x)[:, 0] > 0) == new_y)
    assert right["wri"] > right["erm"] + 0.1


@pytest.mark.parametrize("loss", [LOGISTIC, CROSS_ENTROPY], ids=lambda loss: loss.name)
def test_without_a_column_to_split_on_every_row_has_the_same_score(loss):
    _, rows = make_table(loss)
    spec = ModelSpec.of("erm", preset="table", hidden=(), steps=40).complete(4, 400, 200)
    classes = 3 if loss is CROSS_ENTROPY else None
    constant = np.ones((400, 2))
    trees = grow(constant, rows, spec.objective, spec.hyper, SETTINGS, classes=classes)
    np.testing.assert_allclose(trees.scores(constant), np.tile(trees.start, (400, 1)))
    assert trees.importances(constant).tolist() == [0, 0]
