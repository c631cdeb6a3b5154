"""Weighted risks and their gaps: the mathematics of WRI, for any leading axes.

    R_ij = E_i[α_ij(x) · l(x, y)],   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Weights α_ij on i's rows:

    density     d_j
    overlap     o = d_j / (d_i + d_j)
    tilted      two at once for every pair: overlap weights times d_i / (d_i + d_j), so o·(1 − o) on
                i's rows and o² on j's, and the same with i and j exchanged
    ratio       d_j / d_i towards the reference environment j, the first; everywhere else 1
    uniform     1: WRI is VREx then
    published   density weights as the paper's code ran them: weight and loss are averaged before
                they are multiplied, so the weights never act on single examples

A weighted risk may be `normalised`, divided by the mean weight of its own rows: R_ij / E_i[α_ij].
Scalings of a squared gap, with l̄, d̄ and R̄ the pair's mean loss, weight and weighted risk:

    none g²,   product g²/(d̄·l̄),   loss (g/l̄)²,   relative (g/(d̄·l̄))²,   risk (g/R̄)²

relative and risk do not depend on the unit of the weights, nor does any scaling of normalised
risks: there weights are taken in units of their largest, and log densities of any size give a
finite penalty. none, product and loss depend on it, as the paper's penalty does: the penalty
changes with d², d and d². There weights are taken as they are: a penalty beyond the range of
numbers is not finite, one below it is zero, and `WRI` warns where λ times the penalty is too small
to be seen beside the risk. Without overlap a pair has no penalty, whatever the scaling.

A pair that has little in common has few effective rows, and the gap of its normalised risks is
noise. So a pair's squared gap may count by a power k of its overlap,

    ρ_ij^k · g_ij²,   ρ_ij = E_i[o_ij] + E_j[o_ji],   1 for equal densities, 0 for disjoint ones

which goes to zero with the overlap; with k = 0 all pairs count alike.

Gradients flow through l̄, d̄ and R̄. The square of a batch's gap is too large by the gap's variance;
`form="halves"` multiplies the gaps of two half-batches instead, which is not.
"""

from math import log
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from wri.errors import InputError, check_option
from wri.objectives.base import half_weights, halves, weighted_mean

Weighting = Literal["density", "overlap", "tilted", "ratio", "uniform", "published"]
Scaling = Literal["none", "product", "loss", "relative", "risk"]
Form = Literal["square", "halves"]


class WeightedGaps(NamedTuple):
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
    """log d_j/d_i towards the first environment; zero where nothing is compared by ratios."""
    own = log_densities.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)  # [..., i, B]
    towards = log_densities[..., 0, :, :] - own
    return torch.cat([towards.unsqueeze(-3), torch.zeros_like(log_densities[..., 1:, :, :])], -3)


Sides = tuple[Tensor, Tensor]
"""Weights `[..., j, i, B]` where i is common and where j is; one and the same unless tilted."""

Unit = Literal["given", "pair", "own"]
"""Weights as they are, or divided by the largest of a pair or of a pair's one environment."""


def _weights(
    log_densities: Tensor, weighting: Weighting, row_weight: Tensor | None, unit: Unit
) -> Sides:
    if weighting == "uniform" or (weighting in ("overlap", "tilted") and unit != "own"):
        weights = pair_weights(log_densities, weighting)  # never above one
        if weighting == "tilted":
            return weights * (1 - weights), weights.square()
        return weights, weights
    logs = _log_weights(log_densities, weighting)
    if row_weight is not None:  # padding has no weight, however large the densities are there
        real = (row_weight > 0).unsqueeze(-3)  # [..., 1, i, B]
        logs = tuple(torch.where(real, side, -torch.inf) for side in logs)
    if unit == "own":
        logs = tuple(side - _largest(side) for side in logs)
    elif unit == "pair":
        largest = _largest(logs[0])  # [..., j, i, 1]
        logs = (logs[0] - torch.maximum(largest, largest.transpose(-3, -2)),)
    sides = tuple(side.exp() for side in logs)
    return sides[0], sides[-1]


def _log_weights(log_densities: Tensor, weighting: Weighting) -> tuple[Tensor, ...]:
    """Of tilted weights both sides; otherwise the one that serves for both."""
    if weighting == "tilted":
        towards = _towards(log_densities)
        there = logsigmoid(towards)
        return there + logsigmoid(-towards), 2 * there
    if weighting == "overlap":
        return (logsigmoid(_towards(log_densities)),)
    return (_log_ratios(log_densities) if weighting == "ratio" else log_densities,)


def _largest(logs: Tensor) -> Tensor:  # [..., B] -> [..., 1]
    """The largest over the rows, a number even where every weight is zero."""
    return logs.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(logs.dtype).min)


