"""What fit and predict promise, on hospitals whose marker misleads at the next one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

import wri
from hospitals import hospitals, new_hospital
from wri.datasets.hospitals import TRAINING
from wri.densities import Gaussian
from wri.errors import InputError
from wri.estimators.inputs import hold_out

QUICK = {"steps": 30, "penalty_weight": None, "site_spread": False}
FEATURES = ["cause", "marker", "noise"]


def table(n=60, seed=0):
    X, y, site = hospitals(n, seed)
    return pd.DataFrame(X, columns=FEATURES).assign(site=site), y


@pytest.fixture(scope="module")
def trained():
    X, y, site = hospitals(500)
    return wri.WRIClassifier(steps=300, penalty_weight=None, site_spread=False).fit(
        X, y, groups=site
    )


def test_wri_holds_at_the_new_hospital_and_erm_does_not(trained):
    X, y, site = hospitals(500)
    erm = wri.ERMClassifier(steps=300, site_spread=False).fit(X, y, groups=site)
    assert erm.score(X, y) > 0.85
    assert erm.score(*new_hospital()) < 0.5
    assert trained.score(*new_hospital()) > erm.score(*new_hospital()) + 0.15


def test_verdicts_heed_the_cause_and_not_the_marker(trained):
    usual, _, _ = hospitals(1000, seed=8)
    assert 0.03 < (trained.verdict(usual) != "supported").mean() < 0.08
    assert (trained.verdict(usual) == "outside").mean() < 0.015
    shifted, _, _ = hospitals(1000, seed=9, strengths=(-1,) * 4)
    assert (trained.verdict(shifted) != "supported").mean() < 0.1
    assert (trained.verdict(shifted) == "outside").mean() < 0.02
    far = TRAINING[1].sample(1000, 7, smoking=np.linspace(5, 8, 1000)).x
    assert (trained.verdict(far) == "outside").mean() > 0.9


def test_scores_mix_the_environments_and_verdicts_follow_typicality(trained):
    X, _, _ = hospitals(100, seed=3)
    each, mixed = trained.score_environments(X), trained.score_samples(X)
    assert np.allclose(np.exp(mixed), np.exp(each).mean(1))
    assert (trained.nearest_environment(X) == trained.environments_[each.argmax(1)]).all()
    typicality, verdict = trained.typicality(X), trained.verdict(X)
    assert typicality[verdict == "outside"].max(initial=0) <= 0.5 + 1e-9
    assert typicality[verdict == "rare"].max() <= 5 + 1e-9
    assert typicality[verdict == "supported"].min() >= 5 - 1e-9


@pytest.mark.parametrize("options", [{}, {"early_stopping": True}, {"batch_size": 16}])
def test_a_refit_repeats_itself(options):
    X, y, site = hospitals(60)
    model = wri.VRExClassifier(**QUICK, **options)
    first = model.fit(X, y, groups=site).predict_proba(X)
    assert np.array_equal(model.fit(X, y, groups=site).predict_proba(X), first)
    other = model.set_params(random_state=1).fit(X, y, groups=site).predict_proba(X)
    assert not np.array_equal(other, first)


def test_column_and_groups_are_the_same_environments():
    rows, y = table()
    by_column = wri.IRMClassifier(environment="site", **QUICK).fit(rows, y)
    by_groups = wri.IRMClassifier(**QUICK).fit(rows[FEATURES], y, groups=rows["site"])
    assert by_column.environments_.tolist() == [f"site {e}" for e in range(4)]
    assert by_column.feature_names_in_.tolist() == FEATURES
    assert by_column.n_features_in_ == 3
    expected = by_groups.predict_proba(rows[FEATURES])
    assert np.array_equal(by_column.predict_proba(rows), expected)
    assert np.array_equal(by_column.predict_proba(rows[FEATURES]), expected)


def test_labels_of_any_kind_and_more_than_two_classes():
    X, y, site = hospitals(60)
    words = np.array(["no", "yes", "never"])[y + (X[:, 2] > 1)]
    model = wri.GroupDROClassifier(**QUICK).fit(X, words, groups=[(s, 1) for s in site])
    assert model.classes_.tolist() == ["never", "no", "yes"]
    assert model.environments_.tolist() == [(f"site {e}", 1) for e in range(4)]
    assert np.allclose(model.predict_proba(X).sum(1), 1)
    assert set(model.predict(X)) <= set(words)


def test_one_environment_is_erm_and_says_so():
    X, y, _ = hospitals(60)
    with pytest.warns(UserWarning, match="trains plain ERM"):
        alone = wri.WRIClassifier(**QUICK | {"penalty_weight": 5}).fit(X, y)
    erm = wri.ERMClassifier(**QUICK).fit(X, y)
    assert alone.n_environments_ == 1
    assert np.array_equal(alone.predict_proba(X), erm.predict_proba(X))


@pytest.mark.slow
def test_candidates_are_chosen_where_an_environment_is_left_out():
    X, y, site = hospitals(150, strengths=(1.5, 0.7, -1.0, 1.2))
    weights = [0.0, 1000.0]  # 0 is ERM, which trusts the marker
    candidates = [{"penalty_weight": weight} for weight in weights]
    given = {"steps": 150, "weight_decay": 1e-2}
    model = wri.VRExClassifier(candidates=candidates, **given).fit(X, y, groups=site)
    assert model.hyper_["penalty_weight"] == 1000
    assert model.candidate_losses_.shape == (2, 4)
    assert "left out" in model.selection_
    fixed = wri.VRExClassifier(penalty_weight=1000.0, **given).fit(X, y, groups=site)
    assert np.array_equal(model.predict_proba(X), fixed.predict_proba(X))
    # what is chosen by is what somebody who never saw the environment measures
    known = site != "site 3"
    fixed.fit(X[known], y[known], groups=site[known])
    loss = log_loss(y[~known], fixed.predict_proba(X[~known]))
    assert model.candidate_losses_[1, 3] == pytest.approx(loss, rel=1e-4)


def test_with_two_environments_candidates_are_not_chosen():
    X, y, site = hospitals(60, strengths=(1, 0.5))
    model = wri.IRMClassifier(candidates=[{"penalty_weight": 1e6}, {"penalty_weight": 0}], **QUICK)
    with pytest.warns(UserWarning, match="three environments"):
        model.fit(X, y, groups=site)
    default = wri.IRMClassifier(**QUICK).fit(X, y, groups=site)
    assert model.hyper_ == default.hyper_
    assert "three environments" in model.selection_
    assert model.candidate_losses_ is None
    only = wri.IRMClassifier(candidates=[{"penalty_weight": 7}], **QUICK).fit(X, y, groups=site)
    assert only.hyper_["penalty_weight"] == 7  # there is nothing to choose


def test_early_stopping_ends_where_the_loss_is_least():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 5)), random.integers(0, 2, 200)  # nothing to learn
    model = wri.ERMClassifier(steps=100, early_stopping=True, learning_rate=0.05)
    assert model.fit(X, y, groups=np.arange(200) % 4).n_steps_ < 50
    assert model.fit(X, y).n_steps_ < 50
    assert "held-out rows" in model.selection_


def regression(n=80, seed=0):
    X, _, site = hospitals(n, seed)
    return X, 3 * X[:, 0] + 7 + np.random.default_rng(seed).normal(size=len(X)), site


@pytest.mark.parametrize("name", ["ERM", "VREx", "WRI"])
@pytest.mark.slow
def test_the_unit_of_y_does_not_matter(name):
    X, y, site = regression()
    model = getattr(wri, name + "Regressor")(steps=100)
    plain = model.fit(X, y, groups=site).predict(X)
    scaled = model.fit(X, 1000 * y, groups=site).predict(X)
    assert np.allclose(scaled, 1000 * plain, rtol=1e-3, atol=1)
    assert np.corrcoef(plain, y)[0, 1] > 0.9


def test_the_units_of_x_do_not_matter():
    X, y, site = hospitals(60)
    model = wri.CORALClassifier(**QUICK)
    plain = model.fit(X, y, groups=site).predict_proba(X)
    units = np.array([1024.0, 1 / 64, 4.0])
    assert np.allclose(model.fit(X * units, y, groups=site).predict_proba(X * units), plain)


def test_changed_columns_are_refused():
    rows, y = table()
    model = wri.ERMClassifier(environment="site", **QUICK).fit(rows, y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(rows[["marker", "cause", "noise"]])
    with pytest.raises(ValueError, match="age"):
        model.predict(rows.rename(columns={"noise": "age"}))


def test_bad_input_is_named():
    rows, y = table()
    model = wri.VRExClassifier(environment="site", **QUICK)
    broken = rows.copy()
    broken.loc[5, "marker"] = np.nan
    with pytest.raises(InputError, match="NaN: row 5, column 'marker'"):
        model.fit(broken, y)
    with pytest.raises(InputError, match="no column 'site'"):
        model.fit(rows[FEATURES], y)
    with pytest.raises(InputError, match="row 0"):
        model.fit(rows.assign(site=[None, *rows["site"][1:]]), y)
    with pytest.raises(InputError, match="different environments"):
        model.fit(rows, y, groups=np.arange(len(y)) % 4)
    with pytest.raises(InputError, match="'alone' has 1 row"):
        model.fit(rows.assign(site=["alone", *rows["site"][1:]]), y)
    with pytest.raises(InputError, match="unknown hyper-parameter 'penalty_weight'"):
        wri.ERMClassifier(penalty_weight=1).fit(rows[FEATURES], y)
    with pytest.raises(InputError, match="evidence_on"):
        model.set_params(evidence_on="y").fit(rows, y)
    with pytest.warns(UserWarning, match="'site 1' holds a single class"):
        wri.ERMClassifier(environment="site", **QUICK).fit(rows, y * (rows["site"] != "site 1"))


@pytest.mark.parametrize("on", ["outputs", "phi", "x"])
def test_evidence_falls_away_from_all_rows(on):
    X, y, site = hospitals(60)
    model = wri.ERMClassifier(steps=100, evidence_on=on).fit(X, y, groups=site)
    far = np.array([[1.0, 1.0, 0.0]]) * np.array([[10.0], [100.0], [1000.0]])
    scores = model.score_samples(far)
    assert scores[0] > scores[1] > scores[2]
    assert model.verdict(far)[2] == "outside"
    assert model.n_held_out_ == 4 * 12


LEARNED = {
    "options": {"weighting": "density", "density": Gaussian()},
    "hyper": {"density_batch_size": 500},
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("ERMClassifier", {}),
        ("VRExClassifier", {}),
        ("GroupDROClassifier", {}),
        ("IRMRegressor", {}),
        ("MLDGClassifier", {}),
        ("WRIClassifier", LEARNED),
        ("WRIClassifier", {"penalty_weight": 3.0}),
        ("WRIClassifier", {"penalty_weight": 3.0, "hidden": (4,)}),
        ("WRIRegressor", {"penalty_weight": 3.0}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_rows_count_by_their_weights(name, parameters):
    """Weight two is coming twice, weight zero is not being there, for held-out rows as well."""
    X, y, site = hospitals(60)
    times = np.random.default_rng(0).integers(0, 3, len(y))
    where = np.repeat(np.arange(len(y)), times)
    common = {"steps": 30, "learning_rate": 1e-3, "site_spread": False}
    model = getattr(wri, name)(**common, **parameters)
    first = clone(model).fit(X, y, site, sample_weight=times)
    second = clone(model).fit(X[where], y[where], site[where])
    assert np.allclose(first._outputs(X), second._outputs(X), atol=1e-6)
    unweighted = clone(model).fit(X, y, site)
    assert not np.allclose(first._outputs(X), unweighted._outputs(X), atol=1e-5)


def test_an_environment_without_weight_is_not_there():
    X, y, site = hospitals(60)
    there = site != "site 1"
    first = wri.ERMClassifier(**QUICK).fit(X, y, site, sample_weight=there.astype(float))
    second = wri.ERMClassifier(**QUICK).fit(X[there], y[there], site[there])
    assert first.environments_.tolist() == ["site 0", "site 2", "site 3"]
    assert np.allclose(first.predict_proba(X), second.predict_proba(X))


def test_rows_that_are_alike_stand_on_one_side():
    X = np.repeat(np.random.default_rng(0).normal(size=(60, 2)), 3, axis=0)
    rows = hold_out([np.arange(90), np.arange(90, 180)], X, np.zeros(180), None, 0.2, seed=0)
    for fitted, held_out in zip(*rows, strict=True):
        assert len(held_out) == 18
        assert not set(map(tuple, X[fitted])) & set(map(tuple, X[held_out]))


def test_heavy_rows_do_not_decide_how_many_are_held_out():
    random = np.random.default_rng(0)
    X, weights = random.normal(size=(500, 2)), random.pareto(0.5, 500) + 1e-3
    y = random.integers(2, size=500)
    for seed in range(10):
        (held,) = hold_out([np.arange(500)], X, y, weights, 0.2, seed).held_out
        assert len(held) <= 150
        assert weights[held].sum() < 0.5 * weights.sum()


def test_a_few_rows_are_not_worth_holding_out():
    X, y, site = hospitals(40)
    model = wri.ERMClassifier(validation_fraction=0.02, **QUICK).fit(X, y, groups=site)
    assert model.n_held_out_ == 0
    assert set(model.verdict(X)) <= {"supported", "rare", "outside"}


def test_weights_that_sum_to_one_are_hardly_counts():
    X, y, site = hospitals(40)
    with pytest.warns(UserWarning, match="sums to 1 for 160 rows.*Multiply the weights by 160"):
        wri.ERMClassifier(**QUICK).fit(X, y, site, sample_weight=np.full(160, 1 / 160))


@pytest.mark.parametrize("name", ["IRM", "VREx", "CORAL", "WRI"])
@pytest.mark.slow
def test_every_penalty_changes_the_default_predictor(name):
    X, y, site = hospitals(60)
    kind = getattr(wri, f"{name}Classifier")
    first, second = (kind(steps=40, penalty_weight=w).fit(X, y, site) for w in (0.0, 100.0))
    assert np.abs(first.predict_proba(X) - second.predict_proba(X)).max() > 0.01


def test_coral_needs_a_hidden_layer():
    X, y, site = hospitals(40)
    with pytest.raises(InputError, match="coral aligns hidden layers"):
        wri.CORALClassifier(hidden=()).fit(X, y, groups=site)


def test_verbose_shows_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    X, y, site = hospitals(40)
    wri.ERMClassifier(steps=5, verbose=True).fit(X, y, groups=site)
    assert "Training" in capsys.readouterr().err


def test_wri_fits_where_no_class_is_common_to_all_sites():
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 3))
    y = np.concatenate([np.repeat([0, 1], 30), np.repeat([2, 3], 30)])
    x[:, 0] += y
    with pytest.warns(UserWarning, match="no class occurs in every environment"):
        model = wri.WRIClassifier(random_state=0).fit(x, y, np.repeat(["a", "b"], 60))
    assert model.score(x, y) > 0.4  # four classes


def make_columns(rows=300):
    """Columns of very different units, one of them constant."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 4)) * [1, 1000, 1e-3, 0] + [5, -200, 0, 7]
    return x, np.arange(rows) % 3


