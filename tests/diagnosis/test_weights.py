"""Effective sample size and Bernstein's bound, by hand."""

from math import exp

import numpy as np
import pytest

from wri.diagnosis import bernstein_bound, effective_sample_size
from wri.errors import InputError


def test_effective_sample_size_by_hand():
    assert effective_sample_size(np.full(10, 0.3)) == pytest.approx(10)
    assert effective_sample_size(np.eye(5)[0]) == pytest.approx(1)
    assert effective_sample_size(np.array([3.0, 1.0])) == pytest.approx(16 / 10)
    tiny = np.array([[3.0, 1.0], [1.0, 1.0]]) * 1e-200
    assert np.allclose(effective_sample_size(tiny), [1.6, 2])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.0, 0.0], "nothing in common"),
        ([1.0, -1.0], "not negative"),
        ([1.0, np.inf], "finite"),
        ([], "at least one"),
    ],
)
def test_weights_that_are_none_are_refused(weights, message):
    with pytest.raises(InputError, match=message):
        effective_sample_size(np.array(weights))


def test_bernsteins_bound_by_hand():
    assert bernstein_bound(3.0, 0.0, 100, 2 / exp(1)) == pytest.approx(0.02)
    assert bernstein_bound(0.0, 0.5, 100, 2 / exp(4)) == pytest.approx(0.2)
    with pytest.raises(InputError, match="between 0 and 1, not 0"):
        bernstein_bound(1.0, 1.0, 10, 0)
    with pytest.raises(InputError, match="n must be at least 1, not 0"):
        bernstein_bound(1.0, 1.0, 0)


def test_bernsteins_bound_holds():
    random = np.random.default_rng(0)
    values = random.uniform(size=(20_000, 50)) ** 4 * (random.uniform(size=(20_000, 50)) < 0.2)
    mean = 0.2 / 5
    variance = 0.2 / 9 - mean**2
    bound = bernstein_bound(1.0, variance, 50, 0.05)
    assert np.mean(np.abs(mean - values.mean(1)) > bound) <= 0.05