def weighted_gaps(
    losses: Tensor,  # [..., E, B]
    log_densities: Tensor,  # [..., E density, E rows, B]
    weighting: Weighting = "density",
    row_weight: Tensor | None = None,  # [..., E, B]
    normalised: bool = False,
    any_unit: bool = False,
) -> WeightedGaps:
    """Gaps of all pairs; with `any_unit` weights are in units of each pair's largest."""
    unit: Unit = "own" if normalised else "pair" if any_unit else "given"
    here, there = _weights(log_densities, weighting, row_weight, unit)  # [..., j, i, B]
    shares = None if row_weight is None else row_weight.unsqueeze(-3)
    mean_loss = weighted_mean(losses, row_weight).unsqueeze(-2)  # [..., 1, i]

    def weigh(weights: Tensor) -> tuple[Tensor, Tensor]:  # mean weight and risk [..., j, i]
        mean_weight = weighted_mean(weights, shares)
        if weighting == "published":
            return mean_weight, mean_weight * mean_loss
        return mean_weight, weighted_mean(weights * losses.unsqueeze(-3), shares)

    own_weight, own = weigh(here)
    other_weight, other = (own_weight, own) if there is here else weigh(there)
    other_weight, other = other_weight.transpose(-1, -2), other.transpose(-1, -2)
    if normalised or weighting == "ratio":  # elsewhere both risks are zero without overlap
        least = _least(own) if normalised else 0.0
        compared = (own_weight > least) & (other_weight > least)
        own, other = torch.where(compared, own, 0.0), torch.where(compared, other, 0.0)
    if normalised:
        own = own / torch.where(compared, own_weight, 1.0)
        other = other / torch.where(compared, other_weight, 1.0)
        own_weight = other_weight = torch.ones_like(own)
    return WeightedGaps(
        own - other,
        (own_weight + other_weight) / 2,
        (mean_loss + mean_loss.transpose(-1, -2)) / 2,
        (own + other) / 2,
    )


def scaled_gaps(gaps: WeightedGaps, scaling: Scaling) -> Tensor:  # [..., E, E]
    """Gaps in the unit in which they are squared."""
    if scaling == "none":
        return gaps.gap
    unit = {
        "product": gaps.mean_weight * gaps.mean_loss,
        "loss": gaps.mean_loss,
        "relative": gaps.mean_weight * gaps.mean_loss,
        "risk": gaps.mean_risk,
    }[scaling]
    compared = unit > _least(unit)
    unit = torch.where(compared, unit, 1.0)
    gap = torch.where(compared, gaps.gap, 0.0)  # no overlap: no penalty
    return gap / (unit.sqrt() if scaling == "product" else unit)


def pair_overlap(
    log_densities: Tensor, row_weight: Tensor | None = None
) -> Tensor:  # [..., E, E, B] -> [..., E, E]
    """ρ_ij, the share of their cases that two environments have in common; symmetric."""
    shares = None if row_weight is None else row_weight.unsqueeze(-3)
    weights = _towards(log_densities).sigmoid()  # 1/2 where i is j
    if shares is not None:  # densities at padding may be anything
        weights = torch.where(shares > 0, weights, 0.0)
    side = weighted_mean(weights, shares)  # [..., j, i]
    return side + side.transpose(-1, -2)


def over_pairs(squares: Tensor, weighting: Weighting) -> Tensor:  # [..., E, E] -> [...]
    """Mean over the pairs that the weighting compares."""
    environments = squares.shape[-1]
    if weighting == "ratio":  # only the pairs with the reference environment
        return squares[..., 0, 1:].mean(-1)
    return squares.sum((-1, -2)) / (environments * (environments - 1))


def largest_elsewhere(
    log_densities: Tensor, row_weight: Tensor | None
) -> Tensor:  # [..., E, E, B] -> [..., E, E]
    """The largest log density of j at i's rows; −inf where i is j."""
    if row_weight is not None:
        real = (row_weight > 0).unsqueeze(-3)
        log_densities = torch.where(real, log_densities, -torch.inf)
    own = torch.eye(log_densities.shape[-2], dtype=torch.bool, device=log_densities.device)
    return log_densities.amax(-1).masked_fill(own, -torch.inf)


def is_out_of_sight(largest: Tensor, scaling: Scaling, penalty_weight: Tensor) -> Tensor:  # [R]
    """Whether weights up to e^`largest` leave λ times the penalty below the risk's last digit.

    Relative scaling takes any weight above zero; it depends on the unit with a running mean only.
    """
    limits = torch.finfo(largest.dtype)
    if scaling == "relative":
        return largest < log(limits.tiny)
    power = 1 if scaling == "product" else 2
    return penalty_weight.log() + power * largest < log(limits.eps)


