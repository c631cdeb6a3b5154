"""General position: where environments rule out spurious features, and where they cannot."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
import torch

from wri.diagnosis import (
    WeightedMoments,
    empirical_moments,
    gaussian_moments,
    general_position,
    row_weights,
)
from wri.diagnosis.position import (
    EXACT,
    least_squares,
    smallest_singular_value,
    smallest_spurious_gap,
)
from wri.errors import InputError
from wri.paper.experiments.theorem1 import PARAMETERS
from wri.paper.simulations import LinearGaussian


def moments_of(weighting, d_inv, d_spu, k, seeds=(0,), **changed):
    drawn = [LinearGaussian.random(d_inv, d_spu, k, seed) for seed in seeds]
    values = {name: np.stack([getattr(one, name) for one in drawn]) for name in PARAMETERS}
    return gaussian_moments(noise_sd=1.0, weighting=weighting, **(values | changed))


def one(moments):
    return WeightedMoments(*(part[0] for part in moments))


def rows_of_m(moments, spurious, x, gamma):
    """M(x, γ) as the paper writes it, each pair in units of its E[α y²]."""
    second, cross, _ = moments.differences()
    return second[:, spurious][..., spurious] @ x + gamma[:, None] * 2 * cross[:, spurious]


def units(moments, spurious):
    sizes = (moments.second / moments.target[..., None, None]).mean((0, 1))
    return np.linalg.cholesky(sizes[spurious][:, spurious])


def smallest(moments, spurious, x, gamma):
    """M's smallest singular value in the units of the search."""
    root = units(moments, spurious)
    values = np.linalg.svd(rows_of_m(moments, spurious, x, gamma) @ np.linalg.inv(root).T)[1]
    return values.min() / np.linalg.norm(root.T @ x) / np.sqrt(len(moments.differences()[2]))


@pytest.mark.parametrize(("d_spu", "k"), [(1, 3), (2, 4), (2, 5), (3, 7)])
def test_the_value_is_the_singular_value_at_the_point_returned(d_spu, k):
    spurious = list(range(2, 2 + d_spu))
    moments = one(moments_of("ratio", 2, d_spu, k))
    value, x, gamma = smallest_singular_value(moments, spurious)
    assert np.linalg.norm(x) == pytest.approx(1)
    np.testing.assert_allclose(smallest(moments, spurious, x, gamma), value, rtol=1e-6, atol=1e-12)


def test_one_spurious_dimension_by_hand():
    """M is a column a + γ b: what is left of a off b."""
    moments = one(moments_of("density", 2, 1, 4))
    second, cross, _ = moments.differences()
    a, b = second[:, 2, 2], cross[:, 2]
    off = a - b * (a @ b) / (b @ b)
    expected = np.linalg.norm(off) / units(moments, [2])[0, 0] ** 2 / np.sqrt(6)
    assert smallest_singular_value(moments, [2])[0] == pytest.approx(expected)


def test_no_grid_point_lies_below_the_minimum():
    moments = one(moments_of("ratio", 2, 2, 5, seeds=(4,)))
    value, x, gamma = smallest_singular_value(moments, [2, 3])
    angle = np.arctan2(x[1], x[0])
    assert value > 1e-4
    around = [
        smallest(moments, [2, 3], np.array([np.cos(a), np.sin(a)]), np.array([g]))
        for a in np.append(np.linspace(0, np.pi, 31), angle)
        for g in np.append(np.linspace(-4, 4, 41), gamma)
    ]
    assert min(around) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("weighting", ["ratio", "density"])
def test_environments_that_do_not_differ_fail(weighting):
    random = LinearGaussian.random(2, 2, 5, seed=0)
    same = {name: np.repeat(getattr(random, name)[None, :1], 5, 1) for name in PARAMETERS[3:]}
    for changed in (same, same | {"invariant_mean": np.zeros((1, 5, 2))}):
        found = general_position(one(moments_of(weighting, 2, 2, 5, **changed)), [2, 3])
        assert found.singular_value < EXACT
        assert not found.holds
        assert not found.excludes_spurious
        assert "differ too little" in found.meaning


