"""The simulations' densities and probabilities are those of their samples."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from wri.datasets import Gaussian2D, Hospital, hospitals
from wri.datasets.hospitals import TRAINING, drawn_hospitals
from wri.errors import InputError


def grid(half_width, points):
    axis = torch.linspace(-half_width, half_width, points, dtype=torch.float64)
    cell = (axis[1] - axis[0]) ** 2
    return torch.cartesian_prod(axis, axis), cell


@pytest.mark.slow
def test_gaussian2d_densities_integrate_to_one():
    points, cell = grid(24, 961)
    setting = Gaussian2D()
    torch.testing.assert_close(
        setting.log_joint(points).exp().sum(0) * cell, torch.ones(3).double()
    )
    axis = torch.linspace(-24, 24, 961, dtype=torch.float64)
    line = torch.stack([axis, torch.zeros_like(axis)], -1)
    total = setting.log_invariant(line).exp().sum(0) * (axis[1] - axis[0])
    torch.testing.assert_close(total, torch.ones(3).double())


@pytest.mark.slow
def test_gaussian2d_invariant_density_is_the_joints_marginal():
    setting = Gaussian2D()
    axis = torch.linspace(-24, 24, 1921, dtype=torch.float64)
    for x_inv in (-1.3, 0.2, 2.0):
        line = torch.stack([torch.full_like(axis, x_inv), axis], -1)
        marginal = setting.log_joint(line).exp().sum(0) * (axis[1] - axis[0])
        torch.testing.assert_close(marginal, setting.log_invariant(line[0]).exp())


def test_gaussian2d_samples_follow_the_probabilities():
    setting = Gaussian2D()
    for e, environment in enumerate(setting.sample(40_000, seed=1)):
        x = torch.tensor(environment.x)
        assert environment.x[:, 0].std() == pytest.approx(setting.invariant_sd[e], rel=0.02)
        probability = setting.probability(x)[:, e].numpy()
        for low in np.arange(0.1, 0.9, 0.2):
            chosen = (probability > low) & (probability < low + 0.2)
            error = environment.y[chosen].mean() - probability[chosen].mean()
            assert abs(error) < 4 * 0.5 / np.sqrt(chosen.sum())


def test_the_invariant_law_is_the_same_everywhere():
    setting = Gaussian2D()
    for environment in setting.sample(60_000, seed=2):
        near = np.abs(environment.x[:, 0] - 0.5) < 0.1
        expected = float(setting.invariant_probability(torch.tensor(0.5)))
        assert environment.y[near].mean() == pytest.approx(expected, abs=0.03)


def test_best_accuracy_is_that_of_the_sign_of_x_inv():
    setting = Gaussian2D()
    assert 100 * setting.best_accuracy(2) == pytest.approx(89.76, abs=0.01)
    test = setting.sample(200_000, seed=3)[2]
    accuracy = np.mean((test.x[:, 0] > 0) == test.y)
    assert accuracy == pytest.approx(setting.best_accuracy(2), abs=0.003)


def test_a_seed_decides_the_sample():
    first, again, other = (Gaussian2D().sample(20, seed)[1].x for seed in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="equally long"):
        Gaussian2D(invariant_sd=(1.0, 2.0))
    with pytest.raises(InputError, match="standard deviations positive"):
        Gaussian2D(spurious_sd=(1.0, 0.0, 1.0))


def test_what_smoking_does_is_the_same_in_every_hospital_and_the_marker_is_not():
    """Slopes of a logistic regression on both: 2 and 2·s_e, without an offset."""
    for hospital, (name, x, y) in zip(TRAINING, hospitals(40_000, seed=0), strict=True):
        assert name == hospital.name
        assert x[:, 0].mean() == pytest.approx(hospital.smoking, abs=0.02)
        fitted = LogisticRegression(C=np.inf).fit(x, y)
        np.testing.assert_allclose(fitted.coef_[0], [2, 2 * hospital.marker, 0], atol=0.1)
        assert fitted.intercept_[0] == pytest.approx(0, abs=0.1)


def test_a_hospitals_best_accuracy_is_that_of_the_sign_of_smoking():
    for smoking in (-1.0, 0.0, 2.0):
        hospital = Hospital("any", smoking, 0.5)
        _, x, y = hospital.sample(200_000, seed=3)
        assert np.mean((x[:, 0] > 0) == y) == pytest.approx(hospital.best_accuracy, abs=0.004)


def test_patients_of_a_hospital_do_not_depend_on_the_others():
    alone = TRAINING[2].sample(50, seed=4)
    assert np.array_equal(alone.x, hospitals(50, seed=4)[2].x)
    given = TRAINING[2].sample(50, seed=4, smoking=np.full(50, 7.0))
    assert (given.x[:, 0] == 7).all()
    with pytest.raises(InputError, match="smoking must be a list of 50"):
        TRAINING[2].sample(50, seed=4, smoking=np.zeros(3))


def test_drawn_hospitals_have_markers_that_mislead_at_the_next():
    for seed in range(20):
        drawn = drawn_hospitals(seed)
        assert drawn == drawn_hospitals(seed) != drawn_hospitals(seed + 1)
        assert min(hospital.marker for hospital in drawn.training) > 0
        assert drawn.reversed_marker.marker < drawn.unrelated_marker.marker == 0