def _least(like: Tensor) -> float:
    """What is divided by lies above this, so that gradients stay in the range of numbers."""
    return torch.finfo(like.dtype).tiny ** 0.75


def wri_penalty(
    losses: Tensor,
    log_densities: Tensor,
    weighting: Weighting = "density",
    scaling: Scaling = "none",
    row_weight: Tensor | None = None,
    normalised: bool = False,
    form: Form = "square",
    overlap_power: float = 0.0,
) -> Tensor:
    """Mean squared gap of the pairwise weighted risks, for any leading axes.

    Parameters
    ----------
    losses
        Loss of every example, `[..., E, B]`: environment, then example.
    log_densities
        Every environment's log density at every example, `[..., E, E, B]`: first whose
        density, then whose example.
    weighting, scaling
        See the head of `weighted_risks`.
    row_weight
        Weights that sum to one over each environment's examples; equal when not given. Examples
        of weight zero are padding; their losses must be finite, their densities may be anything.
    normalised
        Divide every weighted risk by the mean weight of its rows.
    form
        "square", or "halves" for the product of the gaps of the two interleaved half-batches.
    overlap_power
        Pairs count by this power of their overlap; 0 lets all count alike.

    Returns
    -------
    Tensor
        The penalty, `[...]`; zero when all weighted risks agree, and without overlap.
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
    parts = [(losses, log_densities, row_weight)]
    if form == "halves":
        parts = list(
            zip(halves(losses), halves(log_densities), half_weights(row_weight), strict=True)
        )
    any_unit = scaling in ("relative", "risk")
    gaps = [
        scaled_gaps(weighted_gaps(loss, logs, weighting, weight, normalised, any_unit), scaling)
        for loss, logs, weight in parts
    ]
    squares = gaps[0] * gaps[-1]
    if overlap_power:
        squares = squares * pair_overlap(log_densities, row_weight) ** overlap_power
    return over_pairs(squares, weighting)


def penalty_slope(
    losses: Tensor,
    log_densities: Tensor,
    weighting: Weighting,
    scaling: Scaling,
    row_weight: Tensor | None,
    factor: Tensor,
    moderate: bool = False,
) -> Tensor:
    """Gradient of `factor` times `wri_penalty` at the log densities, `[..., E, E, B]`.

    By hand for density and published weights in relative scaling, by automatic differentiation for
    the others. With sums d̄ and r over i's rows of d_j and of d_j·l, which need no common unit,

        s = (r_ij − r_ji)/U,   U = (d̄_ij + d̄_ji)·(l̄_i + l̄_j)/4,   ∂s²/∂r = 2·s/U,   ∂s²/∂U = −2·s²/U

    `factor` is `[..., 1, 1]`. With `moderate` densities are known to be neither tiny nor huge.
    """
    environments = losses.shape[-2]
    if weighting not in ("density", "published") or scaling != "relative":
        logs = log_densities.detach().requires_grad_()
        with torch.enable_grad():
            penalty = wri_penalty(losses, logs, weighting, scaling, row_weight)
            total = (factor[..., 0, 0] * penalty).sum()
        return torch.autograd.grad(total, logs)[0]
    unit: Unit = "given" if moderate else "pair"
    weights, _ = _weights(log_densities, weighting, row_weight, unit)  # [..., j, i, B]
    if row_weight is not None:
        weights = weights * row_weight.unsqueeze(-3)
    weight = weights.sum(-1)  # [..., j, i]
    loss = weighted_mean(losses, row_weight)  # [..., i]
    if weighting == "published":
        row_losses = loss[..., None, :, None]
        risk = weight * loss.unsqueeze(-2)
    else:
        row_losses = losses.unsqueeze(-3)
        risk = (weights * row_losses).sum(-1)
    both = loss.unsqueeze(-1) + loss.unsqueeze(-2)  # l̄_i + l̄_j
    units = (weight + weight.transpose(-1, -2)).mul_(both)  # 4·U
    inverse = torch.where(units > 4 * _least(units), units.reciprocal(), 0.0)
    scaled = (risk - risk.transpose(-1, -2)).mul_(inverse)  # s/4
    # a pair stands in the sum over pairs twice, and each of its risks with it
    at_risk = scaled * inverse * (factor * (64 / (environments * (environments - 1))))
    at_weight = (scaled * both).mul_(at_risk)
    return torch.addcmul(-at_weight.unsqueeze(-1), at_risk.unsqueeze(-1), row_losses) * weights
