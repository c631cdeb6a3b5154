"""Estimators are scikit-learn's: its own checks, pipelines, searches and metadata routing."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import wri
from hospitals import hospitals
from wri.densities import FittedClassifier
from wri.objectives import OBJECTIVES
from wri.registry import OBJECTIVES as ENTRIES

NAMES = [entry.label for entry in ENTRIES.values()]
KINDS = ("Classifier", "Regressor")
QUICK = {"steps": 20, "learning_rate": 0.05, "hidden": (16,), "penalty_weight": None}
TREES = {"rounds": 15, "learning_rate": 0.3, "site_spread": False}


class TwoPlaces(wri.WRIClassifier):
    """WRI that is given two environments where scikit-learn's checks give none."""

    def fit(self, X, y, groups=None):
        n_rows = len(np.asarray(X)) if y is None else len(np.asarray(y))
        return super().fit(X, y, np.arange(n_rows) % 2 if n_rows > 3 else None)


@pytest.mark.filterwarnings("ignore:.*trains plain ERM")
@pytest.mark.parametrize("name", ["ERMClassifier", "WRIRegressor"])  # here all train ERM
@pytest.mark.slow
def test_scikit_learns_checks_with_one_environment(name):
    check_estimator(getattr(wri, name)(**QUICK), on_skip=None)


@pytest.mark.filterwarnings("ignore:.*trains plain ERM", "ignore:.*holds a single class")
@pytest.mark.slow
def test_scikit_learns_checks_with_environments():
    options = {"density": FittedClassifier(hidden=4, steps=5, batch_size=32)}
    few = QUICK | {"steps": 10, "penalty_weight": 1, "site_spread": False}
    check_estimator(TwoPlaces(**few, options=options), on_skip=None)


class TwoForests(wri.WRIBoostingClassifier):
    """WRI with trees that is given two environments where scikit-learn's checks give none."""

    def fit(self, X, y, groups=None):
        n_rows = len(np.asarray(X)) if y is None else len(np.asarray(y))
        return super().fit(X, y, np.arange(n_rows) % 2 if n_rows > 3 else None)


@pytest.mark.filterwarnings("ignore:.*trains plain ERM", "ignore:.*holds a single class")
@pytest.mark.parametrize(
    "model",
    [wri.ERMBoostingClassifier(**TREES), wri.ERMBoostingRegressor(**TREES), TwoForests(**TREES)],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.slow
def test_scikit_learns_checks_of_trees(model):
    pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")
    check_estimator(model, on_skip=None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_every_objective_has_both(name, kind):
    X, y, site = hospitals(60)
    model = getattr(wri, name + kind)(**QUICK, site_spread=False).fit(X, y, groups=site)
    assert type(model.spec_.objective) is OBJECTIVES[name.lower()]
    assert model.n_environments_ == 4
    assert np.isfinite(model.predict(X)).all()
    assert set(model.verdict(X)) <= {"supported", "rare", "outside"}


def test_clone_and_set_params_keep_what_was_given():
    model = wri.VRExClassifier(penalty_weight=3, candidates=[{"penalty_weight": 1}])
    copy = clone(model).set_params(steps=7)
    assert copy.get_params() == {**model.get_params(), "steps": 7}


def watching(seen):
    """A score that notes how many environments the model was trained on."""

    def score(model, X, y):
        model = getattr(model, "best_estimator_", model)
        seen.append(model.n_environments_)
        return model.score(X, y)

    return score


GRID = {"penalty_weight": [0.0, 10.0]}


def check_nested(result, seen):
    assert [search.best_estimator_.n_environments_ for search in result["estimator"]] == [3] * 4
    inner, outer = [2] * 6, [3]  # two candidates on three inner folds; the refit
    assert seen == (inner + outer) * 4
    assert np.isfinite(result["test_score"]).all()


@pytest.mark.slow
def test_nested_cross_validation_by_column_without_routing():
    X, y, site = hospitals(40)
    table = pd.DataFrame(X, columns=["cause", "marker", "noise"]).assign(site=site)
    seen = []
    model = wri.VRExClassifier(environment="site", **QUICK)
    search = GridSearchCV(model, GRID, cv=LeaveOneGroupOut(), scoring=watching(seen))
    result = cross_validate(
        search,
        table,
        y,
        groups=site,
        params={"groups": site},  # for the inner splitter
        cv=LeaveOneGroupOut(),
        scoring=watching(seen),
        return_estimator=True,
    )
    check_nested(result, seen)


@pytest.mark.parametrize("column", [None, "site"])
@pytest.mark.slow
def test_nested_cross_validation_with_routing(column):
    X, y, site = hospitals(40)
    if column:
        X = pd.DataFrame(X, columns=["cause", "marker", "noise"]).assign(site=site)
    seen = []
    with sklearn.config_context(enable_metadata_routing=True):
        model = wri.VRExClassifier(environment=column, **QUICK)
        search = GridSearchCV(model, GRID, cv=LeaveOneGroupOut(), scoring=watching(seen))
        result = cross_validate(
            search,
            X,
            y,
            params={"groups": site},
            cv=LeaveOneGroupOut(),
            scoring=watching(seen),
            return_estimator=True,
        )
    check_nested(result, seen)


def test_a_pipeline_hands_groups_on_in_both_modes():
    X, y, site = hospitals(40)
    model = wri.IRMClassifier(**QUICK)
    off = make_pipeline(StandardScaler(), model).fit(X, y, irmclassifier__groups=site)
    with sklearn.config_context(enable_metadata_routing=True):
        on = make_pipeline(StandardScaler(), clone(model)).fit(X, y, groups=site)
    assert off[-1].n_environments_ == on[-1].n_environments_ == 4
    assert np.array_equal(off.predict_proba(X), on.predict_proba(X))


def test_a_pipeline_of_tables_keeps_the_column():
    X, y, site = hospitals(40)
    table = pd.DataFrame(X, columns=["cause", "marker", "noise"]).assign(site=site)
    scale = ColumnTransformer(
        [("scale", StandardScaler(), ["cause", "marker", "noise"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = make_pipeline(scale, wri.IRMClassifier(environment="site", **QUICK)).fit(table, y)
    assert model[-1].n_environments_ == 4
    assert model[-1].feature_names_in_.tolist() == ["cause", "marker", "noise"]


def test_a_cross_validation_warns_once_and_names_the_trap():
    """Each fold is a fit of its own, and scikit-learn renews the filters of warnings for each."""
    X, y, site = hospitals(30)
    model = wri.VRExClassifier(steps=5, hidden=(4,))

    def validate():
        cross_validate(model, X, y, groups=site, cv=LeaveOneGroupOut())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        validate()
    (warning,) = caught
    assert warning.filename == __file__  # the user's line, not one of the package
    assert "cross_validate(groups=...)" in str(warning.message)
    assert "environment='column'" in str(warning.message)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # whoever asks for all gets all
        validate()
    assert len(caught) == len(np.unique(site))
