"""WRI's penalty as a function of sums over rows, with overlap weights that stay as they are.

    a_bj = s_b o_ij(x_b) / Σ_{b in i} s_b o_ij(x_b),   o_ij = d_j / (d_i + d_j),   row b of i
    R_ij = Σ_{b in i} a_bj l_b,   ρ_ij = Σ_{b in i} s_b o_ij + Σ_{b in j} s_b o_ji
    penalty = mean over pairs of ρ_ij^k · (R_ij − R_ji)² / l̄_ij,   l̄_ij = (R_i + R_j) / 2

with s_b the rows' shares, which sum to one per environment. It equals `wri_penalty` with overlap
weights, normalised, and the scaling "product"; the slopes in R_ij and R_i are written by hand.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from scipy.special import expit

from wri.stacked.linear import Sums


class FixedGaps(NamedTuple):
    """Weights of all rows towards all environments, and how much each pair counts."""

    weights: np.ndarray  # [n, E], zero towards a row's own environment
    pair_weight: np.ndarray  # [E, E], ρ^k; zero without overlap

    @classmethod
    def of(cls, logs: np.ndarray, weights: Sequence[np.ndarray], overlap_power: float) -> Self:
        """Make the weights from log densities `[n, E]` at the rows, environment by environment."""
        count, start = len(weights), 0
        every, overlap = np.zeros_like(logs), np.zeros((count, count))
        for e, own in enumerate(weights):
            rows = slice(start, start + len(own))
            shared = expit(logs[rows] - logs[rows, e : e + 1]) * (own / own.sum())[:, None]
            shared[:, e] = 0
            overlap[e] = shared.sum(0)
            every[rows] = shared / np.where(overlap[e] > 0, overlap[e], 1)
            start += len(own)
        compared = (overlap > 0) & (overlap.T > 0)
        return cls(every, np.where(compared, (overlap + overlap.T) ** overlap_power, 0.0))

    def penalty(self, sums: Sums) -> tuple[float, Sums]:
        """Return the penalty and its slopes in the sums `[E, 1 + E]`: R_i, then R_ij."""
        risks, weighted = sums.losses[:, 0], sums.losses[:, 1:]
        pairs = len(risks) * (len(risks) - 1)
        gap, level = weighted - weighted.T, (risks[:, None] + risks) / 2
        # losses may all be zero: nothing is left to compare
        relative = self.pair_weight * gap / np.where(level > 0, level, 1) / pairs
        each = relative * gap
        own = -(each / np.where(level > 0, level, 1)).sum(1)
        return float(each.sum()), Sums(np.column_stack([own, 4 * relative]))
