"""Areas and rates of scores, higher = more common."""

import numpy as np
import pytest

from wri.errors import InputError
from wri.ood import auroc, detection_rates, risk_coverage

COMMON, STRANGE = [1.0, 3.0, 4.0, 5.0, 5.0], [0.0, 2.0, 3.0, 3.0]


def by_pairs(common, strange):
    """P(common > strange) + ½·P(common = strange), pair by pair."""
    common, strange = np.array(common)[:, None], np.array(strange)
    return (common > strange).mean() + (common == strange).mean() / 2


def test_the_area_by_hand():
    # of 20 pairs: 1 beats one, 3 beats two and ties with two, 4, 5 and 5 beat all
    assert auroc(COMMON, STRANGE) == pytest.approx((1 + 2 + 1 + 3 * 4) / 20)
    assert auroc([2, 3], [0, 1]) == 1
    assert auroc([0, 1], [2, 3]) == 0
    assert auroc([7, 7], [7]) == 0.5


def test_the_rates_by_hand():
    # thresholds 0, 1, 2, 3, 4, 5 flag 0, 1, 1, 2, 3, 5 of five and 1, 1, 2, 4, 4, 4 of four
    assert np.allclose(
        detection_rates(COMMON, STRANGE, [0, 0.2, 0.4, 0.6, 1]), [0.25, 0.5, 1, 1, 1]
    )
    # within the tie at 3 half of it is flagged: one of the two strange, half of the one common
    assert np.allclose(detection_rates(COMMON, STRANGE, [0.3]), [0.75])


def test_scores_that_are_all_alike_flag_at_random():
    rates = [0.0, 0.2, 0.7, 1.0]
    assert np.allclose(detection_rates(np.ones(3), np.ones(5), rates), rates)


def tied_scores(seed):
    random = np.random.default_rng(seed)
    return random.integers(0, 12, 80).astype(float), random.integers(-3, 9, 50).astype(float)


@pytest.mark.parametrize("seed", range(3))
def test_the_area_counts_pairs_and_lies_under_the_rates(seed):
    common, strange = tied_scores(seed)
    assert auroc(common, strange) == pytest.approx(by_pairs(common, strange))
    assert auroc(common, strange) + auroc(strange, common) == pytest.approx(1)
    middles = (np.arange(80_000) + 0.5) / 80_000  # a whole number of them in each step of fpr
    rates = detection_rates(common, strange, middles)
    assert rates.mean() == pytest.approx(auroc(common, strange), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_only_the_order_of_the_scores_matters(seed):
    common, strange = tied_scores(seed)
    wanted = np.linspace(0, 1, 21)
    for mapped in (np.exp, np.arctan, lambda scores: 3 * scores - 7):
        assert auroc(mapped(common), mapped(strange)) == auroc(common, strange)
        rates = detection_rates(mapped(common), mapped(strange), wanted)
        assert np.array_equal(rates, detection_rates(common, strange, wanted))


def test_a_density_of_zero_is_the_lowest_score():
    assert auroc([-5.0, 2.0], [-np.inf, -np.inf]) == 1
    assert detection_rates([-np.inf, 2.0], [-np.inf], [0.25]) == [0.5]


def test_rates_never_fall():
    rates = detection_rates(*tied_scores(0), np.linspace(0, 1, 101))
    assert (np.diff(rates) >= 0).all()
    assert rates[-1] == 1


@pytest.mark.parametrize(
    ("common", "strange", "said"),
    [
        ([], [1.0], "no common scores"),
        ([1.0], [], "no strange scores"),
        ([1.0], [2.0, np.nan, np.nan], "strange scores hold NaN: row 1, 2 in all; drop"),
        ([[1.0]], [2.0], r"common scores must be a list, not of the shape \(1, 1\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(common, strange, said):
    with pytest.raises(InputError, match=said):
        auroc(common, strange)
    with pytest.raises(InputError, match=said):
        detection_rates(common, strange, [0.2])


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
def test_rates_are_shares(rate):
    with pytest.raises(InputError, match="shares from 0 to 1"):
        detection_rates([1.0], [0.0], [0.5, rate])


def test_risk_and_coverage_by_hand():
    # the two highest rows are tied: kept together, at half an error each
    curve = risk_coverage([5, 5, 3, 1], [0, 1, 0, 1])
    assert np.allclose(curve.coverage, [0.5, 0.75, 1])
    assert np.allclose(curve.risk, [1 / 2, 1 / 3, 1 / 2])
    assert curve.area == pytest.approx((1 / 2 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_the_risk_at_full_coverage_is_the_mean_loss_and_equal_scores_keep_it():
    random = np.random.default_rng(0)
    losses = random.random(100)
    assert risk_coverage(random.normal(size=100), losses).risk[-1] == pytest.approx(losses.mean())
    assert risk_coverage(np.zeros(100), losses).area == pytest.approx(losses.mean())


def test_no_score_beats_the_losses_themselves():
    random = np.random.default_rng(0)
    losses = random.random(50)
    best, worst = risk_coverage(-losses, losses).area, risk_coverage(losses, losses).area
    assert best < risk_coverage(random.normal(size=50), losses).area < worst


def test_scores_and_losses_must_be_equally_many():
    with pytest.raises(InputError, match="3 scores and 2 losses"):
        risk_coverage([1, 2, 3], [0, 1])
