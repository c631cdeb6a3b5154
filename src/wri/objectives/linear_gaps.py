"""Gaps as linear functions of the losses, where rows and densities stay as they are.

    R_ij = Σ_b W_ijb · l_ib,   W_ij = ∂R_ij / ∂l_i

Trees see all rows in every round, with densities that were fitted once. So the weights are made
once, by differentiating `weighted_gaps`, and a round multiplies them by the losses.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from wri.objectives.base import weighted_mean
from wri.objectives.weighted_risks import (
    Scaling,
    WeightedGaps,
    Weighting,
    over_pairs,
    pair_overlap,
    scaled_gaps,
    weighted_gaps,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGaps:
    """The weights of all rows in the weighted risks of all pairs."""

    own: Tensor  # [R, E, E, B]: R_ij of i's rows, in the order i, j
    other: Tensor  # the same of the risks that these are compared with, R_ji of j's rows: j, i
    mean_weight: Tensor  # [R, E, E]
    pair_weight: Tensor  # [R, E, E], how much each pair counts
    row_weight: Tensor | None  # [R, E, B]
    weighting: Weighting
    scaling: Scaling

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
        """From log densities at all rows; options as in `wri_penalty`."""
        any_unit = scaling in ("relative", "risk")
        losses = torch.ones_like(log_densities[:, 0]).requires_grad_()
        with torch.enable_grad():
            found = weighted_gaps(
                losses, log_densities, weighting, row_weight, normalised, any_unit
            )
            own, other = found.mean_risk + found.gap / 2, found.mean_risk - found.gap / 2
            places = range(losses.shape[1])
            # [R, j, i] depends on i's losses alone for own, and on j's for other
            rows = [torch.autograd.grad(own[:, j].sum(), losses, retain_graph=True) for j in places]
            columns = [
                torch.autograd.grad(other[:, :, i].sum(), losses, retain_graph=True) for i in places
            ]
        overlap = pair_overlap(log_densities, row_weight)
        return cls(
            own=torch.stack([slope for (slope,) in rows], 2),
            other=torch.stack([slope for (slope,) in columns], 2),
            mean_weight=found.mean_weight.detach(),
            pair_weight=overlap**overlap_power if overlap_power else torch.ones_like(overlap),
            row_weight=row_weight,
            weighting=weighting,
            scaling=scaling,
        )

    def gaps(self, losses: Tensor) -> WeightedGaps:  # [R, E, B]
        """What `weighted_gaps` gives for these losses."""
        own = (self.own @ losses.unsqueeze(-1)).squeeze(-1).transpose(-1, -2)  # [R, j, i]
        other = (self.other @ losses.unsqueeze(-1)).squeeze(-1)  # [R, j, i]
        mean_loss = weighted_mean(losses, self.row_weight).unsqueeze(-2)
        return WeightedGaps(
            own - other,
            self.mean_weight,
            (mean_loss + mean_loss.transpose(-1, -2)) / 2,
            (own + other) / 2,
        )

    def penalty(self, losses: Tensor) -> Tensor:  # [R, E, B] -> [R]
        """What `wri_penalty` gives for these losses, in the form "square"."""
        scaled = scaled_gaps(self.gaps(losses), self.scaling)
        return over_pairs(scaled.square() * self.pair_weight, self.weighting)
