"""Weighted risks and their gaps: the mathematics of WRI, for any leading axes.

    R_ij = E_i[α_ij(x) · l(x, y)],   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Weights α_ij on i's rows:

    density     d_j
    overlap     d_j / (d_i + d_j)
    ratio       d_j / d_i towards the reference environment j, the first; the reference's own rows 1
    uniform     1: WRI is VREx then
    published   density weights as the paper's code ran them: weight and loss are averaged before
                they are multiplied, so the weights never act on single examples

Scalings of a squared gap, with l̄ and d̄ the pair's mean loss and mean weight:

    none g²,   product g²/(d̄·l̄),   loss (g/l̄)²,   relative (g/(d̄·l̄))²

Gradients flow through l̄ and d̄.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from wri.errors import InputError, check_option
from wri.objectives.base import weighted_mean

Weighting = Literal["density", "overlap", "ratio", "uniform", "published"]
Scaling = Literal["none", "product", "loss", "relative"]


class Gaps(NamedTuple):
    """Weighted risks side by side: entry [j, i] belongs to i's rows weighted towards j."""

    gap: Tensor  # [..., E, E], R_ij − R_ji
    mean_weight: Tensor  # [..., E, E], symmetric: d̄
    mean_loss: Tensor  # [..., E, E], symmetric: l̄


def pair_weights(log_densities: Tensor, weighting: Weighting = "density") -> Tensor:
    """α_ij at i's rows, `[..., j, i, B]`, from log d_e there, `[..., e, i, B]`."""
    if weighting in ("density", "published"):
        return log_densities.exp()
    if weighting == "uniform":
        return torch.ones_like(log_densities)
    own = log_densities.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)  # [..., i, B]
    towards = log_densities - own.unsqueeze(-3)  # log d_j/d_i
    if weighting == "overlap":
        return towards.sigmoid()
    reference = torch.zeros_like(towards[..., :1, :])  # rows of the first environment
    return torch.cat([reference, towards[..., 1:, :]], dim=-2).exp()


def weighted_gaps(
    losses: Tensor,  # [..., E, B]
    log_densities: Tensor,  # [..., E density, E rows, B]
    weighting: Weighting = "density",
    row_weight: Tensor | None = None,  # [..., E, B]
) -> Gaps:
    weights = pair_weights(log_densities, weighting)  # [..., j, i, B]
    shares = None if row_weight is None else row_weight.unsqueeze(-3)
    mean_weight = weighted_mean(weights, shares)  # [..., j, i]
    mean_loss = weighted_mean(losses, row_weight).unsqueeze(-2)  # [..., 1, i]
    if weighting == "published":
        risks = mean_weight * mean_loss
    else:
        risks = weighted_mean(weights * losses.unsqueeze(-3), shares)  # [..., j, i]
    both_weights = (mean_weight + mean_weight.transpose(-1, -2)) / 2
    both_losses = (mean_loss + mean_loss.transpose(-1, -2)) / 2
    return Gaps(risks - risks.transpose(-1, -2), both_weights, both_losses)


def scaled_penalty(gaps: Gaps, weighting: Weighting, scaling: Scaling) -> Tensor:  # [...]
    """Mean over unordered pairs of the scaled squared gaps."""
    gap, tiny = gaps.gap, torch.finfo(gaps.gap.dtype).tiny  # no overlap: no penalty
    if scaling == "loss":
        gap = gap / gaps.mean_loss.clamp_min(tiny)
    elif scaling == "relative":
        gap = gap / (gaps.mean_weight * gaps.mean_loss).clamp_min(tiny)
    squares = gap.square()
    if scaling == "product":
        squares = squares / (gaps.mean_weight * gaps.mean_loss).clamp_min(tiny)
    environments = squares.shape[-1]
    if weighting == "ratio":  # only the pairs with the reference environment
        return squares[..., 0, 1:].mean(-1)
    return squares.sum((-1, -2)) / (environments * (environments - 1))


def wri_penalty(
    losses: Tensor,
    log_densities: Tensor,
    weighting: Weighting = "density",
    scaling: Scaling = "none",
    row_weight: Tensor | None = None,
) -> Tensor:
    """Mean squared gap of the pairwise weighted risks, for any leading axes.

    Parameters
    ----------
    losses
        Loss of every example, `[..., E, B]`: environment, then example.
    log_densities
        Every environment's log density at every example, `[..., E, E, B]`: first whose
        density, then whose example.
    weighting
        "density", "overlap", "ratio", "uniform" or "published"; see the head of `weighted_risks`.
    scaling
        "none", "product", "loss" or "relative"; see the head of `weighted_risks`.
    row_weight
        Weights that sum to one over each environment's examples; equal when not given.

    Returns
    -------
    Tensor
        The penalty, `[...]`; zero when all weighted risks agree.
    """
    check_option("weighting", weighting, get_args(Weighting))
    check_option("scaling", scaling, get_args(Scaling))
    if losses.shape[-2] < 2:
        raise InputError("losses hold one environment; at least two are needed to compare")
    if log_densities.shape[-3:] != (losses.shape[-2], *losses.shape[-2:]):
        raise InputError(
            f"losses of shape {tuple(losses.shape)} need log_densities of shape [..., E, E, B], "
            f"not {tuple(log_densities.shape)}"
        )
    if scaling == "relative":
        log_densities = without_unit(log_densities, weighting)
    gaps = weighted_gaps(losses, log_densities, weighting, row_weight)
    return scaled_penalty(gaps, weighting, scaling)


def without_unit(log_densities: Tensor, weighting: Weighting) -> Tensor:
    """Each pair's densities in units of their largest value, which keeps clear of underflow.

    The relative scaling does not change with a pair's unit.
    """
    if weighting not in ("density", "published"):
        return log_densities
    largest = log_densities.detach().amax(-1, keepdim=True)  # [..., j, i, 1]
    return log_densities - torch.maximum(largest, largest.transpose(-3, -2))
