"""Estimators of boosted trees: what they predict, what they see of a table, what they keep."""

import sys

import numpy as np
import pandas as pd
import pytest

import wri
from hospitals import hospitals
from wri.datasets import joined, threshold_hospitals
from wri.datasets.threshold_hospitals import REVERSED
from wri.diagnosis import risk_gaps, stress_test
from wri.errors import InputError
from wri.registry import BOOSTED, OBJECTIVES

lightgbm = pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")

QUICK = {"rounds": 20, "least_rows": 10, "site_spread": False, "compare_erm": False}
OWN = {"rounds": 30, "leaves": 4, "least_rows": 20, "learning_rate": 0.1}
LIGHTGBM = {
    "num_leaves": 4,
    "min_data_in_leaf": 20,
    "learning_rate": 0.1,
    "verbosity": -1,
    "num_threads": 1,
}


def plain_scores(x, y, objective, **more):
    data = lightgbm.Dataset(x, y, **more)
    trees = lightgbm.train({**LIGHTGBM, "objective": objective}, data, 30)
    return trees.predict(x, raw_score=True)


@pytest.mark.parametrize("name", ["ERM", "WRI"])
def test_without_a_penalty_a_classifier_is_lightgbms_own(name):
    x, y, site = hospitals(150)
    weight = {"penalty_weight": 0.0} if name == "WRI" else {}
    kind = getattr(wri, f"{name}BoostingClassifier")
    model = kind(**OWN, **weight, validation_fraction=0.0, site_spread=False)
    p = model.fit(x, y, groups=site).predict_proba(x)[:, 1]
    expected = plain_scores(x, y, "binary")
    np.testing.assert_allclose(np.log(p / (1 - p)), expected, atol=1e-6)


def test_without_a_penalty_a_regressor_is_lightgbms_own_in_the_targets_unit():
    x, _, site = hospitals(150)
    y = 300 + 20 * x[:, 0] * x[:, 1]
    model = wri.ERMBoostingRegressor(**OWN, validation_fraction=0.0, site_spread=False)
    found = model.fit(x, y, groups=site).predict(x)
    np.testing.assert_allclose(found, plain_scores(x, y, "regression"), atol=1e-4)


