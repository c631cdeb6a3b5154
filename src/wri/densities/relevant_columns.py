"""Columns that weights may see: those that tell about the target, in the same way everywhere.

Weights compare environments at equal causes. Two kinds of columns spoil them:

- a column that tells the site but nothing about the target (a season, a device) drives the overlap
  to zero and the penalty with it. Like an instrument in a propensity model, it stays out;
- a column whose relation to the target changes between environments is spurious by evidence, and
  weights are to be those of the invariant part.

Both are judged by the slopes of the target on all columns in each environment, logistic for classes
(each class against the most frequent one) and least squares for numbers:

    β_e, v_e    slopes and their robust variances in environment e
    z² = Σ_e β_e² / v_e           relevance: 1 − 2E/z², at least 0
    Q  = Σ_e (β_e − β̃)² / v_e     χ² with E − 1 degrees of freedom unless the slope changes

For numbers a changing marker also moves the slopes of the causes, by a common factor, while
β_e / σ_e² of a cause stays; unequal noise moves β_e / σ_e² and not β_e. So a column changes only if
both do. P-values are corrected for the number of columns (Holm).

This is the quick form of `wri.diagnosis.changing_features`, for use in every fit: it takes
milliseconds and no draws. Its level is approximate, and nothing is printed on its ground.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import chi2

LEVEL = 0.05
PULL = 0.25  # ridge of the slopes: what one row adds to the curvature of a logistic model
NEWTON_STEPS = 25
FEWEST = 4  # rows per coefficient that an environment needs


class Slopes(NamedTuple):
    """Slopes in the environments that can estimate them."""

    slope: np.ndarray  # [H, D]
    variance: np.ndarray  # [H, D]


Contrast = tuple[Slopes, ...]
"""Slopes of one contrast; for numbers also slopes over residual variances."""

Part = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows `[n, D]`, targets and weights of one environment."""


