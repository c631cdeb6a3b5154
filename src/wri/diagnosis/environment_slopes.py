"""Every environment's slopes of y on all features, and whether they differ by more than chance.

    logit p_e(y | x) = a_e + β_eᵀx              two classes
    log p_e(y | x) = y (a_e + β_eᵀx) / s² + …   numbers: β_e = b_e s² / σ_e², b_e of least squares

    β_e minimises Σ loss + ρ/2 |β_e − β|²,   β of all rows, an offset for every environment
    Q = Σ_e (β_e − β̄)² / v_e,   τ² = (Q − (E − 1)) / (Σ 1/v − Σ 1/v² / Σ 1/v),   v = diag (H + ρ)⁻¹

b/σ² is y's factor in the exponent, as log-odds are; s² is the mean σ_e², so β and b agree where the
noise is the same everywhere. The pull ρ keeps small and separable environments finite. Where an
environment says nothing, v is 1/ρ; the variance of β_e alone would be 0 there and look certain.
β̄ is the mean with weights 1/v, τ DerSimonian and Laird's spread; without a change Q is χ² of E − 1.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from scipy.stats import chi2

from wri.rows import Environments, Scaling

PULL = 0.25
"""ρ: what one row adds to the curvature of a logistic model."""
PRIOR_ROWS = 4
"""How many rows' worth σ_e² is drawn to s²."""


class Slopes(NamedTuple):
    slopes: np.ndarray  # [E, D], NaN where an environment says nothing
    errors: np.ndarray  # [E, D], √v

    @property
    def heard(self) -> np.ndarray:  # [E]
        """Environments that say something."""
        return ~np.isnan(self.slopes).all(1)


class Spread(NamedTuple):
    average: np.ndarray  # [D], β̄
    tau: np.ndarray  # [D]
    q: np.ndarray  # [D]
    p: np.ndarray  # [D]


def class_slopes(z: np.ndarray, y: np.ndarray, environments: Environments) -> Slopes:
    """Log-odds of y = 1 against 0 per unit of z, `[n, D]`."""
    rows, found = _heard(y, environments), _nothing(z, environments)
    design = np.zeros((len(z), len(rows) + z.shape[1]))  # [n, E + D]
    design[:, len(rows) :] = z
    for place, chosen in enumerate(rows.values()):
        design[chosen, place] = 1
    every = np.concatenate(list(rows.values()))
    offsets = [logit(y[chosen].mean()) for chosen in rows.values()]
    pooled, _ = _logistic(design[every], y[every], offsets, np.zeros(z.shape[1]))
    for place, (e, chosen) in enumerate(rows.items()):
        own = np.column_stack([np.ones(len(chosen)), z[chosen]])
        slopes, variance = _logistic(own, y[chosen], [offsets[place]], pooled)
        found.slopes[e], found.errors[e] = slopes, np.sqrt(variance)
    return found


def contrast_slopes(z: np.ndarray, y: np.ndarray, environments: Environments) -> dict[str, Slopes]:
    """Slopes of each class against the first of two, or the most frequent of several."""
    number, values = pd.factorize(y, sort=True)
    reference = 0 if len(values) == 2 else int(np.bincount(number).argmax())
    found = {}
    for k in range(len(values)):
        if k != reference:
            rows = (number == k) | (number == reference)
            within = Environments(environments.labels, environments.number[rows])
            name = f"{values[k]} against {values[reference]}"
            found[name] = class_slopes(z[rows], (number[rows] == k).astype(float), within)
    return found


