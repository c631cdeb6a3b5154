"""The linear Gaussian model: densities, moments, seeds."""

import numpy as np
import torch

from wri.paper.simulations import LinearGaussian


def test_linear_gaussian_densities_integrate_to_one():
    setting = LinearGaussian.random(d_inv=1, d_spu=1, environments=3, seed=0)
    axis = torch.linspace(-20, 20, 801, dtype=torch.float64)[:, None]
    line = torch.cat([axis, axis], 1)
    total = setting.log_invariant(line).exp().sum(0) * (axis[1] - axis[0])
    torch.testing.assert_close(total, torch.ones(3).double())


def test_linear_gaussian_moments_are_those_of_its_samples():
    setting = LinearGaussian.random(d_inv=3, d_spu=2, environments=2, seed=1)
    for e, environment in enumerate(setting.sample(200_000, seed=0)):
        mean, covariance = setting.joint_moments(e)
        np.testing.assert_allclose(environment.x.mean(0), mean, atol=0.05)
        np.testing.assert_allclose(np.cov(environment.x.T), covariance, atol=0.15)
        slope, *_ = np.linalg.lstsq(environment.x[:, :3], environment.y, rcond=None)
        np.testing.assert_allclose(slope, setting.weights, atol=0.02)


def test_a_seed_decides_the_sample():
    setting = LinearGaussian.random(2, 2, 3, seed=0)
    first, again, other = (setting.sample(20, seed)[1].x for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
