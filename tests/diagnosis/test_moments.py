"""Weighted moments: closed form, rows and the objective tell the same gaps."""

import numpy as np
import pytest
import torch

from wri.diagnosis import empirical_moments, gaussian_moments, row_weights
from wri.errors import InputError
from wri.objectives.weighted_risks import weighted_gaps
from wri.paper.simulations import LinearGaussian

PARAMETERS = (
    "weights",
    "noise_sd",
    "invariant_mean",
    "invariant_covariance",
    "spurious_slope",
    "spurious_covariance",
)


def closed_form(setting, weighting):
    return gaussian_moments(*(getattr(setting, name) for name in PARAMETERS), weighting=weighting)


@pytest.fixture
def setting():
    """Covariances close enough for ratios of densities to have a variance."""
    random = LinearGaussian.random(d_inv=2, d_spu=2, environments=3, seed=0)
    invariant = np.eye(2) * np.array([0.8, 1.0, 1.2])[:, None, None]
    invariant[1, 0, 1] = invariant[1, 1, 0] = 0.3
    return LinearGaussian(
        weights=random.weights,
        noise_sd=0.7,
        invariant_mean=random.invariant_mean / 2,
        invariant_covariance=invariant,
        spurious_slope=random.spurious_slope,
        spurious_covariance=random.spurious_covariance,
    )


def rows_of(setting, n, seed=0):
    environments = setting.sample(n, seed)
    x = np.concatenate([e.x for e in environments])
    y = np.concatenate([e.y for e in environments])
    log_densities = setting.log_invariant(torch.tensor(x)).numpy()
    return x, y, np.repeat(np.arange(len(environments)), n), log_densities


@pytest.mark.parametrize("weighting", ["density", "ratio", "uniform"])
@pytest.mark.slow
def test_closed_form_is_what_large_samples_tend_to(setting, weighting):
    n = 100_000
    x, y, environment, log_densities = rows_of(setting, n)
    weights = row_weights(log_densities, environment, weighting)
    expected, found = closed_form(setting, weighting), empirical_moments(x, y, environment, weights)
    columns = np.concatenate([x, y[:, None]], 1)
    for i in range(3):
        own = environment == i
        products = columns[own, :, None] * columns[own, None, :]  # [n, 5, 5]
        for j in range(3):
            terms = weights[own, j, None, None] * products
            error = 5 * terms.std(0) / np.sqrt(n)
            joint = np.block(
                [
                    [expected.second[i, j], expected.cross[i, j][:, None]],
                    [expected.cross[i, j][None], expected.target[i, j]],
                ]
            )
            assert (np.abs(terms.mean(0) - joint) < error).all()
            np.testing.assert_allclose(found.second[i, j], terms.mean(0)[:-1, :-1])
            np.testing.assert_allclose(found.cross[i, j], terms.mean(0)[:-1, -1])
            np.testing.assert_allclose(found.target[i, j], terms.mean(0)[-1, -1])


def test_density_weights_integrate_the_product_of_the_densities():
    setting = LinearGaussian.random(d_inv=1, d_spu=1, environments=2, seed=3)
    grid = np.linspace(-20, 20, 20_001)
    densities = setting.log_invariant(torch.tensor(grid[:, None])).exp().numpy()
    product = densities[:, 0] * densities[:, 1] * (grid[1] - grid[0])
    moments = closed_form(setting, "density")
    target = (product * (grid**2 + setting.noise_sd**2)).sum()  # |w| = 1
    slope, covariance = setting.spurious_slope[1, 0], setting.spurious_covariance[1, 0, 0]
    np.testing.assert_allclose(moments.second[0, 1, 0, 0], (product * grid**2).sum())
    np.testing.assert_allclose(moments.target[0, 1], target)
    np.testing.assert_allclose(moments.cross[1, 0, 1], slope * target)
    spurious = slope**2 * target + covariance * product.sum()
    np.testing.assert_allclose(moments.second[1, 0, 1, 1], spurious)


def test_leading_axes_are_settings_side_by_side(setting):
    other = LinearGaussian.random(2, 2, 3, seed=5)
    stacked = [np.stack([getattr(s, n) for s in (setting, other)]) for n in PARAMETERS[2:]]
    weights = np.stack([setting.weights, other.weights])
    together = gaussian_moments(weights, 1.0, *stacked)
    alone = closed_form(other, "density")
    for both, one in zip(together, alone, strict=True):
        np.testing.assert_allclose(both[1], one)


@pytest.mark.parametrize("weighting", ["density", "overlap", "ratio"])
def test_weights_give_a_pair_one_distribution(weighting):
    random = np.random.default_rng(0)
    points, k = 20, 3
    log_densities = random.normal(size=(points, k))
    weights = [
        row_weights(
            np.concatenate([log_densities] * k), np.repeat(np.roll(range(k), -i), points), weighting
        )[:points]
        for i in range(k)
    ]  # of the same points as rows of environment i
    for i in range(k):
        for j in range(k):
            np.testing.assert_allclose(
                weights[i][:, j] * np.exp(log_densities[:, i]),
                weights[j][:, i] * np.exp(log_densities[:, j]),
            )


