"""Gaps of risks with bootstrap intervals for estimated weights and skewed losses.

    R_ij − R_ji = Σ w_ij (l − h) / Σ w_ij  −  Σ w_ji (l − h) / Σ w_ji

for any h of what the weights see: both sides have the same cases, so h has the same mean on both.
With h = E[l | x] by the model's own probabilities, errors of the weights matter only as far as the
model is miscalibrated; with h = 0 cases that the weights do not match count as a gap.

    ψ_b = Σ_{rows of b} w (l − h − R) / Σ w        what cell b adds to a risk (`blocks`)
    SE² = max(Σ_b (ψ_ij − ψ_ji)² m / (m − 1), Σ w_ij² v / (Σ w_ij)² + the same of ji)

with v = Var[l | x]: the variance that the model's probabilities predict for failures not yet seen.
All intervals of one kind are gap ± q·SE with one q, the quantile of the largest |gap*|/SE* when the
ψ of each block is multiplied by a random number of mean 0, variance 1 and third moment 1 (Mammen,
1993), so that skewed losses stay skewed. Bonferroni's q would be too large: pairs share
environments.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wri.diagnosis.blocks import BlockCells
from wri.diagnosis.losses import ModelLosses

_CHUNK = 10_000_000  # multipliers drawn at once
_PAIRS = 2_000_000  # gaps of draws kept at once

Entries = tuple[np.ndarray, np.ndarray]
"""i and j, each `[P]`."""


class ResampledGaps(NamedTuple):
    """Gaps of P pairs with errors and intervals."""

    gaps: np.ndarray  # [P]
    errors: np.ndarray  # [P]
    intervals: np.ndarray  # [P, 2]


class ResampledDraws(NamedTuple):
    """Risks of multiplied cells minus the risks found, and their variances."""

    risks: np.ndarray  # [R, E, E]
    variances: np.ndarray  # [R, E, E]


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedRisks:
    """Weighted risks of i towards j, minus h; plain risks on the diagonal."""

    found: np.ndarray  # [E, E]
    least: np.ndarray  # [E, E], variances by the model's probabilities
    parts: np.ndarray  # [m, E], ψ of every cell, whose own environment is i
    shares: np.ndarray  # [m, E], of Σ w
    cells: BlockCells

    def variances(self) -> np.ndarray:  # [E, E]
        """Return the variance of each risk."""
        return np.stack(
            [
                np.square(self.parts[own]).sum(0) * len(own) / max(len(own) - 1, 1)
                for own in self._cells()
            ]
        )

    def covariances(self) -> np.ndarray:  # [E, E]
        """Return covariances of R_ij and R_ji; zero unless blocks lie in several environments."""
        count = len(self.found)
        crossed = np.zeros((count, count))
        block, order = self.cells.block, np.argsort(self.cells.block, kind="stable")
        many = np.flatnonzero(np.bincount(block) > 1)
        edges = np.searchsorted(block[order], np.stack([many, many + 1]))
        for start, end in edges.T:
            own = order[start:end]
            e, parts = self.cells.environment[own], self.parts[own]
            crossed[np.ix_(e, e)] += parts[:, e] * parts[:, e].T
        np.fill_diagonal(crossed, 0)
        return crossed

    def plain_covariances(self) -> np.ndarray:  # [E, E]
        """Return covariances of R_i and R_j."""
        own = self.parts[np.arange(len(self.parts)), self.cells.environment]
        table = np.zeros((self.cells.block.max() + 1, len(self.found)))
        if (np.bincount(self.cells.block) == 1).all():
            return np.zeros_like(self.found)
        table[self.cells.block, self.cells.environment] = own
        crossed = table.T @ table
        np.fill_diagonal(crossed, 0)
        return np.asarray(crossed)

    def draw(self, draws: int, random: np.random.Generator) -> ResampledDraws:
        """Draw the risks `draws` times with the blocks' parts multiplied."""
        count, blocks = len(self.found), self.cells.block.max() + 1
        risks, variances = np.empty((2, draws, count, count), np.float32)
        step = max(1, _CHUNK // blocks)
        for start in range(0, draws, step):
            times = _multipliers((min(step, draws - start), blocks), random)
            at = slice(start, start + step)
            for e, own in enumerate(self._cells()):
                here = times[:, self.cells.block[own]]  # [R, m]
                parts, shares = (x[own].astype(np.float32) for x in (self.parts, self.shares))
                moved = here @ parts  # [R, E]
                squares = here**2 @ parts**2 - 2 * moved * (here @ (parts * shares))
                squares += moved**2 * np.square(shares).sum(0)
                risks[at, e] = moved
                variances[at, e] = squares * len(own) / max(len(own) - 1, 1)
        return ResampledDraws(risks, np.maximum(variances, 0))

    def _cells(self) -> list[np.ndarray]:
        return [self.cells.of_environment(e) for e in range(len(self.found))]


def weighted_risks(
    model: ModelLosses,
    same: np.ndarray,  # [n], h
    log_weights: np.ndarray,  # [n, E], log w_ij; all the same where j is the row's own i
    rows_of: list[np.ndarray],
    cells: BlockCells,
) -> WeightedRisks:
    """Return the risks of all environments towards each other, and the part of each cell."""
    count = len(rows_of)
    found, least = np.empty((2, count, count))
    parts, shares = np.empty((2, len(cells.block), count))
    for own, rows in enumerate(rows_of):
        logs = log_weights[rows]
        weights = np.exp(logs - logs.max(0))  # [n_i, E], in units of the largest: no sum is zero
        weights /= weights.sum(0)
        losses = np.repeat((model.losses - same)[rows, None], count, 1)  # [n_i, E]
        losses[:, own] = model.losses[rows]
        found[own] = (weights * losses).sum(0)
        least[own] = model.variance[rows] @ np.square(weights)
        within, at = cells.take(rows), cells.of_environment(own)
        parts[at], shares[at] = within.sum(weights * (losses - found[own])), within.sum(weights)
    return WeightedRisks(found=found, least=least, parts=parts, shares=shares, cells=cells)


def compare(
    risks: WeightedRisks,
    drawn: ResampledDraws,
    first: Entries,
    second: Entries,
    level: float,
    judged: np.ndarray,  # [P], the pairs that intervals must hold for together
) -> ResampledGaps:
    """Return gaps of P pairs; q is the quantile over the judged ones."""
    plain = bool((first[0] == first[1]).all())
    crossed = risks.plain_covariances() if plain else risks.covariances()
    across = (first[0], second[0])
    gaps = risks.found[first] - risks.found[second]
    both = risks.variances()
    seen = both[first] + both[second] - 2 * crossed[across]
    errors = np.sqrt(np.maximum(seen, risks.least[first] + risks.least[second]))
    counted = np.flatnonzero(judged & (seen > 0))
    if not len(counted):
        counted = np.flatnonzero(seen > 0)
    quantile = 0.0
    if len(counted):
        share = seen[counted] / (both[first] + both[second])[counted]
        largest = _largest(drawn, _at(first, counted), _at(second, counted), share)
        quantile = float(np.quantile(largest, level, method="higher"))
    return ResampledGaps(gaps, errors, gaps[:, None] + quantile * errors[:, None] * [-1, 1])


def _at(entries: Entries, places: np.ndarray) -> Entries:
    return entries[0][places], entries[1][places]


def _largest(
    drawn: ResampledDraws, first: Entries, second: Entries, share: np.ndarray
) -> np.ndarray:  # [R]
    """Return the largest |gap*| / SE* per draw; `share` is the variance left by shared blocks."""
    largest = np.empty(len(drawn.risks))
    step = max(1, _PAIRS // len(share))
    for start in range(0, len(largest), step):
        at = slice(start, start + step)
        gaps = drawn.risks[at, *first] - drawn.risks[at, *second]
        squares = (drawn.variances[at, *first] + drawn.variances[at, *second]) * share
        squares = np.maximum(squares, np.finfo(np.float32).tiny)
        largest[at] = np.sqrt(gaps**2 / squares).max(1)
    return largest


def _multipliers(shape: tuple[int, int], random: np.random.Generator) -> np.ndarray:
    """Draw Mammen's two points, of mean 0, variance 1 and third moment 1."""
    root = np.sqrt(5.0)
    low = random.random(shape, np.float32) < (root + 1) / (2 * root)
    return np.where(low, np.float32((1 - root) / 2), np.float32((1 + root) / 2))