def test_a_feature_that_is_noise_everywhere_is_found():
    """A second spurious feature without slope, equally noisy: a predictor may use it."""
    random = LinearGaussian.random(2, 2, 6, seed=1)
    slope = random.spurious_slope * [1, 0]
    covariance = random.spurious_covariance * np.eye(2)
    covariance[:, 1, 1] = 1
    changed = {"spurious_slope": slope[None], "spurious_covariance": covariance[None]}
    for weighting in ("ratio", "density"):
        moments = one(moments_of(weighting, 2, 2, 6, seeds=(1,), **changed))
        found = general_position(moments, [2, 3])
        assert not found.holds
        assert found.spurious_gap < EXACT
        _, _, first, second = found.spurious_predictor
        assert abs(first) < 1e-6 * abs(second)
        assert general_position(moments, [2]).excludes_spurious


@pytest.mark.parametrize("d_spu", [1, 2, 3])
def test_ratio_weights_take_two_environments_a_dimension(d_spu):
    """M has k − 1 independent rows: full rank takes k − 1 ≥ 2 d_spu."""
    spurious = range(2, 2 + d_spu)
    fails = smallest_singular_value(moments_of("ratio", 2, d_spu, 2 * d_spu, range(20)), spurious)
    holds = smallest_singular_value(
        moments_of("ratio", 2, d_spu, 2 * d_spu + 1, range(20)), spurious
    )
    assert (fails[0] < EXACT).all()
    assert (holds[0] > 1e-6).all()


@pytest.mark.parametrize("d_spu", [1, 2, 4])
def test_ratio_weights_exclude_spurious_predictors_from_d_spu_plus_two(d_spu):
    spurious = range(2, 2 + d_spu)
    for k in range(2, d_spu + 4):
        found = smallest_spurious_gap(moments_of("ratio", 2, d_spu, k, range(10)), spurious)
        assert ((found[0] < EXACT) == (k < d_spu + 2)).all()


@pytest.mark.parametrize(("d_inv", "d_spu"), [(1, 1), (2, 1), (5, 1), (2, 2), (5, 2), (5, 3)])
def test_density_weights_exclude_them_once_pairs_outnumber_dimensions(d_inv, d_spu):
    spurious = range(d_inv, d_inv + d_spu)
    for k in range(2, 6):
        found = smallest_spurious_gap(moments_of("density", d_inv, d_spu, k, range(10)), spurious)
        assert ((found[0] < EXACT) == (comb(k, 2) <= d_inv + d_spu)).all()


def test_density_weights_break_the_theorem_with_three_environments():
    """Three gaps, linear in (w_inv, w_spu) once w_spu is divided out, and three unknowns."""
    moments = one(moments_of("density", 2, 1, 3))
    found = general_position(moments, [2])
    assert found.holds
    assert not found.excludes_spurious
    second, cross, _ = moments.differences()
    w = np.linalg.solve(np.column_stack([2 * second[:, :2, 2], second[:, 2, 2]]), 2 * cross[:, 2])
    assert abs(w[2]) > 1e-2
    np.testing.assert_allclose(found.spurious_predictor, w, rtol=1e-6)
    np.testing.assert_allclose(moments.gaps(w), 0, atol=1e-12)


def test_two_environments_are_enough_for_the_theorem_not_for_the_definition():
    moments = one(moments_of("ratio", 2, 1, 2))
    found = general_position(moments, [2])
    assert not found.holds
    assert np.abs(moments.gaps(found.spurious_predictor)).max() < EXACT
    assert abs(found.spurious_predictor[2]) > 1e-3


def test_a_free_gamma_for_every_pair_makes_every_m_singular():
    spurious = [2, 3]
    moments = one(moments_of("density", 2, 2, 7))
    assert general_position(moments, spurious).holds
    assert smallest_singular_value(moments, spurious, one_gamma=False)[0] < EXACT
    second, cross, _ = moments.differences()
    x = np.array([0.6, -0.8])
    gamma = -(x @ second[:, 2:, 2:] @ x) / (2 * cross[:, 2:] @ x)
    np.testing.assert_allclose(rows_of_m(moments, spurious, x, gamma) @ x, 0, atol=1e-12)


def test_values_do_not_depend_on_units():
    moments = one(moments_of("density", 2, 2, 5))
    change = np.diag([1e3, 1e-2, 1.0, 1.0])
    change[2:, 2:] = [[20.0, 3.0], [0.5, 0.1]]
    weight = np.exp(np.random.default_rng(0).normal(size=(5, 5)))
    weight = weight + weight.T  # each pair's weights in a unit of its own
    other = WeightedMoments(
        weight[..., None, None] * (change @ moments.second @ change.T),
        weight[..., None] * (moments.cross @ change.T) * 7,
        weight * moments.target * 49,
    )
    here, there = (general_position(m, [2, 3], starts=100) for m in (moments, other))
    assert there.singular_value == pytest.approx(here.singular_value, rel=1e-5)
    assert there.spurious_gap == pytest.approx(here.spurious_gap, rel=1e-5)


