"""How much of a penalty: λ chosen by environments left out, and pairs without overlap."""

import numpy as np
import pytest
from hospitals import hospitals
from scipy.stats import norm

import wri
from wri.errors import InputError
from wri.estimators.choice import choose_candidate, pick
from wri.estimators.specs import LADDER, make_specs
from wri.estimators.warn import overlap_by_means

QUICK = {"steps": 60}
LOSSES = np.array(  # candidates × left-out environments
    [
        [1.00, 1.00, 1.00, 2.00],  # least on average
        [1.02, 0.98, 1.30, 1.90],  # 0.05 above, standard error 0.089
        [1.30, 1.30, 1.30, 1.60],  # 0.125 above, standard error 0.175
        [1.60, 1.60, 1.60, 1.70],  # least at the worst, but 0.375 above with 0.225
    ]
)


def test_rules_by_hand():
    weights = [0.0, 1.0, 3.0, 10.0]
    assert pick(LOSSES, weights, "average") == 0
    assert pick(LOSSES, weights, "worst") == 2
    assert pick(LOSSES, weights, "insured") == 2
    assert pick(LOSSES[[0, 1, 3]], [0.0, 1.0, 10.0], "insured") == 1
    assert pick(LOSSES, weights, "affordable") == 0  # 0.05 is 4 % of 1.25
    assert pick(LOSSES + 5, weights, "affordable") == 1  # and 0.8 % of 6.25
    # without λ, or with one λ for all, only the mean is left to go by
    assert pick(LOSSES, [None] * 4, "insured") == 0
    assert pick(LOSSES[::-1], [3.0] * 4, "insured") == 3


@pytest.mark.parametrize("rule", ["average", "worst", "insured"])
def test_a_candidate_that_diverged_is_never_taken(rule):
    losses = LOSSES.copy()
    losses[2:, 1] = np.nan
    assert pick(losses, [0.0, 1.0, 3.0, 10.0], rule) < 2
    with pytest.raises(InputError, match="diverged for every candidate"):
        pick(np.full((2, 3), np.inf), [0.0, 1.0], rule)


def test_the_sentence_says_what_it_costs():
    sentence = choose_candidate(LOSSES, [0.0, 1.0, 3.0, 10.0], "insured").sentence
    assert sentence.startswith("penalty_weight 3 of 4 candidates")
    assert "0.12 above it, standard error 0.17" in sentence
    assert "without a penalty (ERM) 1.25 and 2, so on average the penalty costs 10.0%" in sentence


def test_the_sentence_says_that_the_ladder_ends():
    weights = [0.0, 1.0, 3.0, 10.0]
    edge = "no larger penalty weight was tried"
    assert edge not in choose_candidate(LOSSES, weights, "insured").sentence
    assert edge in choose_candidate(LOSSES[:3], weights[:3], "insured").sentence
    assert edge not in choose_candidate(LOSSES[:1], [0.0], "insured").sentence
    assert edge not in choose_candidate(LOSSES, [None] * 4, "insured").sentence


@pytest.fixture(scope="module")
def searched():
    X, y, site = hospitals(60)
    return wri.WRIClassifier(penalty_weight="auto", choose="insured", **QUICK).fit(X, y, site)


def test_auto_trains_what_the_chosen_weight_trains(searched, tmp_path):
    X, y, site = hospitals(60)
    np.testing.assert_allclose(searched.penalty_weights_, 3 * np.array(LADDER))
    assert searched.candidate_losses_.shape == (len(LADDER), 4)
    chosen = pick(searched.candidate_losses_, searched.penalty_weights_, "insured")
    weight = searched.penalty_weights_[chosen]
    assert searched.hyper_["penalty_weight"] == searched.spec_.hyper["penalty_weight"] == weight
    fixed = wri.WRIClassifier(penalty_weight=weight, **QUICK).fit(X, y, site)
    assert searched.spec_ == fixed.spec_
    np.testing.assert_array_equal(searched.predict_proba(X), fixed.predict_proba(X))
    searched.save(tmp_path / "model")
    loaded = wri.WRIClassifier.load(tmp_path / "model")
    assert loaded.get_params() == searched.get_params()
    assert loaded.selection_ == searched.selection_
    np.testing.assert_array_equal(loaded.penalty_weights_, searched.penalty_weights_)
    np.testing.assert_array_equal(loaded.candidate_losses_, searched.candidate_losses_)


def test_the_first_of_the_ladder_is_erm():
    X, y, site = hospitals(60)
    without = wri.WRIClassifier(penalty_weight=0.0).fit(X, y, site)
    erm = wri.ERMClassifier().fit(X, y, site)
    np.testing.assert_allclose(without.predict_proba(X), erm.predict_proba(X), atol=1e-3)


def test_what_is_chosen_by_is_what_a_stranger_to_the_environment_measures():
    X, y, site = hospitals(60)
    given = {"steps": 40, "weight_decay": 1e-2}
    searched = wri.VRExClassifier(penalty_weight="auto", **given).fit(X, y, site)
    known = site != "site 3"
    alone = wri.VRExClassifier(penalty_weight=30.0, **given).fit(X[known], y[known], site[known])
    probability = alone.predict_proba(X[~known])[np.arange(60), y[~known]]
    place = searched.penalty_weights_.tolist().index(30.0)
    assert searched.candidate_losses_[place, 3] == pytest.approx(-np.log(probability).mean())


