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
class SlopeRows:
    """Rows of one environment."""

    number: int  # of the environment
    x: np.ndarray  # [n, p], offset first
    y: np.ndarray  # [n]
    trust: np.ndarray  # [n], u
    cells: BlockCells


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteFit(ABC):
    """Quadratic fit of one environment, offset first; `RowFit` and `CellFit` leave cells out."""

    inverse: np.ndarray  # [p, p], M
    beta: np.ndarray  # [p]
    site: SlopeRows
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
        cells = self.site.cells
        return values if len(values) == len(cells.block) else cells.sum(values)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowFit(SiteFit):
    """Fit whose rows are independent: leaving out one changes M by a matrix of rank one."""

    weights: np.ndarray  # [n], w
    residuals: np.ndarray  # [n], of the quadratic fit

    @cached_property
    def _moved(self) -> np.ndarray:  # [n, p], M x
        return self.site.x @ self.inverse

    @cached_property
    def leverage(self) -> np.ndarray:  # [n], w xᵀ M x
        return np.minimum(self.weights * (self._moved * self.site.x).sum(1), 1 - 1e-9)

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
    site: SlopeRows,
    weights: np.ndarray,  # [n]
    residuals: np.ndarray,  # [n], at β°
    start: np.ndarray,  # [p], β°
    centre: np.ndarray,  # [p], to which slopes are pulled
) -> SiteFit:
    """Fit an environment by one step from β°, with all cells and without each."""
    x, cells = site.x, site.cells
    pull = np.full(len(centre), PULL)
    pull[0] = 0
    if cells.independent:
        inverse = np.linalg.inv((x * weights[:, None]).T @ x + np.diag(pull))
        step = inverse @ (x.T @ residuals + pull * (centre - start))
        return RowFit(
            inverse=inverse,
            beta=start + step,
            site=site,
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
        site=site,
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


def pool_numbers(sites: list[SlopeRows]) -> np.ndarray:  # [D]
    """Return the slopes of all rows with one offset per environment."""
    columns = sites[0].x.shape[1] - 1
    inner, outer = np.zeros((columns, columns)), np.zeros(columns)
    for site in sites:
        z = site.x[:, 1:]
        apart = z - site.trust @ z / site.trust.sum()
        weighted = apart * site.trust[:, None]
        inner += weighted.T @ apart
        outer += weighted.T @ site.y
    return np.asarray(np.linalg.lstsq(inner, outer, rcond=1e-10)[0])


def pool_classes(sites: list[SlopeRows]) -> tuple[np.ndarray, np.ndarray]:  # [H], [D]
    """Return the offset per environment and the slopes of all rows together."""
    random, most, count = np.random.default_rng(0), POOLED_ROWS // len(sites), len(sites)
    parts = []
    for k, site in enumerate(sites):
        n = len(site.y)
        rows = slice(None) if n <= most else random.choice(n, most, False)
        offsets = np.tile(np.arange(count) == k, (min(n, most), 1))
        parts.append((np.hstack([offsets, site.x[rows, 1:]]), site.y[rows], site.trust[rows]))
    design, y, trust = (np.concatenate(each) for each in zip(*parts, strict=True))  # [n, H + D]
    start = np.zeros(design.shape[1])
    start[:count] = logit([site.y.mean() for site in sites])
    found = fit_logistic(design, y, trust, start, count)
    return found[:count], found[count:]


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
