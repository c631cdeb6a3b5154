"""Standard errors and intervals of means over groups, and of paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t

from wri.errors import InputError

FEWEST_FREEDOM = 2  # of an interval or standard error that is printed; two values have one


def standard_error(values: Sequence[float] | np.ndarray) -> float | None:
    """Return s/√n with s² = Σ (x − x̄)²/(n − 1); None for one value."""
    n = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None


def half_width(error: float, freedom: int, level: float = 0.95) -> float:
    """Return half the width of Student's interval."""
    return float(t.ppf((1 + level) / 2, freedom)) * error


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Mean of the groups' means with its standard error and Student's 95 % interval."""

    mean: float
    error: float
    low: float
    high: float
    n: int
    freedom: int

    def __str__(self) -> str:
        return self.describe()

    def describe(self, digits: int = 2) -> str:
        """Return the mean with its interval; a single degree of freedom is too few for one."""
        if self.freedom < FEWEST_FREEDOM:
            return f"{self.mean:+.{digits}f} (too few repetitions for an interval)"
        return f"{self.mean:+.{digits}f} ({self.low:+.{digits}f} to {self.high:+.{digits}f})"


def interval(groups: Sequence[np.ndarray]) -> Interval:
    """Return the interval for independent values in fixed groups, whose means count the same.

    The error comes from the pooled spread within groups: s·√(Σ_g 1/n_g)/G.
    """
    sizes = [len(group) for group in groups]
    freedom = sum(sizes) - len(groups)
    if not groups or min(sizes) < 1 or freedom < 1:
        raise InputError("an interval needs values in every group, and at least two in one group")
    mean = float(np.mean([np.mean(group) for group in groups]))
    pooled = sum(float(np.sum((group - np.mean(group)) ** 2)) for group in groups) / freedom
    error = float(np.sqrt(pooled * sum(1 / n for n in sizes))) / len(groups)
    half = half_width(error, freedom)
    ends = {"low": mean - half, "high": mean + half}
    return Interval(mean=mean, error=error, **ends, n=sum(sizes), freedom=freedom)


def paired_interval(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> Interval:
    """Return the interval of first − second, value by value, in groups of equal length."""
    if [len(group) for group in first] != [len(group) for group in second]:
        raise InputError("paired groups must have the same number and the same lengths")
    return interval([np.subtract(a, b) for a, b in zip(first, second, strict=True)])
