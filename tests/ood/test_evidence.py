"""Evidence: a density that decays, and thresholds that keep their promise."""

import numpy as np
import pytest

from wri.densities import Mixture
from wri.errors import InputError
from wri.ood import Densities, Evidence, combine, common_scaling
from wri.ood import evidence as evidence_module
from wri.ood.evidence import ScoreTail
from wri.rows import Scaling


def gaussians(n, means, seed, width=2):
    random = np.random.default_rng(seed)
    return [random.normal(mean, 1, (n, width)) for mean in means]


def test_the_log_density_of_gaussians():
    evidence = Evidence.fit(gaussians(20_000, [0, 4], 0), gaussians(500, [0, 4], 1))
    points = np.array([[0.0, 0.0], [4.0, 4.0], [2.0, 2.0], [-1.0, 1.0]])
    squares = np.stack([((points - mean) ** 2).sum(1) for mean in (0, 4)], axis=1)
    expected = -squares / 2 - np.log(2 * np.pi)
    assert np.allclose(evidence.score(points), np.logaddexp(*expected.T) - np.log(2), atol=0.1)
    each = evidence.score_environments(points)
    assert np.allclose(each[expected > -6], expected[expected > -6], atol=0.1)
    assert evidence.nearest(points).tolist()[:2] == [0, 1]


def test_the_unit_of_the_representation_shifts_all_scores_alike():
    fitted, held_out = gaussians(500, [0, 1], 0), gaussians(200, [0, 1], 1)
    plain = Evidence.fit(fitted, held_out)
    scaled = Evidence.fit([10 * rows for rows in fitted], [10 * rows for rows in held_out])
    points = gaussians(50, [0], 2)[0]
    assert np.allclose(scaled.score(10 * points), plain.score(points) - 2 * np.log(10))
    assert (scaled.verdict(10 * points) == plain.verdict(points)).all()


@pytest.mark.parametrize("n", [50, 400])
@pytest.mark.slow
def test_new_rows_are_flagged_at_the_nominal_rates(n):
    """Over draws of the held-out rows; a single draw of 2·50 rows is off by a point or two."""
    flagged, outside = [], []
    for seed in range(15):
        evidence = Evidence.fit(gaussians(4 * n, [0, 2], seed), gaussians(n, [0, 2], 100 + seed))
        verdicts = evidence.verdict(np.concatenate(gaussians(2000, [0, 2], 200 + seed)))
        flagged.append((verdicts != "supported").mean())
        outside.append((verdicts == "outside").mean())
    assert np.mean(flagged) == pytest.approx(0.05, abs=0.015)
    assert 0.0025 < np.mean(outside) < 0.01


def test_typicality_by_hand():
    # environments count alike: the one row of the second is half of the whole
    tail = ScoreTail.of([np.arange(40.0), np.array([20.0])])
    assert np.allclose(tail.share(np.array([20.0, 39.0, 50.0])), [0.5 * 21 / 40 + 0.5, 1, 1])
    # the nine lowest lie 9 + 8 + … + 1 = 45 below the tenth
    assert tail.share(np.array([9.0 - 45]))[0] == pytest.approx(0.5 * 10 / 40 / 2**9)


@pytest.mark.parametrize("share", [1e-4, 0.005, 0.03, 0.05, 0.5])
def test_thresholds_and_shares_are_inverse(share):
    tail = ScoreTail.of([np.random.default_rng(0).normal(size=200)])
    assert tail.share(np.array([tail.threshold(share)]))[0] == pytest.approx(share)


def test_a_constant_representation_supports_itself_alone():
    rows = [np.ones((30, 1)), np.ones((30, 1))]
    evidence = Evidence.fit(rows, rows)
    assert evidence.verdict(np.array([[3.0]])).tolist() == ["outside"]


def test_shares_out_of_order_are_refused():
    rows = gaussians(30, [0], 0)
    with pytest.raises(InputError, match="outside <= rare"):
        Evidence.fit(rows, rows, rare=0.01, outside=0.05)


def test_two_environments_as_one_score():
    densities = np.array([[0.2, 0.6], [0.5, 0.5]])
    assert np.allclose(np.exp(combine(np.log(densities), "mean")), [0.4, 0.5])
    assert np.allclose(np.exp(combine(np.log(densities), "maximum")), [0.6, 0.5])
    far = np.array([[-1000.0, -5000.0]])
    assert np.allclose(combine(far, "mean"), -1000 - np.log(2))


def test_rows_are_scored_alike_in_chunks_and_alone(monkeypatch):
    densities = Densities.fit(gaussians(300, [0, 2], 0), Mixture(3))
    points = gaussians(7, [1], 1)[0]
    alone = np.concatenate([densities.logs(points[n : n + 1]) for n in range(7)])
    monkeypatch.setattr(evidence_module, "NUMBERS_AT_ONCE", 3 * 2 * 3 * 2)  # three rows
    assert np.allclose(densities.logs(points), alone, rtol=1e-12)


@pytest.mark.parametrize("units", [lambda rows: Scaling.of(np.concatenate(rows)), common_scaling])
def test_units_shift_the_log_density_by_their_volume(units):
    """A density per thousandth of a unit in two dimensions is a millionth as large."""
    fitted = gaussians(400, [0, 3], 0)
    points = gaussians(20, [1], 1)[0]
    plain = Densities.fit(fitted, Mixture(2), units(fitted)).logs(points)
    large = [1000 * rows for rows in fitted]
    scaled = Densities.fit(large, Mixture(2), units(large)).logs(1000 * points)
    assert np.allclose(scaled, plain - 2 * np.log(1000))


def test_a_given_mixture_is_fitted_to_all_rows_and_the_small_one_to_a_sample(monkeypatch):
    rows, point = gaussians(400, [0, 3], 0), np.zeros((1, 2))
    for form, is_same in ((Mixture(1), True), (None, False)):
        monkeypatch.setattr(evidence_module, "MOST_ROWS", 8192)
        before = Densities.fit(rows, form).logs(point)
        monkeypatch.setattr(evidence_module, "MOST_ROWS", 50)
        assert np.array_equal(Densities.fit(rows, form).logs(point), before) == is_same


def test_common_units_keep_the_proportions_of_columns():
    fitted = [np.array([[0.0, 0.0], [2.0, 6.0]])] * 2  # variances 1 and 9
    units = common_scaling(fitted)
    assert units.mean.tolist() == [0, 0]
    assert units.scale == pytest.approx([5**0.5, 5**0.5])
