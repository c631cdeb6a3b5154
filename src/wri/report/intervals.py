"""Intervals for differences of algorithms on the same data."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t

from wri.errors import InputError


class Interval(NamedTuple):
    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:+.2f}, 95 % interval {self.low:+.2f} to {self.high:+.2f}, n = {self.n}"


def paired_interval(
    first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray
) -> Interval:
    """Mean of first − second over paired, independent values, with Student's 95 % interval."""
    differences = np.subtract(first, second)
    n = len(differences)
    if n < 2:
        raise InputError(f"an interval needs at least two pairs, not {n}")
    mean = float(differences.mean())
    half = float(t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half, n)