@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_of_a_classifier_are_log_odds_in_the_columns_units(classes):
    x, groups = make_columns()
    y = np.digitize(x[:, 0], [5.0] if classes == 2 else [4.5, 5.5])
    model = wri.WRIClassifier(steps=50).fit(x, y, groups=groups)
    assert model.coef_.shape == ((1, 4) if classes == 2 else (3, 4))
    scores = x @ model.coef_.T + model.intercept_
    logs = np.log(model.predict_proba(x))
    expected = logs[:, 1:] - logs[:, :1] if classes == 2 else logs - logs.mean(1, keepdims=True)
    np.testing.assert_allclose(scores, expected, atol=1e-9)


def test_coefficients_of_a_regressor_predict():
    x, groups = make_columns()
    model = wri.WRIRegressor(steps=50).fit(x, 3 * x[:, 0] + x[:, 1] / 100, groups=groups)
    assert model.coef_.shape == (4,)
    np.testing.assert_allclose(x @ model.coef_ + model.intercept_, model.predict(x), rtol=1e-9)


def test_a_network_has_no_coefficients():
    x, groups = make_columns()
    model = wri.ERMClassifier(hidden=(4, 3), steps=5).fit(x, x[:, 0] > 5, groups=groups)
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match="hidden layers of 4, 3 units"):
        model.intercept_  # noqa: B018
