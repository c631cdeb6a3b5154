"""Weighted risks and their gaps: the mathematics of WRI, for any leading axes.

    R_ij = E_i[α_ij(x) · l(x, y)],   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Weights α_ij on i's rows:

    density     d_j
    overlap     o = d_j / (d_i + d_j)
    tilted      two at once for every pair: overlap weights times d_i / (d_i + d_j), so o·(1 − o) on
                i's rows and o² on j's, and the same with i and j exchanged
    ratio       d_j / d_i towards the reference environment j, the first; the reference's own rows 1
    uniform     1: WRI is VREx then
    published   density weights as the paper's code ran them: weight and loss are averaged before
                they are multiplied, so the weights never act on single examples

A weighted risk may be `normalised`, divided by the mean weight of its own rows: R_ij / E_i[α_ij].
Scalings of a squared gap, with l̄, d̄ and R̄ the pair's mean loss, weight and weighted risk:

    none g²,   product g²/(d̄·l̄),   loss (g/l̄)²,   relative (g/(d̄·l̄))²,   risk (g/R̄)²

Gradients flow through l̄, d̄ and R̄. The square of a batch's gap is too large by the gap's variance;
`form="halves"` multiplies the gaps of two half-batches instead, which is not.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from wri.errors import InputError, check_option
from wri.objectives.base import half_weights, halves, weighted_mean

Weighting = Literal["density", "overlap", "tilted", "ratio", "uniform", "published"]
Scaling = Literal["none", "product", "loss", "relative", "risk"]
Form = Literal["square", "halves"]


class Gaps(NamedTuple):
    """Weighted risks side by side: entry [j, i] belongs to i's rows weighted towards j.

    Under tilted weights [j, i] is the pair's gap where i is common, [i, j] that where j is.
    """

    gap: Tensor  # [..., E, E], R_ij − R_ji
    mean_weight: Tensor  # [..., E, E]: d̄
    mean_loss: Tensor  # [..., E, E]: l̄
    mean_risk: Tensor  # [..., E, E]: R̄


def pair_weights(log_densities: Tensor, weighting: Weighting = "density") -> Tensor:
    """α_ij at i's rows, `[..., j, i, B]`, from log d_e there, `[..., e, i, B]`.

    Of tilted weights the overlap weights that both are made of.
    """
    if weighting in ("density", "published"):
        return log_densities.exp()
    if weighting == "uniform":
        return torch.ones_like(log_densities)
    if weighting in ("overlap", "tilted"):
        return _towards(log_densities).sigmoid()
    return _log_ratios(log_densities).exp()


def _towards(log_densities: Tensor) -> Tensor:  # [..., j, i, B]
    """log d_j/d_i at i's rows."""
    own = log_densities.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)  # [..., i, B]
    return log_densities - own.unsqueeze(-3)


def _log_ratios(log_densities: Tensor) -> Tensor:  # [..., j, i, B]
    towards = _towards(log_densities)
    reference = torch.zeros_like(towards[..., :1, :])  # rows of the first environment
    return torch.cat([reference, towards[..., 1:, :]], dim=-2)


Sides = tuple[Tensor, Tensor]
"""Weights `[..., j, i, B]` where i is common and where j is; one and the same unless tilted."""


def _weights(log_densities: Tensor, weighting: Weighting) -> Sides:
    weights = pair_weights(log_densities, weighting)
    if weighting == "tilted":
        return weights * (1 - weights), weights.square()
    return weights, weights


def _weights_in_own_units(log_densities: Tensor, weighting: Weighting) -> Sides:
    """Weights divided by their largest over the rows: none underflow that count."""

    def scaled(logs: Tensor) -> Tensor:
        largest = logs.detach().amax(-1, keepdim=True)
        return (logs - largest.clamp_min(torch.finfo(logs.dtype).min)).exp()

    if weighting == "tilted":
        towards = _towards(log_densities)
        there = logsigmoid(towards)
        return scaled(there + logsigmoid(-towards)), scaled(2 * there)
    if weighting == "overlap":
        logs = logsigmoid(_towards(log_densities))
    elif weighting == "ratio":
        logs = _log_ratios(log_densities)
    else:
        logs = torch.zeros_like(log_densities) if weighting == "uniform" else log_densities
    weights = scaled(logs)
    return weights, weights