def test_environments_count_alike_whatever_their_size():
    x, y, site = hospitals(150)
    kept = np.r_[0:150, 150:200, 300:450, 450:600]
    x, y, site = x[kept], y[kept], site[kept]
    sizes = {name: (site == name).sum() for name in set(site)}
    weight = np.array([len(y) / (4 * sizes[name]) for name in site])
    model = wri.ERMBoostingClassifier(**OWN, validation_fraction=0.0, site_spread=False)
    p = model.fit(x, y, groups=site).predict_proba(x)[:, 1]
    expected = plain_scores(x, y, "binary", weight=weight)
    np.testing.assert_allclose(np.log(p / (1 - p)), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
@pytest.mark.parametrize("name", BOOSTED)
@pytest.mark.slow
def test_every_objective_has_both(name, kind):
    x, y, site = hospitals(60)
    kind = getattr(wri, f"{OBJECTIVES[name].label}Boosting{kind}")
    model = kind(**QUICK, penalty_weight=None)
    model.fit(x, y, groups=site)
    assert model.spec_.objective.name == name
    assert model.n_environments_ == 4
    assert model.n_steps_ == 20
    assert np.isfinite(model.predict(x)).all()
    assert set(model.verdict(x)) <= {"supported", "rare", "outside"}
    assert len(model.trees_.boosters) == (1 if name == "erm" else 2)


@pytest.mark.slow
def test_the_penalty_lets_go_of_a_marker_that_changes():
    x, y, site = joined(threshold_hospitals(1000, 1000))
    _, new_x, new_y = REVERSED.sample(3000, 1001)
    options = {"site_spread": False, "validation_fraction": 0.0}
    plain = wri.ERMBoostingClassifier(**options).fit(x, y, groups=site)
    ours = wri.WRIBoostingClassifier(**options, penalty_weight=1.0).fit(x, y, groups=site)
    assert ours.score(new_x, new_y) > plain.score(new_x, new_y) + 0.1
    assert ours.score(x, y) > plain.score(x, y) - 0.05
    assert ours.importance_change_[3] < -0.05
    assert ours.feature_importances_.sum() == pytest.approx(1)
    np.testing.assert_array_equal(plain.importance_change_, 0)


@pytest.mark.slow
def test_missing_values_are_information():
    x, y, site = hospitals(150)
    x = x.copy()
    x[:, 2] = np.where(y == 1, np.nan, x[:, 2])  # missing tells the outcome
    model = wri.ERMBoostingClassifier(**QUICK).fit(x, y, groups=site)
    assert model.score(x, y) > 0.99
    assert np.isfinite(model.score_samples(x)).all()
    assert wri.WRIBoostingClassifier(evidence_on="x", **QUICK).fit(x, y, groups=site)
    x[3, 1] = np.inf
    with pytest.raises(InputError, match="X contains infinity: row 3, column 1"):
        model.predict(x)


def categories(n=200, seed=0):
    random = np.random.default_rng(seed)
    ward = random.choice(["a", "b", "c", "d", "e", "f"], 4 * n)
    y = np.where(np.isin(ward, ["a", "c", "e"]) ^ (random.random(4 * n) < 0.1), "ill", "well")
    table = pd.DataFrame({"age": random.normal(50, 9, 4 * n), "ward": ward})
    return table.assign(site=np.repeat(list("ABCD"), n), ward=table["ward"].astype("category")), y


def test_categories_are_parted_as_lightgbm_parts_them(tmp_path):
    table, y = categories()
    options = {"environment": "site", "rounds": 20, "leaves": 2, "site_spread": False}
    model = wri.WRIBoostingClassifier(**options, evidence_on="x").fit(table, y)
    assert model.categorical_ == (1,)
    assert model.score(table, y) > 0.85
    new = table.assign(ward=pd.Categorical(["zzz"] * len(table)))
    assert np.isfinite(model.predict_proba(new)).all()  # an unknown category is missing
    model.save(tmp_path / "model")
    loaded = wri.WRIBoostingClassifier.load(tmp_path / "model")
    shuffled = table.assign(ward=table["ward"].cat.reorder_categories(list("fedcba")))
    for rows in (table, new, shuffled):
        np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
        np.testing.assert_array_equal(loaded.score_samples(rows), model.score_samples(rows))


def test_codes_of_categories_are_checked():
    table, y = categories(50)
    coded = table.assign(ward=table["ward"].cat.codes.astype(float))
    model = wri.ERMBoostingClassifier(environment="site", categorical=["ward"], **QUICK)
    assert model.fit(coded, y).categorical_ == (1,)
    with pytest.raises(InputError, match=r"column 'age' is categorical and holds .*row 0"):
        model.set_params(categorical=["age"]).fit(coded, y)
    with pytest.raises(InputError, match="categorical names 'bed', which is not a column"):
        model.set_params(categorical=["bed"]).fit(coded, y)
    with pytest.raises(InputError, match="categorical must be 'from_dtype'"):
        model.set_params(categorical="ward").fit(coded, y)


@pytest.mark.slow
def test_lambda_is_chosen_from_a_ladder_with_erm():
    x, y, site = hospitals(40, strengths=(1.5, 0.7, 1.2))
    model = wri.WRIBoostingClassifier(**QUICK)
    model.fit(x, y, groups=site)
    assert model.penalty_weights_.tolist() == [0, 1, 5]
    assert model.candidate_losses_.shape == (3, 3)
    assert "3 candidates were measured" in model.selection_
    # nothing is flagged among so few rows: the smallest mean, not a preset's λ
    assert "told" not in model.selection_
    best = model.candidate_losses_.mean(1).argmin()
    assert model.hyper_["penalty_weight"] == model.penalty_weights_[best]


def test_leaves_and_rounds_are_chosen_by_environments_left_out():
    x, y, site = joined(threshold_hospitals(150, 0))
    model = wri.ERMBoostingClassifier(
        rounds=60,
        candidates=[{"leaves": 2}, {"leaves": 4}],
        early_stopping=True,
        site_spread=False,
    ).fit(x, y, groups=site)
    assert model.spec_.trees.leaves == 4  # two leaves cannot see causes that act together
    assert model.n_steps_ <= 60
    assert model.trees_.boosters[0].current_iteration() == model.n_steps_
    with pytest.raises(InputError, match="leave rounds out of candidates"):
        model.set_params(candidates=[{"rounds": 5}, {"rounds": 9}]).fit(x, y, groups=site)
    with pytest.raises(InputError, match="unknown setting 'depth' in candidates; choose from rou"):
        model.set_params(candidates=[{"depth": 5}]).fit(x, y, groups=site)


@pytest.mark.slow
def test_results_do_not_depend_on_jobs_and_one_row_not_on_the_others():
    x, y, site = hospitals(40, strengths=(1.5, 0.7, 1.2))
    candidates = [{"leaves": 2}, {"leaves": 3}]
    one, two = (
        wri.WRIBoostingClassifier(**QUICK, n_jobs=jobs, candidates=candidates) for jobs in (1, 2)
    )
    one.fit(x, y, groups=site)
    two.fit(x, y, groups=site)
    np.testing.assert_array_equal(one.predict_proba(x), two.predict_proba(x))
    np.testing.assert_array_equal(one.candidate_losses_, two.candidate_losses_)
    np.testing.assert_array_equal(one.predict_proba(x[:1]), one.predict_proba(x)[:1])


@pytest.mark.slow
def test_a_new_site_gaps_and_a_stress_test():
    x, y, site = hospitals(100)
    table = pd.DataFrame(x, columns=["cause", "marker", "noise"])
    model = wri.WRIBoostingClassifier(rounds=30).fit(table, y, groups=site)
    assert model.left_out_ is not None
    found = model.score_new_site(table)
    assert "95 % interval" in found.meaning
    assert risk_gaps(model, table, y, site).meaning
    stress = stress_test({"trees": model}, table, y, site, columns=["cause"])
    losses = stress.table().set_index("relation")["loss"]
    assert losses["unchanged"] < 0.6 < losses["broken"] < losses["reversed"]


@pytest.mark.slow
def test_regressors_and_several_classes_with_weights_and_two_sites():
    x, _, site = hospitals(100)
    y = np.digitize(x[:, 0], (-0.7, 0.7))
    weights = np.where(y == 2, 0.0, 1.5)
    model = wri.VRExBoostingClassifier(**QUICK).fit(x, y, groups=site, sample_weight=weights)
    assert model.classes_.tolist() == [0, 1]  # rows without weight are not there
    assert model.score(x[y < 2], y[y < 2]) > 0.8
    model.fit(x, y, groups=site)
    assert model.predict_proba(x).shape == (400, 3)
    assert model.score(x, y) > 0.8
    two = np.isin(site, ["site 0", "site 1"])
    model = wri.WRIBoostingRegressor(**QUICK, penalty_weight="auto")
    model.fit(x[two], x[two, 0], groups=site[two])
    assert "needs at least three environments" in model.selection_
    assert model.score(x[two], x[two, 0]) > 0.5


def test_a_site_with_one_class_is_named_once():
    x, y, site = hospitals(50)
    with pytest.warns(UserWarning, match="holds a single class") as caught:
        wri.WRIBoostingClassifier(rounds=3).fit(x, y * (site != site[0]), groups=site)
    assert len(caught) == 1


def test_one_environment_is_plain_erm():
    x, y, _ = hospitals(50)
    with pytest.warns(UserWarning, match="trains plain ERM"):
        model = wri.WRIBoostingClassifier(**QUICK).fit(x, y)
    assert model.spec_.objective.name == "erm"
    assert len(model.trees_.boosters) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rounds": 0}, "rounds must be a whole number from 1"),
        ({"leaves": 1}, "leaves must be a whole number from 2"),
        ({"leaves": 2.5}, "leaves must be a whole number"),
        ({"least_rows": 0}, "least_rows must be a whole number from 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a number"),
        ({"l2": -1.0}, "l2 must be a number from 0"),
        ({"hyper": {"weight_decay": 0.1}}, "trees have no hyper-parameter 'weight_decay'"),
        ({"evidence_on": "phi"}, "evidence_on must be one of"),
        ({"options": {"density_on": "phi"}}, "densities of trees see the inputs"),
    ],
)
def test_settings_out_of_range_are_refused(given, said):
    x, y, site = hospitals(30)
    with pytest.raises(InputError, match=said):
        wri.WRIBoostingClassifier(**{**QUICK, **given}).fit(x, y, groups=site)


def test_without_lightgbm_the_error_says_how_to_get_it(monkeypatch):
    x, y, site = hospitals(30)
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match=r"weighted-risk-invariance\[boosting\]"):
        wri.ERMBoostingClassifier().fit(x, y, groups=site)
