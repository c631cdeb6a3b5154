"""Standard errors and intervals."""

import numpy as np
import pytest

from wri.errors import InputError
from wri.report.intervals import interval, paired_interval, standard_error


def test_standard_errors_by_hand():
    assert standard_error([90, 80, 70]) == pytest.approx((100 / 3) ** 0.5)
    assert standard_error(np.array([1.0, 3.0])) == pytest.approx(1)
    assert standard_error([5.0, 5.0]) == 0
    assert standard_error([5.0]) is None
    assert standard_error([]) is None


def test_the_error_of_one_group_is_the_standard_error():
    values = np.array([3.0, 5.0, 4.0, 8.0])
    assert interval([values]).error == pytest.approx(standard_error(values))


def test_paired_interval_is_students():
    found = paired_interval([np.array([3.0, 5.0, 4.0])], [np.array([1.0, 2.0, 3.0])])
    half = 4.302652729911275 * 1 / 3**0.5
    assert (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - half)
    assert found.high == pytest.approx(2 + half)


def test_differences_between_fixed_groups_are_no_noise():
    groups = [np.array([10.0, 12.0]), np.array([50.0, 52.0])]
    found = interval(groups)
    assert found.mean == 31
    assert found.error == pytest.approx((2 / 2 + 2 / 2) ** 0.5 / 2)  # s² = 2 in both
    assert found.high - found.mean == pytest.approx(4.302652729911275 * found.error)


@pytest.mark.parametrize("groups", [[], [np.array([1.0])], [np.array([1.0, 2.0]), np.array([])]])
def test_an_interval_needs_repeated_values(groups):
    with pytest.raises(InputError, match="at least two in one"):
        interval(groups)


def test_pairs_must_match():
    with pytest.raises(InputError, match="same lengths"):
        paired_interval([np.arange(3.0)], [np.arange(1.0)])
