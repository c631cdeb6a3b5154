"""WRI's penalty as a function of sums over rows, with overlap weights that stay as they are.

    a_bj = s_b o_ij(x_b),   o_ij = d_j / (d_i + d_j),   T_ij = Σ_{b in i} a_bj,   row b of i
    R_ij = Σ_{b in i} a_bj l_b / T_ij,   ρ_ij = T_ij + T_ji
    penalty = mean over pairs of ρ_ij^k · (R_ij − R_ji)² / l̄_ij,   l̄_ij = (R_i + R_j) / 2

with s_b the rows' shares, which sum to one per environment. It equals `wri_penalty` with overlap
weights, normalised, and the scaling "product"; the slopes in the sums are written by hand.
"""

import numpy as np
import torch
from scipy.special import expit

from wri.densities.base import Density
from wri.stacked.linear import Sums

BLOCK = 4096  # rows whose terms fit into the cache


def overlap_weights(
    x: np.ndarray, environment: np.ndarray, *, density: Density, fitted: np.ndarray, count: int
) -> np.ndarray:  # [n, D], [n] -> [n, E]
    """Return o of rows towards all environments, zero towards their own."""
    flat, every = torch.as_tensor(fitted), np.empty((len(x), count))
    with torch.no_grad():
        for start in range(0, len(x), BLOCK):
            some = torch.as_tensor(x[start : start + BLOCK])[None]
            every[start : start + BLOCK] = density.log_density(flat, some, count, {})[0].numpy().T
    rows = np.arange(len(x))
    weights = expit(every - every[rows, environment][:, None])
    weights[rows, environment] = 0
    return weights


def fixed_gap_penalty(sums: Sums, overlap_power: float) -> tuple[float, Sums]:
    """Return the penalty and its slopes in the sums `[E, 1 + E]`: R_i, then R_ij · T_ij."""
    assert sums.weights is not None  # tables sum them
    total = sums.weights[:, 1:]
    compared = (total > 0) & (total.T > 0)
    divisor = np.where(compared, total, 1)
    pair_weight = np.where(compared, (total + total.T) ** overlap_power, 0.0)
    risks, weighted = sums.losses[:, 0], sums.losses[:, 1:] / divisor
    pairs = len(risks) * (len(risks) - 1)
    gap, level = weighted - weighted.T, (risks[:, None] + risks) / 2
    # losses may all be zero: nothing is left to compare
    relative = pair_weight * gap / np.where(level > 0, level, 1) / pairs
    each = relative * gap
    own = -(each / np.where(level > 0, level, 1)).sum(1)
    return float(each.sum()), Sums(np.column_stack([own, 4 * relative / divisor]))