def test_more_jobs_choose_the_same(searched):
    X, y, site = hospitals(60)
    again = wri.WRIClassifier(penalty_weight="auto", choose="insured", n_jobs=2, **QUICK)
    again.fit(X, y, site)
    np.testing.assert_allclose(again.candidate_losses_, searched.candidate_losses_, rtol=1e-6)
    assert again.spec_ == searched.spec_


def test_with_two_environments_nothing_is_left_out():
    X, y, site = hospitals(60, strengths=(1, 0.5))
    model = wri.VRExClassifier(**QUICK).fit(X, y, site)
    assert model.hyper_["penalty_weight"] == 30
    assert "'auto' needs at least three environments, there are 2" in model.selection_
    assert "default hyper-parameters are used" in model.selection_
    assert model.penalty_weights_ is model.candidate_losses_ is None


@pytest.mark.parametrize("name", ["ERM", "GroupDRO", "Mixup", "MLDG"])
def test_objectives_without_a_penalty_weight_have_nothing_to_choose(name):
    (spec,) = make_specs(getattr(wri, f"{name}Classifier")())
    assert "penalty_weight" not in spec.hyper


def test_a_weight_in_hyper_is_not_chosen_again():
    (spec,) = make_specs(wri.WRIClassifier(hyper={"penalty_weight": 1.0}))
    assert spec.hyper["penalty_weight"] == 1.0


def test_by_default_the_weight_is_the_largest_that_is_affordable():
    X, y, site = hospitals(60)
    model = wri.WRIClassifier(**QUICK, site_spread=False).fit(X, y, site)
    chosen = pick(model.candidate_losses_, model.penalty_weights_, "affordable")
    assert model.hyper_["penalty_weight"] == model.penalty_weights_[chosen]
    assert "within 1% of the smallest" in model.selection_


def test_auto_crosses_candidates_that_leave_the_weight_open():
    candidates = [{"weight_decay": 0.1}, {"penalty_weight": 7.0}]
    specs = make_specs(wri.IRMClassifier(penalty_weight="auto", candidates=candidates))
    found = [spec.hyper["penalty_weight"] for spec in specs]
    np.testing.assert_allclose(found, [*(100 * np.array(LADDER)), 7.0])
    assert ["weight_decay" in spec.hyper for spec in specs] == [True] * len(LADDER) + [False]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"penalty_weight": "much"}, "penalty_weight must be a number or 'auto', not 'much'"),
        ({"choose": "best"}, "choose must be one of average, worst, insured, affordable"),
        ({"n_jobs": 1.5}, "n_jobs must be a whole number"),
    ],
)
def test_what_is_refused(given, words):
    X, y, site = hospitals(20)
    with pytest.raises(InputError, match=words):
        wri.WRIClassifier(**given).fit(X, y, site)


def apart(distance, sites=3, rows=150):
    """Sites whose season lies `distance` standard deviations apart, and an outcome of the cause."""
    random = np.random.default_rng(0)
    site = np.repeat(np.array(["spring", "summer", "winter"])[:sites], rows)
    x = random.normal(size=(len(site), 3))
    x[:, 2] += distance * np.repeat(np.arange(sites), rows)
    return x, (x[:, 0] + random.normal(size=len(x)) > 0).astype(int), site


def test_fit_says_where_sites_share_nothing():
    X, y, site = apart(8)
    names = "3 of 3 pairs .*spring and winter.*environment_overlap"
    with pytest.warns(UserWarning, match=names):
        model = wri.WRIClassifier(penalty_weight=None, **QUICK).fit(X, y, site)
    # and what they do not share hardly moves the predictor
    erm = wri.ERMClassifier(**QUICK).fit(X, y, site)
    options = {"overlap_power": 0.0}
    with pytest.warns(UserWarning, match="hardly overlap"):
        alike = wri.WRIClassifier(penalty_weight=None, options=options, **QUICK).fit(X, y, site)
    differences = [np.abs(m.coef_ - erm.coef_).max() for m in (model, alike)]
    assert differences[0] < 0.5 * differences[1]


@pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
def test_the_overlap_of_gaussians(distance):
    """Against the integral of 2 p q / (p + q), which is what overlap means."""
    random = np.random.default_rng(1)
    rows = [random.normal(size=(20000, 3)) + np.array([k * distance, 0, 0]) for k in range(2)]
    grid = np.linspace(-9, 12, 4001)
    first, second = norm.pdf(grid), norm.pdf(grid, distance)
    shared = np.trapezoid(2 * first * second / (first + second), grid)
    assert overlap_by_means(rows)[0, 1] == pytest.approx(shared, abs=0.02)
    assert overlap_by_means([own[:2] for own in rows]) is None


def test_nothing_is_said_where_sites_overlap(recwarn):
    X, y, site = apart(1)
    wri.WRIClassifier(**QUICK).fit(X, y, site)
    assert not [each for each in recwarn if "share" in str(each.message)]
