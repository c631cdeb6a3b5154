"""How much of a penalty: λ chosen by environments left out, and pairs without overlap."""

import numpy as np
import pytest
from scipy.stats import norm

import wri
from hospitals import hospitals
from wri.errors import InputError
from wri.estimators.choice import CandidateLosses, describe, make_specs, pick
from wri.estimators.inputs import overlap_by_means
from wri.estimators.network import LADDER

QUICK = {"steps": 60}
WEIGHTS = (0.0, 1.0, 3.0, 10.0)
LOSSES = np.array(  # candidates × futures × left-out environments
    [
        [[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]],  # regret 0 and 100 %
        [[1.1, 1.1, 1.1, 1.1], [1.4, 1.4, 1.4, 1.4]],  # 10 and 40 %
        [[1.3, 1.3, 1.3, 1.3], [1.1, 1.1, 1.1, 1.1]],  # 30 and 10 %: the least worst
        [[1.6, 1.6, 1.6, 1.6], [1.0, 1.0, 1.0, 1.0]],  # 60 and 0 %
    ]
)


def losses_of(values=LOSSES, weights=WEIGHTS, flagged=("marker",), default=1.0, stressed=None):
    return CandidateLosses(
        losses=values,
        futures=("like", "unrelated"),
        weights=weights,
        default=default,
        flagged=flagged,
        stressed=stressed,
    )


def test_rules_by_hand():
    assert pick(losses_of(), "average") == 0
    assert pick(losses_of(), "regret") == 2
    # nothing to insure against: the preset's λ, or the smallest mean without it
    assert pick(losses_of(flagged=()), "regret") == 1
    assert pick(losses_of(LOSSES[:, :1], flagged=(), default=None), "regret") == 0
    assert pick(losses_of(LOSSES[::-1], [1.0] * 4, ()), "regret") == 3


def test_only_environments_without_which_columns_are_flagged_judge_the_stress():
    losses = LOSSES.copy()
    losses[:, 1, 1:] = losses[:, 0, 1:]  # nothing was flagged without three of the four
    assert pick(losses_of(losses), "regret") == 0  # the stress seems a quarter of what it is
    stressed = np.array([True, False, False, False])
    assert pick(losses_of(losses, stressed=stressed), "regret") == pick(losses_of(), "regret")
    sentence = describe(losses_of(losses, stressed=stressed), "regret", 2)
    assert "told nothing the penalty saves 45.0 % of ERM's loss (at one environment)" in sentence


@pytest.mark.parametrize("rule", ["average", "regret"])
def test_a_candidate_that_diverged_is_never_taken(rule):
    losses = LOSSES.copy()
    losses[2:, 1, 1] = np.nan
    assert pick(losses_of(losses), rule) < 2
    with pytest.raises(InputError, match="diverged for every candidate"):
        pick(losses_of(np.full((4, 2, 3), np.inf)), rule)


def test_the_sentence_says_what_it_costs_and_saves():
    sentence = describe(losses_of(), "regret", 2)
    assert sentence.startswith("penalty_weight 3: the least worst regret")
    assert "4 candidates were measured" in sentence
    assert "at sites like these the penalty costs 30.0 % of ERM's loss (standard error" in sentence
    assert "if marker told nothing the penalty saves 45.0 %" in sentence
    assert "largest that was tried" in describe(losses_of(), "regret", 3)


@pytest.fixture(scope="module")
def searched():
    X, y, site = hospitals(60)
    return wri.WRIClassifier(penalty_weight="auto", **QUICK).fit(X, y, site)


def test_auto_trains_what_the_chosen_weight_trains(searched, tmp_path):
    X, y, site = hospitals(60)
    np.testing.assert_allclose(searched.penalty_weights_, 1.6 * np.array(LADDER))
    assert searched.candidate_losses_.shape == (len(LADDER), 4)
    weight = searched.hyper_["penalty_weight"]
    assert weight == searched.spec_.hyper["penalty_weight"]
    assert weight in searched.penalty_weights_
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


@pytest.mark.slow
def test_more_jobs_choose_the_same(searched):
    X, y, site = hospitals(60)
    again = wri.WRIClassifier(penalty_weight="auto", n_jobs=2, **QUICK)
    again.fit(X, y, site)
    np.testing.assert_allclose(again.candidate_losses_, searched.candidate_losses_, rtol=1e-6)
    assert again.spec_ == searched.spec_


def test_with_two_environments_nothing_is_left_out():
    X, y, site = hospitals(60, strengths=(1, 0.5))
    model = wri.VRExClassifier(penalty_weight="auto", **QUICK).fit(X, y, site)
    assert model.hyper_["penalty_weight"] == 30
    assert "'auto' needs at least three environments, but there are 2" in model.selection_
    assert "default hyper-parameters are used" in model.selection_
    assert model.penalty_weights_ is model.candidate_losses_ is None


@pytest.mark.parametrize("name", ["ERM", "GroupDRO", "Mixup", "MLDG"])
def test_objectives_without_a_penalty_weight_have_nothing_to_choose(name):
    (spec,) = make_specs(getattr(wri, f"{name}Classifier")())
    assert "penalty_weight" not in spec.hyper


