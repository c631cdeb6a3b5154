"""Gaps of risks with permutation intervals for estimated weights and skewed losses.

    R_ij − R_ji = Σ w_ij (l − h) / Σ w_ij  −  Σ w_ji (l − h) / Σ w_ji

for any h of what the weights see: both sides have the same cases, so h has the same mean on both.
With h = E[l | x] by the model's own probabilities, errors of the weights matter only as far as the
model is miscalibrated; with h = 0 cases that the weights do not match count as a gap.

    ψ_b = Σ_{rows of b} w (l − h − R) / Σ w        what cell b adds to a risk
    SE² = max(Σ_b (ψ_ij − ψ_ji)² m / (m − 1), Σ w_ij² v / (Σ w_ij)² + the same of ji)

with v = Var[l | x]: the variance that the model's probabilities predict for failures not yet seen.

Chance comes from permutations: cells exchange their losses l, or l − h, between all environments
and keep their weights, and |gap*| / SE* is computed as above. Between identical environments this
is exact, however skewed the losses and unequal the sizes; as SE* is computed anew, it also holds
for many rows where losses spread more in one environment than in another (Janssen, 1997). Pairs
with a small environment have wider tails, so every pair has a scale of its own:

    interval of pair p: gap ± c · q_p · SE,   q_p a quantile of |gap*| / SE* of this pair,
    c the quantile of the largest |gap*| / SE* / q_p: all intervals of one kind hold together
"""

from dataclasses import dataclass

import numpy as np

from wri.diagnosis.inputs import BlockCells
from wri.diagnosis.losses import ModelLosses

MOST_SCALES = 5
"""A pair's own quantile is that of level 1 − (1 − level) / pairs, of at most so many pairs."""
_CHUNK = 4_000_000  # cells permuted at once
_TINY = np.finfo(np.float32).tiny

Entries = tuple[np.ndarray, np.ndarray]
"""i and j, each `[P]`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedRisks:
    """Weighted risks of i towards j, minus h; plain risks on the diagonal."""

    found: np.ndarray  # [E, E]
    least: np.ndarray  # [E, E], variances by the model's probabilities
    parts: np.ndarray  # [m, E], ψ of every cell, whose own environment is i
    shares: np.ndarray  # [m, E], of Σ w
    means: np.ndarray  # [3, m], of every cell: l, l − h and v over its number of rows
    cells: BlockCells

    def variances(self) -> np.ndarray:  # [E, E]
        """Return the variance of each risk."""
        return np.stack(
            [
                np.square(self.parts[own]).sum(0) * len(own) / max(len(own) - 1, 1)
                for own in self._cells()
            ]
        )

    def covariances(self, plain: bool) -> np.ndarray:  # [E, E]
        """Return covariances of R_ij and R_ji, or of R_i and R_j, by blocks that they share."""
        crossed = np.zeros_like(self.found)
        block, order = self.cells.block, np.argsort(self.cells.block, kind="stable")
        many = np.flatnonzero(np.bincount(block) > 1)
        edges = np.searchsorted(block[order], np.stack([many, many + 1]))
        for start, end in edges.T:
            own = order[start:end]
            e = self.cells.environment[own]
            parts = self.parts[np.ix_(own, e)]  # a row's own environment is on the diagonal
            parts = np.diag(parts)[:, None] if plain else parts
            crossed[np.ix_(e, e)] += parts * parts.T
        np.fill_diagonal(crossed, 0)
        return crossed

    def permute(self, draws: int, random: np.random.Generator) -> np.ndarray:  # [3, R, E, E]
        """Compute risks, variances and `least` `draws` times with the cells' losses exchanged."""
        count, number = len(self.found), len(self.shares)
        found = np.empty((3, draws, count, count), np.float32)
        means = self.means - self.means.mean(1, keepdims=True) * [[1], [1], [0]]
        losses, apart, least = means.astype(np.float32)  # [m] each
        step = max(1, _CHUNK // number)
        for start in range(0, draws, step):
            of = np.tile(np.arange(number), (min(step, draws - start), 1))
            of = random.permuted(of, axis=1)  # [R, m]
            at = slice(start, start + step)
            for e, own in enumerate(self._cells()):
                shares, here = self.shares[own].astype(np.float32), of[:, own]
                for values, j in ((apart, slice(None)), (losses, slice(e, e + 1))):
                    found[:2, at, e, j] = _weighted_means(values[here], shares[:, j])
                found[2, at, e] = least[here] @ shares**2
        return found

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
    means = np.empty((3, len(cells.block)))
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
        each = np.stack([model.losses, model.losses - same, model.variance], 1)[rows]
        sums, size = within.sum(each), within.sum(np.ones(len(rows)))
        means[:, at] = sums.T / [size, size, size**2]
    return WeightedRisks(
        found=found, least=least, parts=parts, shares=shares, means=means, cells=cells
    )


def compare(
    risks: WeightedRisks,
    drawn: np.ndarray,  # [3, R, E, E], from `permute`
    first: Entries,
    second: Entries,
    level: float,
    judged: np.ndarray,  # [P], the pairs that intervals must hold for together
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gaps `[P]`, errors `[P]` and intervals `[P, 2]`, which hold together if judged."""
    gaps = risks.found[first] - risks.found[second]
    crossed = risks.covariances(plain=bool((first[0] == first[1]).all()))
    variances = risks.variances()
    seen = variances[first] + variances[second] - 2 * crossed[first[0], second[0]]
    errors = np.sqrt(np.maximum(seen, risks.least[first] + risks.least[second]))
    counted = judged & (errors > 0)
    counted = counted if counted.any() else errors > 0
    share = 1 - (1 - level) / min(max(counted.sum(), 1), MOST_SCALES)
    ratios = _permuted_ratios(drawn, first, second)  # [R, P]
    sizes = np.quantile(ratios, share, axis=0, method="higher")
    ratios /= np.maximum(sizes, _TINY)
    largest = (ratios * counted).max(1)
    half = np.quantile(largest, level, method="higher") * sizes * errors
    return gaps, errors, gaps[:, None] + half[:, None] * [-1, 1]


def _weighted_means(
    values: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # [R, m], [m, J] -> [R, J]
    """Return the means of permuted values with these weights, and their variances."""
    squares = np.square(shares)
    means = values @ shares
    spread = values**2 @ squares - 2 * means * (values @ squares) + means**2 * squares.sum(0)
    return means, np.maximum(spread, 0) * len(shares) / max(len(shares) - 1, 1)


def _permuted_ratios(drawn: np.ndarray, first: Entries, second: Entries) -> np.ndarray:
    """Return |gap*| / SE*, `[R, P]`."""
    risks, variances, least = drawn
    gaps = risks[:, *first] - risks[:, *second]
    squares = variances[:, *first] + variances[:, *second]
    squares = np.maximum(squares, least[:, *first] + least[:, *second])
    return np.abs(gaps) / np.sqrt(np.maximum(squares, _TINY))
