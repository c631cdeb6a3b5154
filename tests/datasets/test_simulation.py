"""The multi-dimensional simulation: its parameters are as ordered, its densities exact."""

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from wri.datasets import Simulation, SimulationSetting, simulation
from wri.datasets.simulation import random_covariances, random_directions, towards
from wri.errors import InputError


def test_covariances_have_roots_in_the_given_range():
    matrices = random_covariances(50, 6, 0.5, 1.5, np.random.default_rng(0))
    roots = np.sqrt(np.linalg.eigvalsh(matrices))
    assert roots.min() > 0.5
    assert roots.max() < 1.5
    assert np.ptp(roots) > 0.9


def test_without_shifts_the_invariant_features_are_standard_normal_everywhere():
    drawn = Simulation.random(SimulationSetting(), 0)
    assert np.allclose(drawn.invariant_mean, 0)
    assert np.allclose(drawn.invariant_covariance, np.eye(10))
    assert np.allclose(np.linalg.norm(drawn.mechanism, axis=1), 1)


def test_parity_turns_means_towards_their_axis_and_keeps_their_length():
    random = np.random.default_rng(1)
    axes = random_directions(5, 10, random)
    means = random.normal(size=(4, 5, 10))
    turned = towards(means, axes, 70 / 90)
    assert np.allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(means, axis=-1))

    def angle(vectors):
        along = (vectors * axes).sum(-1) / np.linalg.norm(vectors, axis=-1)
        return np.arccos(np.abs(along)), along

    before, _ = angle(means)
    after, along = angle(turned)
    assert np.allclose(after, before * 70 / 90)
    assert (along > 0).all()
    flipped = towards(means, axes, 1.0)
    assert np.allclose(np.abs(flipped), np.abs(means))
    in_line = towards(axes[None], axes, 0.5)
    assert np.allclose(in_line, axes)


def test_training_and_test_lie_on_opposite_sides():
    narrow = Simulation.random(SimulationSetting(parity=1.0), 3)
    directions = narrow.spurious_mean / np.linalg.norm(narrow.spurious_mean, axis=-1, keepdims=True)
    assert ((directions[0] * directions[1]).sum(-1) > 0.99).all()
    assert ((directions[0] * directions[-1]).sum(-1) < -0.99).all()


@pytest.mark.slow
def test_no_class_prevails_and_equal_seeds_give_equal_data():
    setting = SimulationSetting(invariant_shift=0.3)
    _, environments = Simulation.balanced(setting, 500, seed=4)
    shares = np.array([np.bincount(e.y, minlength=5) for e in environments]) / 500
    assert shares.max() <= 0.3
    _, again = Simulation.balanced(setting, 500, seed=4)
    assert all(np.array_equal(a.x, b.x) for a, b in zip(environments, again, strict=True))
    _, other = Simulation.balanced(setting, 500, seed=5)
    assert not np.array_equal(environments[0].x, other[0].x)


def test_log_invariant_is_the_gaussians():
    drawn = Simulation.random(SimulationSetting(invariant_shift=0.3, covariance_shift=0.5), 6)
    x = torch.tensor(np.random.default_rng(0).normal(size=(7, 20)))
    values = drawn.log_invariant(x).numpy()
    for e in range(5):
        expected = multivariate_normal(
            drawn.invariant_mean[e], drawn.invariant_covariance[e]
        ).logpdf(x[:, :10].numpy())
        assert np.allclose(values[:, e], expected)


def test_label_probabilities_match_the_mechanism():
    drawn = Simulation.random(SimulationSetting(), 7)
    x = torch.tensor(np.random.default_rng(1).normal(size=(3, 20)))
    probability = drawn.invariant_probability(x).numpy()
    assert np.allclose(probability.sum(-1), 1)
    draws = 200_000
    noise = np.random.default_rng(2).normal(0, 0.5, (draws, 5))
    for row, expected in zip(x.numpy(), probability, strict=True):
        y = (drawn.mechanism @ row[:10] + noise).argmax(1)
        share = np.bincount(y, minlength=5) / draws
        assert np.abs(share - expected).max() < 5 * 0.5 / draws**0.5


def test_two_classes_are_a_probit():
    drawn = Simulation.random(SimulationSetting(classes=2), 8)
    x = torch.tensor(np.random.default_rng(1).normal(size=(5, 20)))
    ahead = x[:, :10].numpy() @ (drawn.mechanism[0] - drawn.mechanism[1])
    expected = norm.cdf(ahead / (0.5 * 2**0.5))
    assert np.allclose(drawn.invariant_probability(x)[:, 0].numpy(), expected, atol=1e-8)


@pytest.mark.slow
def test_joint_density_integrates_to_one():
    setting = SimulationSetting(
        invariant_shift=0.3, covariance_shift=0.5, environments=2, classes=3, d_inv=1, d_spu=1
    )
    drawn = Simulation.random(setting, 9)
    axis = torch.arange(-8, 8, 0.1, dtype=torch.float64)
    mass = drawn.log_joint(torch.cartesian_prod(axis, axis)).exp().sum(0) * 0.1**2
    assert torch.allclose(mass, torch.ones(2, dtype=torch.float64), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"covariance_shift": 1.5}, "covariance_shift must lie in 0 to 1, not 1.5"),
        ({"parity": 120.0}, "parity must lie in 0 to 90 degrees, not 120.0"),
        ({"label_noise": 0.0}, "label_noise must be positive"),
        ({"classes": 1}, "two classes"),
    ],
)
def test_settings_outside_their_range_are_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        SimulationSetting(**wrong)


def test_a_setting_that_cannot_be_balanced_says_what_to_change(monkeypatch):
    monkeypatch.setattr(simulation, "MOST_DRAWS", 20)
    with pytest.raises(InputError, match="use a smaller invariant_shift or more rows"):
        Simulation.balanced(SimulationSetting(invariant_shift=30.0), 50, seed=0)
