"""Effective sample size and error bound of weighted means (appendix B).

    n_eff = (Σ α)² / Σ α²                                                    (Kish)
    |R − R̂| ≤ 2·M·log(2/δ)/(3n) + √(2·σ²·log(2/δ)/n)     with probability 1 − δ   (Bernstein)

for losses in [0, 1], M the largest weight and σ² the variance of α·l. The paper uses
M = max(1, sup α); sup α is enough, since |α·l − R| ≤ sup α, and does not depend on a unit. The
paper prints log(1/δ), which bounds one side only.
"""

from math import log, sqrt

import numpy as np

from wri.errors import InputError


def effective_sample_size(weights: np.ndarray) -> np.ndarray:  # [..., n] -> [...]
    """Return Kish's effective sample size of weights.

    Parameters
    ----------
    weights : ndarray of shape (..., n)
        Finite weights, not negative, not all zero.

    Returns
    -------
    size : ndarray of shape (...)
        Number of rows with equal weights that have the same information; n for equal weights.

    Raises
    ------
    InputError
        If weights are negative, not finite or all zero.

    References
    ----------
    L. Kish, "Survey Sampling", Wiley, 1965.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import effective_sample_size
    >>> float(effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])))
    2.0
    """
    if weights.shape[-1] == 0 or (weights < 0).any() or not np.isfinite(weights).all():
        raise InputError("weights must be finite, not negative, and at least one")
    largest = weights.max(-1, keepdims=True)
    if (largest == 0).any():
        raise InputError("all weights are zero: these environments have nothing in common")
    relative = weights / largest
    return np.asarray(relative.sum(-1) ** 2 / np.square(relative).sum(-1))


def bernstein_bound(largest: float, variance: float, n: int, probability: float = 0.05) -> float:
    """Bound the distance between a weighted risk of n rows and its expectation.

    Parameters
    ----------
    largest : float
        M, the largest weight. Truncate weights without a bound.
    variance : float
        σ² of weight times loss, for losses in [0, 1].
    n : int
        Number of rows.
    probability : float, default=0.05
        δ, the probability that the bound fails.

    Returns
    -------
    bound : float
        Largest distance with probability 1 − δ.

    Raises
    ------
    InputError
        If `probability` or `n` is out of range.

    Examples
    --------
    >>> from wri.diagnosis import bernstein_bound
    >>> round(bernstein_bound(largest=2.0, variance=0.25, n=1000), 4)
    0.0479
    """
    if not 0 < probability < 1:
        raise InputError(f"probability must lie between 0 and 1, not {probability}")
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    chance = log(2 / probability)
    return 2 * largest * chance / (3 * n) + sqrt(2 * variance * chance / n)