@pytest.mark.parametrize("weighting", ["density", "overlap", "uniform"])
def test_gaps_of_rows_are_those_of_the_objective(setting, weighting):
    x, y, environment, log_densities = rows_of(setting, 50)
    w = np.array([0.4, -1.0, 0.3, 0.8])
    moments = empirical_moments(
        x, y, environment, row_weights(log_densities, environment, weighting)
    )
    losses = torch.tensor(((x @ w - y) ** 2).reshape(3, 50))
    logs = torch.tensor(log_densities.T.reshape(3, 3, 50).copy())
    gaps = weighted_gaps(losses, logs, weighting).gap.T.numpy()  # [i, j]
    first, other = np.triu_indices(3, 1)
    scale = (moments.target[first, other] + moments.target[other, first]) / 2
    np.testing.assert_allclose(moments.gaps(w) * scale, gaps[first, other], rtol=1e-9)


@pytest.mark.parametrize("weighting", ["density", "ratio"])
def test_predictors_without_spurious_features_have_no_gap(weighting):
    setting = LinearGaussian.random(d_inv=3, d_spu=2, environments=4, seed=1)
    moments = closed_form(setting, weighting)
    for invariant in (setting.weights, np.zeros(3), np.array([5.0, -2.0, 1.0])):
        w = np.concatenate([invariant, np.zeros(2)])
        np.testing.assert_allclose(moments.gaps(w), 0, atol=1e-12)
        w[-1] = 0.5
        assert np.abs(moments.gaps(w)).max() > 1e-2
    invariant = np.concatenate([setting.weights / 2, np.zeros(2)])
    assert np.abs(closed_form(setting, "uniform").gaps(invariant)).max() > 1e-2  # VREx's


@pytest.mark.parametrize("weighting", ["density", "ratio"])
def test_the_papers_decomposition_with_its_factor_put_right(weighting):
    setting = LinearGaussian.random(d_inv=3, d_spu=2, environments=4, seed=2)
    second, cross, target = moments = closed_form(setting, weighting)
    w_inv, w_spu = np.array([0.3, -0.8, 1.1]), np.array([0.7, -0.4])
    first, other = np.triu_indices(4, 1)
    gammas, misprinted = [], []
    for i, j, gap in zip(first, other, moments.gaps(np.append(w_inv, w_spu)), strict=True):
        gamma = w_inv @ cross[i, j, :3] / target[i, j] - 1
        quadratic = (second[i, j] - second[j, i])[3:, 3:]
        slope = 2 * (cross[i, j] - cross[j, i])[3:]  # the paper's μ
        value = w_spu @ quadratic @ w_spu + gamma * slope @ w_spu
        np.testing.assert_allclose(gap * target[i, j], value, rtol=1e-10)
        gammas.append(gamma)
        misprinted.append(2 * w_inv @ cross[i, j, :3] - 1)
    assert not np.allclose(gammas, misprinted, rtol=0.1)
    assert (np.ptp(gammas) < 1e-12) == (weighting == "ratio")


def test_bad_input_is_named():
    good = [
        np.ones(2),
        1.0,
        np.ones((3, 2)),
        np.ones((3, 2, 2)),
        np.ones((3, 1)),
        np.ones((3, 1, 1)),
    ]
    with pytest.raises(InputError, match="invariant_mean"):
        gaussian_moments(*good[:2], np.ones((3, 3)), *good[3:])
    with pytest.raises(InputError, match="spurious_covariance"):
        gaussian_moments(*good[:5], np.ones((2, 1, 1)))
    with pytest.raises(InputError, match="weighting must be one of density, ratio, uniform"):
        gaussian_moments(*good, weighting="overlap")
    rows, environment = np.ones((4, 2)), np.array([0, 0, 1, 1])
    with pytest.raises(InputError, match="x must have"):
        empirical_moments(rows[:3], np.ones(4), environment, rows)
    with pytest.raises(InputError, match="y must have"):
        empirical_moments(rows, np.ones(3), environment, rows)
    with pytest.raises(InputError, match="each number from 0 to 1"):
        empirical_moments(rows, np.ones(4), environment + 1, rows)
    with pytest.raises(InputError, match="each number from 0 to 2"):
        row_weights(np.ones((4, 3)), environment)
    with pytest.raises(InputError, match="weighting must be one of"):
        row_weights(rows, environment, "published")


def test_environments_without_overlap_are_named():
    setting = LinearGaussian.random(2, 1, 3, seed=0)
    mean = setting.invariant_mean.copy()
    mean[2] += 1000
    far = [getattr(setting, name) for name in PARAMETERS]
    far[2] = mean
    with pytest.raises(InputError, match="environments 1 and 3 have no weight in common"):
        gaussian_moments(*far).gaps(np.ones(3))