def test_a_weight_in_hyper_is_not_chosen_again():
    (spec,) = make_specs(wri.WRIClassifier(hyper={"penalty_weight": 1.0}))
    assert spec.hyper["penalty_weight"] == 1.0


def test_by_default_the_weight_is_the_presets_and_nothing_is_chosen():
    X, y, site = hospitals(60)
    model = wri.WRIClassifier(site_spread=False).fit(X, y, site)
    assert model.hyper_["penalty_weight"] == 1.6
    assert model.candidate_losses_ is None
    assert model.n_steps_ == 0


@pytest.mark.slow
def test_a_changing_marker_is_flagged_and_insured_against():
    X, y, site = hospitals(300, strengths=(1.8, 0.2, 1.2, 0.1))
    given = {"penalty_weight": "auto", "site_spread": False}
    two = wri.WRIClassifier(futures=("like", "unrelated"), **given).fit(X, y, site)
    three = wri.WRIClassifier(**given).fit(X, y, site)
    average = wri.WRIClassifier(choose="average", **given).fit(X, y, site)
    weights = [model.hyper_["penalty_weight"] for model in (average, two, three)]
    assert weights == sorted(weights)
    assert weights[0] < weights[2]
    assert "if column 1 told nothing" in two.selection_
    assert "told the opposite" not in two.selection_
    assert "if column 1 told the opposite the penalty saves" in three.selection_
    path = three.penalty_path_
    assert path.left_out.losses.shape == (len(LADDER), 3, 4)
    assert (np.diff(path.coefficients[:4, 0, 1]) < 0).all()  # of the marker, up to the preset's λ


@pytest.mark.slow
def test_the_path_holds_the_coefficients_of_every_penalty_weight():
    X, y, site = hospitals(60)
    model = wri.WRIClassifier().fit(X * 7, y, site)
    for weight, coefficients in zip(*model.penalty_path_[:2], strict=True):
        alone = wri.WRIClassifier(penalty_weight=weight, site_spread=False).fit(X * 7, y, site)
        np.testing.assert_allclose(coefficients, alone.coef_, atol=1e-6)
    ax = model.coef_path()
    assert len(ax.get_lines()) == 3 + 2  # columns, zero, the chosen λ
    with pytest.raises(AttributeError, match="no path of λ"):
        wri.WRIClassifier(**QUICK, site_spread=False).fit(X, y, site).coef_path()


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
        ({"choose": "best"}, "choose must be one of average, regret, not 'best'"),
        ({"futures": ("better",)}, "futures must be one of like, unrelated, reversed"),
        ({"n_jobs": 1.5}, "n_jobs must be a whole number"),
    ],
)
def test_what_is_refused(given, words):
    X, y, site = hospitals(20)
    with pytest.raises(InputError, match=words):
        wri.WRIClassifier(**given).fit(X, y, site)


def apart(distance, relevant=True, sites=3, rows=150):
    """Sites whose season lies `distance` standard deviations apart; it may tell of the outcome."""
    random = np.random.default_rng(0)
    site = np.repeat(np.array(["spring", "summer", "winter"])[:sites], rows)
    x = random.normal(size=(len(site), 3))
    strength = 0.3 + np.repeat(np.arange(sites), rows)
    y = x[:, 0] + (x[:, 2] if relevant else 0) + random.normal(size=len(x)) > 0
    x[:, 1] += strength * y  # a marker that changes
    x[:, 2] += distance * np.repeat(np.arange(sites), rows)
    return x, y.astype(int), site


def test_fit_says_where_sites_share_nothing():
    X, y, site = apart(8)
    names = "3 of 3 pairs .*spring and winter.*environment_overlap"
    with pytest.warns(UserWarning, match=names):
        model = wri.WRIClassifier(site_spread=False).fit(X, y, site)
    # and what they do not share hardly moves the predictor
    erm = wri.ERMClassifier(site_spread=False).fit(X, y, site)
    options = {"overlap_power": 0.0}
    with pytest.warns(UserWarning, match="hardly overlap"):
        alike = wri.WRIClassifier(options=options, site_spread=False).fit(X, y, site)
    differences = [np.abs(m.coef_ - erm.coef_).max() for m in (model, alike)]
    assert differences[0] < 0.5 * differences[1]


def test_a_column_that_tells_the_site_alone_does_not_stop_the_penalty():
    """It has no place in the weights: WRI acts as if it were not there."""
    X, y, site = apart(8, relevant=False)
    erm = wri.ERMClassifier(site_spread=False).fit(X, y, site)
    model = wri.WRIClassifier(site_spread=False).fit(X, y, site)
    without = wri.WRIClassifier(site_spread=False).fit(X[:, :2], y, site)
    assert model.coef_[0, 1] < 0.7 * erm.coef_[0, 1]
    np.testing.assert_allclose(model.coef_[0, :2], without.coef_[0], atol=0.15)


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
    wri.WRIClassifier(site_spread=False).fit(X, y, site)
    assert not [each for each in recwarn if "overlap" in str(each.message)]
