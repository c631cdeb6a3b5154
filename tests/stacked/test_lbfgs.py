"""L-BFGS finds minima that are known, and stops where it says."""

import numpy as np
import pytest

from wri.stacked.linear import MEMORY, minimise


def quadratic(curvatures):
    """Return ½ Σ c·(x − 1)² with its slope."""

    def evaluate(x):
        return float(curvatures @ np.square(x - 1)) / 2, curvatures * (x - 1)

    return evaluate


def rosenbrock(x):
    value = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
    slope = [-400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)]
    return value, np.array(slope)


def test_a_step_of_length_one_solves_what_has_unit_curvature():
    found = minimise(quadratic(np.ones(7)), np.zeros(7), 1e-12, 10)
    assert found.is_final
    assert found.evaluations == 2
    assert (found.x == 1).all()


@pytest.mark.parametrize("size", [3, 4 * MEMORY])  # fewer and more directions than are kept
def test_unequal_curvatures(size):
    found = minimise(quadratic(np.geomspace(0.1, 10, size)), np.zeros(size), 1e-9, 500)
    assert found.is_final
    assert np.abs(found.slope).max() <= 1e-9
    np.testing.assert_allclose(found.x, 1, atol=1e-7)


def test_a_curved_valley():
    found = minimise(rosenbrock, np.array([-1.2, 1.0]), 1e-9, 200)
    assert found.is_final
    np.testing.assert_allclose(found.x, 1, atol=1e-8)


def test_values_that_overflow_shorten_the_step():
    def evaluate(x):
        with np.errstate(over="ignore"):
            value = float(np.exp(x[0] ** 2))
            return value, 2 * x * value

    found = minimise(evaluate, np.array([5.0]), 1e-9, 200)
    assert found.is_final
    assert abs(found.x[0]) < 1e-8


def test_it_says_that_steps_ran_out():
    found = minimise(rosenbrock, np.array([-1.2, 1.0]), 1e-9, 3)
    assert not found.is_final
    assert found.value < rosenbrock(np.array([-1.2, 1.0]))[0]


def test_it_ends_where_rounding_ends_all_progress():
    def evaluate(x):  # values are too large for the slope to show
        return 1e12 + float(np.square(x - 1).sum()), 2 * (x - 1) + 1e-6

    found = minimise(evaluate, np.zeros(2), 1e-12, 500)
    assert found.evaluations < 500
    np.testing.assert_allclose(found.x, 1, atol=1e-3)