def weighted_gaps(
    losses: Tensor,  # [..., E, B]
    log_densities: Tensor,  # [..., E density, E rows, B]
    weighting: Weighting = "density",
    row_weight: Tensor | None = None,  # [..., E, B]
    normalised: bool = False,
) -> Gaps:
    chosen = _weights_in_own_units if normalised else _weights
    here, there = chosen(log_densities, weighting)  # [..., j, i, B]
    shares = None if row_weight is None else row_weight.unsqueeze(-3)
    mean_loss = weighted_mean(losses, row_weight).unsqueeze(-2)  # [..., 1, i]

    def weigh(weights: Tensor) -> tuple[Tensor, Tensor]:  # mean weight and risk [..., j, i]
        mean_weight = weighted_mean(weights, shares)
        if weighting == "published":
            risks = mean_weight * mean_loss
        else:
            risks = weighted_mean(weights * losses.unsqueeze(-3), shares)
        if not normalised:
            return mean_weight, risks
        return torch.ones_like(mean_weight), risks / mean_weight.clamp_min(_tiny(mean_weight))

    own_weight, own = weigh(here)
    other_weight, other = (own_weight, own) if there is here else weigh(there)
    other = other.transpose(-1, -2)
    return Gaps(
        own - other,
        (own_weight + other_weight.transpose(-1, -2)) / 2,
        (mean_loss + mean_loss.transpose(-1, -2)) / 2,
        (own + other) / 2,
    )


def scaled_gaps(gaps: Gaps, scaling: Scaling) -> Tensor:  # [..., E, E]
    """Gaps in the unit in which they are squared."""
    if scaling == "none":
        return gaps.gap
    unit = {
        "product": gaps.mean_weight * gaps.mean_loss,
        "loss": gaps.mean_loss,
        "relative": gaps.mean_weight * gaps.mean_loss,
        "risk": gaps.mean_risk,
    }[scaling].clamp_min(_tiny(gaps.gap))  # no overlap: no penalty
    return gaps.gap / (unit.sqrt() if scaling == "product" else unit)


def over_pairs(squares: Tensor, weighting: Weighting) -> Tensor:  # [..., E, E] -> [...]
    """Mean over the pairs that the weighting compares."""
    environments = squares.shape[-1]
    if weighting == "ratio":  # only the pairs with the reference environment
        return squares[..., 0, 1:].mean(-1)
    return squares.sum((-1, -2)) / (environments * (environments - 1))


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny


def wri_penalty(
    losses: Tensor,
    log_densities: Tensor,
    weighting: Weighting = "density",
    scaling: Scaling = "none",
    row_weight: Tensor | None = None,
    normalised: bool = False,
    form: Form = "square",
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
        "density", "overlap", "tilted", "ratio", "uniform" or "published"; see the head of
        `weighted_risks`.
    scaling
        "none", "product", "loss", "relative" or "risk"; see the head of `weighted_risks`.
    row_weight
        Weights that sum to one over each environment's examples; equal when not given.
    normalised
        Divide every weighted risk by the mean weight of its rows.
    form
        "square", or "halves" for the product of the gaps of the two interleaved half-batches.

    Returns
    -------
    Tensor
        The penalty, `[...]`; zero when all weighted risks agree.
    """
    check_option("weighting", weighting, get_args(Weighting))
    check_option("scaling", scaling, get_args(Scaling))
    check_option("form", form, get_args(Form))
    if losses.shape[-2] < 2:
        raise InputError("losses hold one environment; at least two are needed to compare")
    if log_densities.shape[-3:] != (losses.shape[-2], *losses.shape[-2:]):
        raise InputError(
            f"losses of shape {tuple(losses.shape)} need log_densities of shape [..., E, E, B], "
            f"not {tuple(log_densities.shape)}"
        )
    if scaling == "relative" and not normalised:
        log_densities = without_unit(log_densities, weighting)
    parts = [(losses, log_densities, row_weight)]
    if form == "halves":
        parts = list(
            zip(halves(losses), halves(log_densities), half_weights(row_weight), strict=True)
        )
    gaps = [
        scaled_gaps(weighted_gaps(loss, logs, weighting, weight, normalised), scaling)
        for loss, logs, weight in parts
    ]
    return over_pairs(gaps[0] * gaps[-1], weighting)


def without_unit(log_densities: Tensor, weighting: Weighting) -> Tensor:
    """Each pair's densities in units of their largest value, which keeps clear of underflow.

    The relative scaling does not change with a pair's unit.
    """
    if weighting not in ("density", "published"):
        return log_densities
    largest = log_densities.detach().amax(-1, keepdim=True)  # [..., j, i, 1]
    return log_densities - torch.maximum(largest, largest.transpose(-3, -2))