def test_rows_tell_what_their_distribution_tells():
    setting = LinearGaussian.random(2, 1, 4, seed=7)
    n, environments = 40_000, setting.sample(40_000, 0)
    x, y = (np.concatenate([getattr(e, name) for e in environments]) for name in ("x", "y"))
    log_densities = setting.log_invariant(torch.tensor(x)).numpy()
    environment = np.repeat(np.arange(4), n)
    weights = row_weights(log_densities, environment, "density")
    found = general_position(empirical_moments(x, y, environment, weights), [2], tolerance=0.02)
    exact = general_position(one(moments_of("density", 2, 1, 4, seeds=(7,))), [2])
    assert found.excludes_spurious
    assert "in general position, and differ enough" in found.meaning
    assert found.singular_value == pytest.approx(exact.singular_value, abs=0.05)
    assert found.spurious_gap == pytest.approx(exact.spurious_gap, abs=0.05)


def test_least_squares_descends_rosenbrocks_valley():
    def residuals(point):
        a, b = point[..., 0], point[..., 1]
        ones = np.ones_like(a)
        jacobian = np.stack([-20 * a, 10 * ones, -ones, 0 * ones], -1)
        return np.stack([10 * (b - a**2), 1 - a], -1), jacobian.reshape(*a.shape, 2, 2)

    start = np.array([[-1.2, 1.0], [3.0, -4.0], [0.0, 0.0]])
    point, squares = least_squares(residuals, start)
    np.testing.assert_allclose(point, 1, atol=1e-9)
    assert (squares < 1e-18).all()


def test_bad_input_is_named():
    moments = moments_of("ratio", 2, 2, 4)
    with pytest.raises(InputError, match="one set of environments"):
        general_position(moments, [2, 3])
    for spurious in ([], [4], [2, 2], [-1]):
        with pytest.raises(InputError, match="different columns from 0 to 3"):
            general_position(one(moments), spurious)
    alone = WeightedMoments(*(part[0, :1, :1] for part in moments))
    with pytest.raises(InputError, match="at least two"):
        general_position(alone, [2])
    double = np.array([0, 1, 2, 2])  # the last column is the third again
    copied = WeightedMoments(
        one(moments).second[..., double, :][..., double],
        one(moments).cross[..., double],
        one(moments).target,
    )
    with pytest.raises(InputError, match="constant or follows from the others"):
        general_position(copied, [2, 3])


@pytest.mark.parametrize("weighting", ["density", "overlap", "ratio"])
def test_rows_of_environments_that_do_not_differ_are_not_certified(weighting):
    setting = LinearGaussian.random(2, 1, 5, seed=0)
    n, same = 2_000, np.zeros(5, int)
    alike = replace(
        setting,
        spurious_slope=setting.spurious_slope[same],
        spurious_covariance=setting.spurious_covariance[same],
    )
    environment = np.repeat(np.arange(5), n)
    for seed in range(5):
        environments = alike.sample(n, seed)
        x = np.concatenate([e.x for e in environments])
        y = np.concatenate([e.y for e in environments])
        weights = row_weights(alike.log_invariant(torch.tensor(x)).numpy(), environment, weighting)
        moments = empirical_moments(x, y, environment, weights)
        found = general_position(moments, np.array([2]), starts=20, tolerance=5 / n**0.5)
        assert not found.excludes_spurious
        assert "differ too little" in found.meaning


def test_environments_are_whole_numbers():
    with pytest.raises(InputError, match="each number from 0 to 1"):
        row_weights(np.zeros((4, 2)), np.array([0.0, 0.0, 1.0, 1.0]))
    with pytest.raises(InputError, match="must be a table"):
        row_weights(np.zeros(4), np.array([0, 0, 1, 1]))


def test_results_show_themselves_as_sentences():
    moments = one(moments_of("ratio", 2, 1, 4))
    found = general_position(moments, [2])
    assert repr(found) == found.meaning
    assert repr(moments) == "Weighted moments of 4 environments and 3 columns."