def column_shares(
    rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> np.ndarray:  # E of [n, D], [n], [n] -> [D]
    """Return how much weights may see of each column, from 0 to 1.

    Integer targets are classes. All columns count fully where environments are too small to tell.
    """
    contrasts = _contrasts(rows, targets, weights)
    if not contrasts:
        return np.ones(rows[0].shape[1])
    strength = sum((np.square(own.slope) / own.variance).sum(0) for own, *_ in contrasts)
    least = 2 * sum(len(own.slope) for own, *_ in contrasts)
    share = np.maximum(1 - least / np.maximum(strength, 1e-300), 0)
    share[changing_columns(contrasts)] = 0
    return share


def changing_columns(contrasts: Sequence[Contrast]) -> np.ndarray:  # [D] bool
    """Return which columns relate to the target in different ways between environments."""
    p = np.array([np.max([_spread(*own) for own in each], 0) for each in contrasts])  # [C, D]
    p = np.minimum(p.min(0) * len(p), 1)
    order = p.argsort(kind="stable")
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.zeros(len(p), bool)
    found[order] = corrected <= LEVEL
    return found


def _spread(slope: np.ndarray, variance: np.ndarray) -> np.ndarray:  # [H, D] -> [D]
    """Return P-values of Cochran's Q."""
    if len(slope) < 2:
        return np.ones(slope.shape[1])
    weight = 1 / variance
    mean = (weight * slope).sum(0) / weight.sum(0)
    return chi2.sf((weight * np.square(slope - mean)).sum(0), len(slope) - 1)


def _contrasts(
    rows: Sequence[np.ndarray], targets: Sequence[np.ndarray], weights: Sequence[np.ndarray]
) -> list[Contrast]:
    """Return the slopes of each contrast that some environment can estimate."""
    parts = list(zip(rows, targets, weights, strict=True))
    if targets[0].dtype.kind == "f":
        padded = _pad(parts)
        return [] if padded is None else [_number_slopes(*padded)]
    counts = np.bincount(np.concatenate(list(targets)), np.concatenate(list(weights)))
    reference = 0 if len(counts) == 2 else int(np.argmax(counts))
    found = []
    for k in (c for c in range(len(counts)) if c != reference):
        kept = [(y == k) | (y == reference) for y in targets]
        both = zip(parts, kept, strict=True)
        padded = _pad([(x[own], (y[own] == k).astype(float), w[own]) for (x, y, w), own in both])
        if padded is not None:
            found.append(_class_slopes(*padded))
    return found


def _pad(parts: Sequence[Part]) -> Part | None:
    """Return x `[H, B, D + 1]` with a one first, y and weights `[H, B]`, 0 on padding.

    Environments without enough rows or without both sides of a contrast are left out.
    """
    width = parts[0][0].shape[1] + 1
    usable = [
        (x, y, w) for x, y, w in parts if w.sum() >= FEWEST * width and len(y) and np.ptp(y) > 0
    ]
    if not usable:
        return None
    longest = max(len(y) for _, y, _ in usable)
    x = np.zeros((len(usable), longest, width))
    y, weight = np.zeros((2, len(usable), longest))
    for e, (own, target, share) in enumerate(usable):
        x[e, : len(own), 0], x[e, : len(own), 1:] = 1, own
        y[e, : len(own)], weight[e, : len(own)] = target, share
    return x, y, weight


def _class_slopes(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Contrast:
    """Fit a logistic regression in every environment at once, by Newton's method."""
    pull = PULL * np.diag(np.arange(x.shape[2]) > 0)
    at = np.zeros((len(x), x.shape[2], 1))
    for _ in range(NEWTON_STEPS):
        chance = expit((x @ at)[..., 0])
        curvature = _curvature(x, weight * chance * (1 - chance)) + pull
        slope = _transposed(x) @ (weight * (chance - y))[..., None] + pull @ at
        step = np.linalg.solve(curvature, slope)
        # a long step is cut, so that separable environments do not overshoot
        at = at - step * np.minimum(1, 5 / np.abs(step).max(1, keepdims=True).clip(1e-9))
        if np.abs(step).max() < 1e-8:
            break
    return (_robust(x, weight, chance * (1 - chance), y - chance, curvature, at),)


def _number_slopes(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Contrast:
    """Fit least squares in every environment, with slopes over residual variances."""
    pull = PULL * np.diag(np.arange(x.shape[2]) > 0)
    curvature = _curvature(x, weight) + pull
    at = np.linalg.solve(curvature, _transposed(x) @ (weight * y)[..., None])
    residual = y - (x @ at)[..., 0]
    found = _robust(x, weight, np.ones_like(y), residual, curvature, at)
    count = weight.sum(1)
    freedom = np.maximum(count - x.shape[2], 1)
    squares = weight * np.square(residual)
    noise = squares.sum(1) / freedom  # [H], σ²
    noise = np.maximum(noise, 1e-12 * max(float(noise.max()), 1e-300))
    chance = (squares * np.square(residual)).sum(1) / count - np.square(noise)
    chance = np.maximum(chance, 0) / count  # variance of σ²
    relative = (chance / np.square(noise))[:, None]
    ratio = found.slope / noise[:, None]
    variance = found.variance / np.square(noise)[:, None] + np.square(ratio) * relative
    return found, Slopes(ratio, variance)


def _robust(
    x: np.ndarray,
    weight: np.ndarray,
    bend: np.ndarray,  # [H, B], of the loss
    residual: np.ndarray,
    curvature: np.ndarray,
    at: np.ndarray,
) -> Slopes:
    """Return slopes with variances that hold under unequal noise (HC3)."""
    inverse = np.linalg.inv(curvature)
    moved = x @ inverse  # [H, B, p]
    leverage = ((moved * x).sum(-1) * bend).clip(0, 0.9)
    size = weight * np.square(residual / (1 - leverage))
    variance = np.einsum("hbp,hb->hp", np.square(moved), size)
    variance += PULL * np.square(inverse).sum(1)  # what the pull hides
    return Slopes(at[:, 1:, 0], variance[:, 1:])


def _curvature(x: np.ndarray, weight: np.ndarray) -> np.ndarray:  # [H, B, p], [H, B] -> [H, p, p]
    return _transposed(x * weight[..., None]) @ x


def _transposed(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)
