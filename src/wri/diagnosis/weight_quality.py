"""How much a sample is worth under weights (appendix B).

    n_eff = (Σ α)² / Σ α²                                                    (Kish)
    |R − R̂| ≤ 2·M·log(2/δ)/(3n) + √(2·σ²·log(2/δ)/n)     with probability 1 − δ   (Bernstein)

for losses in [0, 1], M the largest weight and σ² the variance of α·l. The paper takes
M = max(1, sup α); sup α is enough, since |α·l − R| ≤ sup α, and does not depend on a unit. It
also prints log(1/δ), which bounds one side only.
"""

from math import log, sqrt

import numpy as np

from wri.errors import InputError


def effective_sample_size(weights: np.ndarray) -> np.ndarray:  # [..., n] -> [...]
    """Rows that would tell as much if all weighed the same; n for equal weights."""
    if weights.shape[-1] == 0 or (weights < 0).any() or not np.isfinite(weights).all():
        raise InputError("weights must be finite, not negative, and at least one")
    largest = weights.max(-1, keepdims=True)
    if (largest == 0).any():
        raise InputError("all weights are zero: these environments have nothing in common")
    relative = weights / largest
    return np.asarray(relative.sum(-1) ** 2 / np.square(relative).sum(-1))


def bernstein_bound(largest: float, variance: float, n: int, probability: float = 0.05) -> float:
    """How far a weighted risk of n rows may lie from its expectation.

    Parameters
    ----------
    largest
        M, the largest weight; truncate weights that have none.
    variance
        σ² of weight times loss, losses in [0, 1].
    n
        Rows.
    probability
        δ, with which the bound may fail.
    """
    if not 0 < probability < 1:
        raise InputError(f"probability must lie between 0 and 1, not {probability}")
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    chance = log(2 / probability)
    return 2 * largest * chance / (3 * n) + sqrt(2 * variance * chance / n)
