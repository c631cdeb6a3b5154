"""What estimators refuse, and the words for it."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import OneHotEncoder

import wri
from hospitals import hospitals
from wri.boosting import TreeSettings
from wri.datasets.columns import ColumnReader
from wri.diagnosis import changing_features
from wri.errors import InputError
from wri.rows import Scaling

QUICK = {"steps": 5, "hidden": (8, 4), "penalty_weight": None}
METHODS = (
    *("predict", "predict_proba", "verdict", "score_samples", "typicality", "score_environments"),
    *("nearest_environment", "score_new_site"),
)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_said_before_fit(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(wri.WRIClassifier(), method)(hospitals(5)[0])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"steps": "many"}, "steps must be a whole number, not 'many', of the type str"),
        ({"steps": 2.5}, "steps must be a whole number"),
        ({"steps": True}, "steps must be a whole number"),
        ({"stop_after": [3]}, "stop_after must be a whole number"),
        ({"hidden": 32}, r"hidden must be a tuple of widths such as \(32, 16\), not 32"),
        ({"hidden": "32"}, "hidden must be a tuple"),
        ({"hidden": (32, "16")}, "hidden must be a tuple"),
        ({"rare": "0.05"}, "rare must be a number, not '0.05'"),
        ({"rare": None}, "rare must be a number"),
        ({"outside": [1]}, "outside must be a number"),
        ({"validation_fraction": "half"}, "validation_fraction must be a number"),
        ({"candidates": 3}, "candidates must be a list of dicts"),
        ({"candidates": [3]}, "candidates must be a list of dicts"),
        ({"candidates": [{"hidden": 3}, {}]}, "hidden in candidate 0 must be a tuple"),
        ({"hyper": [1]}, "hyper must be a dict of numbers by name"),
        ({"hyper": {3: 1.0}}, "hyper must be a dict"),
        ({"options": "density"}, "options must be a dict of options by name"),
        ({"environment": ["site"]}, "environment must be the name of a column"),
        ({"environment": 3.5}, "environment must be the name of a column"),
        ({"learning_rate": "fast"}, "learning_rate must be a number"),
        ({"steps": "x" * 5000}, "steps must be a whole number"),
        ({"steps": 10**400}, r"steps must lie between -2.14748e\+09 and 2.14748e\+09"),
        ({"n_jobs": 10**400}, "n_jobs must lie between"),
        ({"rare": 10**400}, r"rare must lie between -1.79769e\+308 and 1.79769e\+308"),
        ({"validation_fraction": -(10**400)}, "validation_fraction must lie between"),
        ({"penalty_weight": 10**400}, "penalty_weight must lie between"),
        ({"hyper": {"penalty_weight": 10**400}}, "penalty_weight must lie between"),
        ({"options": {"overlap_power": 10**400}}, "overlap_power must lie between"),
        ({"random_state": 10**400}, "random_state must be None, a RandomState or a whole number"),
        ({"hidden": (10**7, 10**7)}, r"hidden layers of \(10000000, 10000000\) units have more"),
        ({"candidates": [{"hidden": (10**7, 10**7)}, {}]}, "hidden layers of"),
    ],
)
def test_a_parameter_of_the_wrong_type_is_named(parameters, words):
    X, y, site = hospitals(20)
    with pytest.raises(InputError, match=words) as caught:
        wri.WRIClassifier(**parameters).fit(X, y, groups=site)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("value", [np.inf, 10**400, 0.5])
def test_rows_per_leaf_that_cannot_be(value):
    with pytest.raises(InputError, match="least_rows must be a whole number from 1 to"):
        TreeSettings(least_rows=value)


def with_large_cell(X):
    cells = X.tolist()
    cells[3][1] = 10**400
    return cells


def table_with_large_cell(X):
    return pd.DataFrame(np.array(with_large_cell(X), dtype=object))


@pytest.mark.parametrize("make", [with_large_cell, table_with_large_cell])
def test_a_cell_that_no_float_holds_is_named(make):
    X, y, site = hospitals(20)
    words = r"X.* contains a number beyond 1\.8e308; correct it"
    model = wri.ERMClassifier(**QUICK)
    with pytest.raises(InputError, match=words):
        model.fit(make(X), y, groups=site)
    model.fit(X, y, groups=site)
    for method in METHODS:
        with pytest.raises(InputError, match=words):
            getattr(model, method)(make(X))
    with pytest.raises(InputError, match=words):
        changing_features(make(X), y, groups=site)
    with pytest.raises(InputError, match=r"y contains a number beyond 1.8e308"):
        wri.ERMRegressor(**QUICK).fit(X, [10**400, *X[1:, 0]], groups=site)
    with pytest.raises(InputError, match="sample_weight contains a number beyond"):
        model.fit(X, y, groups=site, sample_weight=[10**400, *np.ones(len(y) - 1)])


def test_a_cell_of_a_raw_column_that_no_float_holds():
    cells = pd.DataFrame({"age": [30, 10**400]}, dtype=object)
    reader = ColumnReader([{"name": "age", "kind": "number"}]).fit(cells)
    with pytest.raises(InputError, match=r"'age' \(row 1 is 1000+….*not a number"):
        reader.transform(cells)


def test_tensors_give_the_predictions_of_arrays():
    """Also with gradients, and as groups."""
    X, y, site = hospitals(20)
    number = np.unique(site, return_inverse=True)[1]
    weights = np.ones(len(y))
    plain = wri.ERMClassifier(**QUICK).fit(X, y, groups=number, sample_weight=weights)
    rows, counts = torch.tensor(X, requires_grad=True), torch.tensor(weights, requires_grad=True)
    given = {"groups": torch.tensor(number), "sample_weight": counts}
    tensors = wri.ERMClassifier(**QUICK).fit(rows, torch.tensor(y), **given)
    assert tensors.environments_.tolist() == plain.environments_.tolist()
    np.testing.assert_array_equal(tensors.predict_proba(rows), plain.predict_proba(X))
    with pytest.raises(InputError, match="groups must be a list of labels"):
        plain.fit(X, y, groups=rows)


def test_lists_and_numpy_numbers_are_of_the_right_type():
    X, y, site = hospitals(20)
    model = wri.WRIClassifier(hidden=[4], steps=np.int64(3), rare=np.float32(0.05))
    assert model.fit(X, y, groups=site).network_.widths == (3, 4, 2)


def test_labels_in_messages_are_cut():
    X, y, _ = hospitals(20)
    site = np.array(["a" * 5000, "b" * 5000])[np.arange(len(y)) % 2]
    site[0] = "c" * 5000
    with pytest.raises(InputError, match=r"environment 'c{79}…' has 1 row;") as caught:
        wri.ERMClassifier(**QUICK).fit(X, y, groups=site)
    assert len(str(caught.value)) < 200
    table = pd.DataFrame(X, columns=["a", "b", "c" * 5000])
    table.iloc[3, 2] = np.nan
    with pytest.raises(InputError, match=r"row 3, column 'c{79}…'"):
        wri.ERMClassifier(**QUICK).fit(table, y)


@pytest.mark.parametrize("power", [40, 300, -40, -300])
def test_the_unit_of_a_column_changes_no_prediction(power):
    """Powers of two lose no digit."""
    X, y, site = hospitals(30)
    unit = np.array([1.0, 2.0**power, 1.0])
    plain = wri.ERMClassifier(**QUICK).fit(X, y, groups=site)
    scaled = wri.ERMClassifier(**QUICK).fit(X * unit, y, groups=site)
    np.testing.assert_array_equal(scaled.predict_proba(X * unit), plain.predict_proba(X))
    np.testing.assert_array_equal(scaled.verdict(X * unit), plain.verdict(X))


def test_a_column_whose_squares_no_number_holds():
    with pytest.raises(InputError, match=r"numbers of the order of 3e\+300 .*another unit"):
        Scaling.of(np.array([[1e300, 5.0], [3e300, 7.0]]))


@pytest.mark.parametrize("unit", [1e160, 1e-162])
def test_a_target_whose_squares_no_number_holds(unit):
    X, _, site = hospitals(20)
    with pytest.raises(InputError, match=r"y holds numbers of the order of .*another unit"):
        wri.ERMRegressor(**QUICK).fit(X, X[:, 0] * unit, groups=site)


def test_rows_without_finite_predictions():
    """They are outside whatever their density, and nothing is expected of a site with them."""
    X, _, site = hospitals(30)
    model = wri.ERMRegressor(steps=5, evidence_on="x").fit(X, X[:, 0], groups=site)
    huge = X.copy()
    huge[3:5] = 1.7e308
    model.input_scaling_ = model.input_scaling_._replace(scale=np.full(3, 0.1))
    with np.errstate(over="ignore", invalid="ignore"):
        assert set(model.verdict(huge)[3:5]) == {"outside"}
        assert (model.typicality(huge)[3:5] == 0).all()
        with pytest.raises(InputError, match=r"prediction for row 3 is not finite \(2 such rows\)"):
            model.score_new_site(huge)


TEXT = "row 1, column 'sex' is 'F'; encode it within wri.make_pipeline, for example"


@pytest.mark.parametrize("kind", ["object", "category", "string"])
def test_a_column_of_texts_is_named_with_the_remedy(kind):
    X, y, site = hospitals(20)
    table = pd.DataFrame(X).rename(columns=str).assign(sex=pd.Series(["0"] + ["F"] * (len(X) - 1)))
    table["sex"] = table["sex"].astype(kind)
    with pytest.raises(InputError, match=re.escape(f"X contains text: {TEXT}")):
        wri.ERMClassifier(**QUICK).fit(table, y, groups=site)
    model = wri.ERMClassifier(**QUICK).fit(table.assign(sex=0.0), y, groups=site)
    with pytest.raises(InputError, match=re.escape(TEXT)):
        model.predict(table)
    encode = make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough")
    remedy = wri.make_pipeline(encode, wri.ERMClassifier(**QUICK)).fit(table, y, groups=site)
    assert remedy.predict(table).shape == y.shape


def test_all_columns_of_texts_are_named_at_once():
    X, y, site = hospitals(20)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(sex="F", ward="W")
    expected = r"column 'sex' is 'F' \(columns with text: 'sex', 'ward'\);.*\['sex', 'ward'\]"
    with pytest.raises(InputError, match=expected):
        wri.ERMClassifier(**QUICK).fit(table, y, groups=site)


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_columns_of_dates_are_refused_with_the_remedy(kind):
    X, y, site = hospitals(20)
    seen = pd.Series(np.arange(len(X))).astype(kind)
    for table in (pd.DataFrame({"a": X[:, 0], "seen": seen}), seen.to_frame("seen")):
        with pytest.raises(InputError, match="X contains dates or durations in column 'seen'"):
            wri.ERMClassifier(**QUICK).fit(table, y, groups=site)
    with pytest.raises(InputError, match="X contains dates or durations; make numbers"):
        wri.ERMClassifier(**QUICK).fit(seen.to_numpy()[:, None], y, groups=site)


def test_texts_as_numbers_to_predict_are_named():
    X, y, site = hospitals(20)
    y = np.where(y, "ill", "well")
    with pytest.raises(InputError, match=r"y contains text: row 0 is '\w+'; give numbers, or fit"):
        wri.ERMRegressor(**QUICK).fit(X, y, groups=site)
