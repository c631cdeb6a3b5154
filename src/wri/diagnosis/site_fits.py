"""Regressions of one environment, with all its cells and without each, and of all rows together.

`environment_slopes` has the formulas.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.special import expit, logit

from wri.diagnosis.inputs import BlockCells

PULL = 0.25
"""ρ: what one row adds to the curvature of a logistic model."""
LEFT_OUT = 0.6
"""Share of the jackknife in what a cell adds."""
POOLED_ROWS = 24_000  # that β, to which slopes are drawn by a quarter of a row, is found from


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteFit(ABC):
    """Quadratic fit of one environment, offset first; `RowFit` and `CellFit` leave cells out."""

    inverse: np.ndarray  # [p, p], M
    beta: np.ndarray  # [p]
    cells: BlockCells  # of this environment
    noise: float = 1.0  # σ², 1 for classes
    surplus: np.ndarray | None = None  # [m or n], what a cell or row adds to σ², numbers only

    @abstractmethod
    def influence(self) -> np.ndarray:  # [m or n, D]
        """Return how much each cell or row moves the slopes."""

    @abstractmethod
    def bound_scores(self, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return T_b and a_kᵀ A_b a_k, `[m or n, D]` both, with slopes bound to `common`."""

    def sum(self, values: np.ndarray) -> np.ndarray:  # [m or n, D] -> [m, D]
        """Sum over the rows of each cell."""
        return values if len(values) == len(self.cells.block) else self.cells.sum(values)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowFit(SiteFit):
    """Fit whose rows are independent: leaving out one changes M by a matrix of rank one."""

    x: np.ndarray  # [n, p]
    weights: np.ndarray  # [n], w
    residuals: np.ndarray  # [n], of the quadratic fit

    @cached_property
    def _moved(self) -> np.ndarray:  # [n, p], M x
        return self.x @ self.inverse

    @cached_property
    def leverage(self) -> np.ndarray:  # [n], w xᵀ M x
        return np.minimum(self.weights * (self._moved * self.x).sum(1), 1 - 1e-9)

    def influence(self) -> np.ndarray:
        mixed = self.residuals * (1 - LEFT_OUT + LEFT_OUT / (1 - self.leverage))
        return self._moved[:, 1:] * mixed[:, None]

    def bound_scores(self, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        moved, diagonal = self._moved[:, 1:], np.diag(self.inverse)[1:]  # [n, D], [D]
        left = (1 - self.leverage)[:, None]  # [n, 1]
        own, weights = self.residuals[:, None], self.weights[:, None]
        along = moved / diagonal  # a_kᵀ x
        apart = self.beta[1:] - common
        within = own + weights * along * apart  # bound in column k
        without = own / left + weights * moved * (apart - moved * own / left) / (
            left * diagonal + weights * moved**2
        )
        scores = along * ((1 - LEFT_OUT) * within + LEFT_OUT * without)
        return scores, weights * along**2


@dataclass(frozen=True, eq=False, kw_only=True)
class CellFit(SiteFit):
    """Fit whose rows depend on each other within cells."""

    curvature: np.ndarray  # [m, p, p], A_b
    right: np.ndarray  # [m, p], c_b
    without: np.ndarray  # [m, p, p], M_b
    beta_without: np.ndarray  # [m, p]

    def influence(self) -> np.ndarray:
        own = (self.right - self.curvature @ self.beta) @ self.inverse
        mixed = (1 - LEFT_OUT) * own + LEFT_OUT * (self.beta - self.beta_without)
        return np.asarray(mixed[:, 1:])

    def bound_scores(self, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        along = self.inverse[:, 1:] / np.diag(self.inverse)[1:]  # [p, D], a_k
        curved = self.curvature @ along  # [m, p, D]
        within = self.beta[:, None] - along * (self.beta[1:] - common)  # [p, D], bound in column k
        diagonal = np.diagonal(self.without, axis1=1, axis2=2)[:, None, 1:]  # [m, 1, D]
        apart = (self.beta_without[:, 1:] - common)[:, None, :]
        without = (
            self.beta_without[:, :, None] - self.without[:, :, 1:] / diagonal * apart
        )  # [m, p, D]
        mixed = (1 - LEFT_OUT) * within + LEFT_OUT * without
        scores = self.right @ along - (curved * mixed).sum(1)
        return scores, (curved * along).sum(1)


def fit_site(
    x: np.ndarray,  # [n, p], offset first
    weights: np.ndarray,  # [n]
    residuals: np.ndarray,  # [n], at β°
    cells: BlockCells,
    start: np.ndarray,  # [p], β°
    centre: np.ndarray,  # [p], to which slopes are pulled
) -> SiteFit:
    """Fit an environment by one step from β°, with all cells and without each."""
    pull = np.full(len(centre), PULL)
    pull[0] = 0
    if cells.independent:
        inverse = np.linalg.inv((x * weights[:, None]).T @ x + np.diag(pull))
        step = inverse @ (x.T @ residuals + pull * (centre - start))
        return RowFit(
            inverse=inverse,
            beta=start + step,
            cells=cells,
            x=x,
            weights=weights,
            residuals=residuals - weights * (x @ step),
        )
    curvature = _sum_curvature(x, weights, cells)
    right = curvature @ start + cells.sum(x * residuals[:, None])
    whole, all_right = curvature.sum(0) + np.diag(pull), right.sum(0) + pull * centre
    inverse = np.linalg.inv(whole)
    without = np.linalg.inv(whole - curvature)
    return CellFit(
        inverse=inverse,
        beta=inverse @ all_right,
        cells=cells,
        curvature=curvature,
        right=right,
        without=without,
        beta_without=(without @ (all_right - right)[..., None])[..., 0],
    )


def _sum_curvature(x: np.ndarray, weights: np.ndarray, cells: BlockCells) -> np.ndarray:
    """Return Σ w x xᵀ per cell, `[m, p, p]`."""
    order = np.argsort(cells.of_row, kind="stable")
    x, weighted = x[order], (x * weights[:, None])[order]
    edges = np.searchsorted(cells.of_row[order], np.arange(len(cells.block) + 1))
    return np.stack([weighted[a:b].T @ x[a:b] for a, b in pairwise(edges)])


def with_offset(z: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D + 1]
    """Add a column of ones in front."""
    return np.column_stack([np.ones(len(z)), z])


def pool_numbers(
    z: np.ndarray, y: np.ndarray, trust: np.ndarray, rows: dict[int, np.ndarray]
) -> np.ndarray:  # [D]
    """Return the slopes of all rows with one offset per environment."""
    inner, outer = np.zeros((z.shape[1], z.shape[1])), np.zeros(z.shape[1])
    for own in rows.values():
        weights = trust[own]
        apart = z[own] - weights @ z[own] / weights.sum()
        weighted = apart * weights[:, None]
        inner += weighted.T @ apart
        outer += weighted.T @ y[own]
    return np.asarray(np.linalg.lstsq(inner, outer, rcond=1e-10)[0])


def pool_classes(
    z: np.ndarray, y: np.ndarray, trust: np.ndarray, rows: dict[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the offset per environment and the slopes of all rows together."""
    if not rows:
        return np.empty(0), np.zeros(z.shape[1])
    random, most = np.random.default_rng(0), POOLED_ROWS // len(rows)
    parts = [own if len(own) <= most else random.choice(own, most, False) for own in rows.values()]
    own = np.concatenate(parts)
    design = np.zeros((len(own), len(parts) + z.shape[1]))  # [n, H + D]
    design[np.arange(len(own)), np.repeat(np.arange(len(parts)), [len(part) for part in parts])] = 1
    design[:, len(parts) :] = z[own]
    means = np.array([y[of].mean() for of in rows.values()])
    start = np.concatenate([logit(means), np.zeros(z.shape[1])])
    found = fit_logistic(design, y[own], trust[own], start, len(parts))
    return found[: len(parts)], found[len(parts) :]


def fit_logistic(
    design: np.ndarray, y: np.ndarray, trust: np.ndarray, start: np.ndarray, offsets: int
) -> np.ndarray:
    """Fit offsets, which come first, and slopes, pulled to `start`, by Newton's method."""
    pull = np.where(np.arange(design.shape[1]) < offsets, 0, PULL)
    at = start

    def loss(at: np.ndarray) -> float:
        margin = design @ at
        return float(trust @ (np.logaddexp(0, margin) - y * margin) + pull @ (at - start) ** 2 / 2)

    height = loss(at)
    for _ in range(100):
        chance = expit(design @ at)
        slope = design.T @ (trust * (chance - y)) + pull * (at - start)
        weights = trust * chance * (1 - chance)
        curvature = (design * weights[:, None]).T @ design + np.diag(pull)
        step = np.linalg.solve(curvature, slope)
        decrease = slope @ step
        if decrease < 1e-10 * (1 + height):
            break
        size = 1.0
        while (lower := loss(at - size * step)) > height - 0.1 * size * decrease and size > 1e-8:
            size /= 2
        at, height = at - size * step, lower
    return at


def find_offset(margin: np.ndarray, y: np.ndarray, trust: np.ndarray) -> float:
    """Return the offset at which the probabilities with fixed slopes have the mean of y."""
    offset = float(logit(y.mean()) - margin.mean())
    for _ in range(50):
        chance = expit(offset + margin)
        step = trust @ (y - chance) / max(trust @ (chance * (1 - chance)), 1e-9)
        offset += float(np.clip(step, -2, 2))
        if abs(step) < 1e-9:
            break
    return offset
