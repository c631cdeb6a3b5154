"""WRI's penalty where rows and densities, and so the weights of all pairs, stay as they are.

    T_ij = Σ_{b in i} a_ijb,   r_ij = Σ_{b in i} a_ijb · l_b,   a_ijb = s_b · α_ij(x_b)

with s_b the rows' shares, which sum to one per environment. Weights are made once; a new predictor
costs one sum over the rows. Trees have all rows in memory and any weights (`FixedWeightGaps`). The
solver has sums over chunks of rows, with overlap weights α_ij = d_j / (d_i + d_j), normalised risks
and the scaling "product".
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from wri.densities.base import Density
from wri.objectives.base import weighted_mean
from wri.objectives.weighted_risks import (
    PairSums,
    Scaling,
    Weighting,
    compare_sides,
    gap_penalty,
    pair_overlap,
    pair_penalty,
    side_weights,
    weights_unit,
)
from wri.stacked.linear import Sums

BLOCK = 16384  # rows whose terms are in memory at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedWeightGaps:
    """The weights of all rows in the weighted risks of all pairs, with the options of WRI."""

    weights: tuple[Tensor, ...]  # a, [R, i, j, B]; two for tilted weights
    totals: tuple[Tensor, ...]  # T, [R, j, i]
    pair_weight: Tensor  # [R, E, E], how much each pair counts
    row_weight: Tensor | None  # [R, E, B], s
    weighting: Weighting
    scaling: Scaling
    normalised: bool

    @classmethod
    def of(
        cls,
        log_densities: Tensor,  # [R, E density, E rows, B]
        weighting: Weighting,
        scaling: Scaling,
        row_weight: Tensor | None,  # [R, E, B]
        normalised: bool,
        overlap_power: float,
    ) -> Self:
        """Make the weights from log densities at all rows; options as in `wri_penalty`."""
        unit = weights_unit(scaling, normalised)
        here, there = side_weights(log_densities, weighting, row_weight, unit)  # [R, j, i, B]
        shares = torch.ones_like(here[:, 0]) / here.shape[-1] if row_weight is None else row_weight
        both = [here] if there is here else [here, there]
        sides = [weights * shares.unsqueeze(1) for weights in both]
        if weighting == "published":  # weight and loss are averaged before they are multiplied
            sides = [side.sum(-1, keepdim=True) * shares.unsqueeze(1) for side in sides]
        overlap = pair_overlap(log_densities, row_weight)
        return cls(
            weights=tuple(side.transpose(1, 2).contiguous() for side in sides),
            totals=tuple(side.sum(-1) for side in sides),
            pair_weight=overlap**overlap_power if overlap_power else torch.ones_like(overlap),
            row_weight=row_weight,
            weighting=weighting,
            scaling=scaling,
            normalised=normalised,
        )

    def penalty(self, losses: Tensor) -> Tensor:  # [R, E, B] -> [R]
        """Return what `wri_penalty` gives for these losses, in the form "square"."""
        loss = weighted_mean(losses, self.row_weight)
        sides = [
            PairSums(total, (side @ losses.unsqueeze(-1)).squeeze(-1).mT, loss)
            for side, total in zip(self.weights, self.totals, strict=True)
        ]
        reference = self.weighting == "ratio"
        gaps = compare_sides(sides[0], sides[-1], self.normalised, reference)
        return gap_penalty([gaps], self.scaling, reference, self.pair_weight)


def overlap_weights(
    x: np.ndarray, environment: np.ndarray, *, density: Density, fitted: np.ndarray, count: int
) -> np.ndarray:  # [n, D], [n] -> [n, E]
    """Return the overlap weights of rows towards all environments, zero towards their own."""
    flat, every = torch.as_tensor(fitted), np.empty((len(x), count))
    with torch.no_grad():
        for start in range(0, len(x), BLOCK):
            some = torch.as_tensor(x[start : start + BLOCK])[None]
            every[start : start + BLOCK] = density.log_density(flat, some, count, {})[0].numpy().T
    rows = np.arange(len(x))
    weights = expit(every - every[rows, environment][:, None])
    weights[rows, environment] = 0
    return weights


def fixed_weight_penalty(sums: Sums, overlap_power: float) -> tuple[float, Sums]:
    """Return the penalty and its slopes in the solver's sums `[E, 1 + E]`: R_i, then r_ij."""
    assert sums.weights is not None  # tables sum them
    total = sums.weights[:, 1:].T  # [j, i], T
    pairs = PairSums(total, sums.losses[:, 1:].T, sums.losses[:, 0])
    pair_weight = (total + total.T) ** overlap_power  # ρ^k; without overlap there is no gap
    penalty, at = pair_penalty(pairs, "product", normalised=True, pair_weight=pair_weight)
    return float(penalty), Sums(np.column_stack([at.loss, at.risk.T]))