def number_slopes(z: np.ndarray, y: np.ndarray, environments: Environments) -> Slopes:
    """SD of y per unit of z, at noise s² everywhere."""
    rows, found = _heard(y, environments), _nothing(z, environments)
    y = Scaling.of(y).apply(y)
    centred = {e: (z[of] - z[of].mean(0), y[of] - y[of].mean()) for e, of in rows.items()}
    pull = PULL * np.eye(z.shape[1])
    every, targets = (np.concatenate(parts) for parts in zip(*centred.values(), strict=True))
    pooled = np.linalg.lstsq(every, targets, rcond=1e-8)[0]
    slopes, inverses, residuals, free = {}, {}, {}, {}
    for e, (x, t) in centred.items():
        inverses[e] = np.linalg.inv(x.T @ x + pull)
        slopes[e] = pooled + inverses[e] @ x.T @ (t - x @ pooled)
        residuals[e] = t - x @ slopes[e]
        free[e] = len(t) - 1 - np.trace(inverses[e] @ x.T @ x)  # degrees of freedom
    squares = {e: max(r @ r, 1e-12 * free[e]) for e, r in residuals.items()}  # y without noise
    mean = sum(squares.values()) / sum(free.values())  # s²
    # few rows hardly ever show how heavy the tails of their noise are: all rows together do
    everyone = np.concatenate([r / np.sqrt(squares[e] / free[e]) for e, r in residuals.items()])
    tails = np.mean(everyone**4) - 1
    for e, r in residuals.items():
        count = free[e] + PRIOR_ROWS
        noise = (squares[e] + PRIOR_ROWS * mean) / count  # σ_e²
        own_tails = np.mean(r**4) / noise**2 - 1
        of_noise = max(2, own_tails, tails) / count  # Var[σ̂²] / σ⁴, 2/n if Gaussian
        variance = noise * np.diag(inverses[e]) + slopes[e] ** 2 * of_noise
        found.slopes[e] = slopes[e] * mean / noise
        found.errors[e] = np.sqrt(variance) * mean / noise
    return found


def spread(found: Slopes) -> Spread:
    """How far slopes lie apart, chance taken off."""
    slopes, weights = found.slopes[found.heard], found.errors[found.heard] ** -2.0
    total, more = weights.sum(0), len(slopes) - 1
    average = (weights * slopes).sum(0) / total
    q = (weights * (slopes - average) ** 2).sum(0)
    square = (q - more) / (total - (weights**2).sum(0) / total)
    return Spread(average, np.sqrt(np.maximum(square, 0)), q, chi2.sf(q, more))


def holm(p: np.ndarray) -> np.ndarray:  # [D] -> [D]
    """P-values corrected for their number: below a level by chance at most at that rate."""
    order = p.argsort()
    corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(corrected[order.argsort()], 1)


def _heard(y: np.ndarray, environments: Environments) -> dict[int, np.ndarray]:
    """Rows of the environments in which y varies."""
    return {e: rows for e, rows in enumerate(environments.rows) if len(np.unique(y[rows])) > 1}


def _nothing(z: np.ndarray, environments: Environments) -> Slopes:
    return Slopes(*np.full((2, len(environments.labels), z.shape[1]), np.nan))


def _logistic(
    design: np.ndarray, y: np.ndarray, offsets: list[float], centre: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Slopes pulled to `centre` behind free offsets, and v, by Newton's method."""
    free = len(offsets)
    pull = np.where(np.arange(design.shape[1]) < free, 0, PULL)
    towards = np.concatenate([np.zeros(free), centre])
    at = np.concatenate([offsets, np.zeros(len(centre))])

    def loss(at: np.ndarray) -> float:
        margin = design @ at
        return float((np.logaddexp(0, margin) - y * margin).sum() + pull @ (at - towards) ** 2 / 2)

    height = loss(at)
    for _ in range(100):
        chance = expit(design @ at)
        slope = design.T @ (chance - y) + pull * (at - towards)
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(pull)
        step = np.linalg.solve(curvature, slope)
        decrease = slope @ step
        size = 1.0
        while (lower := loss(at - size * step)) > height - 0.1 * size * decrease and size > 1e-8:
            size /= 2
        if decrease < 1e-10 * (1 + height):
            break
        at, height = at - size * step, lower
    return at[free:], np.diag(np.linalg.inv(curvature))[free:]
