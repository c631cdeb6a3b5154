"""Results do not depend on names, order or units of what is given."""

import numpy as np
import pandas as pd
import pytest

from wri import ERMClassifier, ERMRegressor, VRExClassifier, WRIClassifier, WRIRegressor
from wri.datasets import hospitals, joined
from wri.estimators.inputs import hold_out
from wri.rows import hash_rows

ESTIMATORS = (ERMClassifier, VRExClassifier, WRIClassifier, ERMRegressor, WRIRegressor)


@pytest.fixture(scope="module")
def table():
    x, y, site = joined(hospitals(77, seed=3))
    frame = pd.DataFrame(x, columns=["smoking", "marker", "noise"])
    return frame, np.asarray(y), np.asarray(site)


def predict(estimator, frame, y, site, new, **options):
    given = {} if estimator.__name__.startswith("ERM") else {"penalty_weight": 2.0}
    model = estimator(site_spread=False, **given).fit(frame, y, groups=site, **options)
    outputs = model.predict_proba(new)[:, 1] if hasattr(model, "classes_") else model.predict(new)
    return outputs, model.typicality(new)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("change", ["rows", "names", "columns", "units"])
def test_results_do_not_depend_on(table, estimator, change):
    frame, y, site = table
    new = frame.iloc[:40]
    outputs, typicality = predict(estimator, frame, y, site, new)
    if change == "rows":
        order = np.random.default_rng(0).permutation(len(y))
        frame, y, site = frame.iloc[order], y[order], site[order]
    elif change == "names":
        named = {label: f"site {9 - place}" for place, label in enumerate(np.unique(site))}
        site = np.array([named[label] for label in site])
    elif change == "columns":
        frame, new = frame[["noise", "smoking", "marker"]], new[["noise", "smoking", "marker"]]
    else:
        units = np.array([3.7, 0.01, 250.0])
        frame, new = frame * units, new * units
    found, common = predict(estimator, frame, y, site, new)
    np.testing.assert_allclose(found, outputs, atol=1e-6)
    np.testing.assert_allclose(common, typicality, atol=0.01)


@pytest.mark.parametrize("estimator", [ERMClassifier, VRExClassifier, WRIClassifier])
def test_weight_two_counts_a_row_twice(table, estimator):
    frame, y, site = table
    times = np.random.default_rng(1).integers(1, 3, len(y))
    new = frame.iloc[:40]
    weighted, _ = predict(estimator, frame, y, site, new, sample_weight=times.astype(float))
    rows = np.repeat(np.arange(len(y)), times)
    doubled, _ = predict(estimator, frame.iloc[rows], y[rows], site[rows], new)
    np.testing.assert_allclose(weighted, doubled, atol=1e-6)


def test_held_out_rows_are_drawn_by_contents():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 3)), random.integers(2, size=200)
    site = np.repeat([0, 1], 100)
    environments = [np.flatnonzero(site == e) for e in (0, 1)]
    first = hold_out(environments, x, y, None, 0.2, 0)
    assert [len(rows) for rows in first.held_out] == [20, 20]
    order = random.permutation(200)
    again = [np.flatnonzero(site[order] == e) for e in (1, 0)]
    second = hold_out(again, (x * 3)[order][:, [2, 0, 1]], y[order], None, 0.2, 0)
    for rows, other in zip(first.held_out, second.held_out[::-1], strict=True):
        assert set(rows) == set(order[other])
    other = hold_out(environments, x, y, None, 0.2, 1)
    assert set(other.held_out[0]) != set(first.held_out[0])


def test_equal_rows_have_equal_numbers_and_others_do_not():
    x = np.array([[0.0, 1], [1, 0], [0, 1], [-0.0, 1]])
    numbers = hash_rows(x, np.array([0, 1, 0, 0]), 0)
    assert numbers[0] == numbers[2] == numbers[3]
    assert numbers[0] != numbers[1]
