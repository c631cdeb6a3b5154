"""Weighted risks and their gaps: the mathematics of WRI, for any leading axes.

    R_ij = E_i[α_ij(x) · l(x, y)],   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Weights α_ij on the rows of i:

    density     d_j
    overlap     o = d_j / (d_i + d_j)
    tilted      two per pair: overlap weights times d_i / (d_i + d_j), so o·(1 − o) on the rows of
                i and o² on those of j, and the same with i and j exchanged
    ratio       d_j / d_i towards the reference environment j, the first; everywhere else 1
    uniform     1: then WRI is VREx
    published   density weights as in the paper's code: weight and loss are averaged before they
                are multiplied, so the weights never act on single examples

A weighted risk may be `normalised`, divided by the mean weight of its own rows: R_ij / E_i[α_ij].
Scalings of a squared gap, with l̄, d̄ and R̄ the pair's mean loss, weight and weighted risk:

    none g²,   product g²/(d̄·l̄),   loss (g/l̄)²,   relative (g/(d̄·l̄))²,   risk (g/R̄)²

relative and risk do not depend on the unit of the weights, nor does any scaling of normalised
risks: there weights are divided by their largest value, and log densities of any size give a
finite penalty. none, product and loss depend on it, as the paper's penalty does: the penalty
changes with d², d and d². There weights are not rescaled: a penalty above the range of floats is
not finite, one below it is zero, and `WRI` warns if λ times the penalty is too small beside the
risk. A pair without overlap has no penalty, whatever the scaling.

A pair with little overlap has few effective rows, and the gap of its normalised risks is noise. So
the squared gap of a pair may be weighted with a power k of its overlap,

    ρ_ij^k · g_ij²,   ρ_ij = E_i[o_ij] + E_j[o_ji],   1 for equal densities, 0 for disjoint ones

which goes to zero with the overlap; with k = 0 all pairs count the same.

Gradients flow through l̄, d̄ and R̄. The expected square of a batch's gap exceeds the squared gap
by the variance of the gap; `form="halves"` multiplies the gaps of two half-batches, which does not.

The penalty is written once, for NumPy's arrays and for tensors, in three parts: `compare_sides`
(sums over rows to gaps), `scaled_gaps` and `over_pairs`. `pair_penalty` puts them together and adds
the slopes in the sums, for the solver and the density steps.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import log
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from wri.errors import InputError, check_option
from wri.objectives.base import half_weights, halves, weighted_mean

Weighting = Literal["density", "overlap", "tilted", "ratio", "uniform", "published"]
Scaling = Literal["none", "product", "loss", "relative", "risk"]
Form = Literal["square", "halves"]
Array = TypeVar("Array", np.ndarray, Tensor)


class WeightedGaps(NamedTuple, Generic[Array]):
    """Gaps of weighted risks; entry [j, i] belongs to the rows of i weighted towards j.

    With tilted weights [j, i] is the pair's gap where i is common, [i, j] the gap where j is
    common.

    Attributes
    ----------
    gap : Tensor of shape (..., E, E)
        R_ij − R_ji.
    mean_weight : Tensor of shape (..., E, E)
        d̄, the pair's mean weight.
    mean_loss : Tensor of shape (..., E, E)
        l̄, the pair's mean loss.
    mean_risk : Tensor of shape (..., E, E)
        R̄, the pair's mean weighted risk.
    """

    gap: Array
    mean_weight: Array
    mean_loss: Array
    mean_risk: Array


class PairSums(NamedTuple, Generic[Array]):
    """Sums over rows that the penalty depends on, or its slopes in them."""

    weight: Array  # [..., j, i], E_i[α_ij]
    risk: Array  # [..., j, i], E_i[α_ij · l]
    loss: Array  # [..., i], E_i[l]


def pair_weights(log_densities: Tensor, weighting: Weighting = "density") -> Tensor:
    """Compute the weights α_ij of all pairs from log densities.

    Parameters
    ----------
    log_densities : Tensor of shape (..., E, E, B)
        Log density of each environment at each row: first whose density, then whose row.
    weighting : {"density", "overlap", "tilted", "ratio", "uniform", "published"}, default="density"
        Kind of weights: d_j; d_j / (d_i + d_j); the same; d_j / d_i towards the first environment;
        1; d_j.

    Returns
    -------
    weights : Tensor of shape (..., E, E, B)
        α_ij at the rows of i, `[..., j, i, B]`. For tilted weights these are the overlap weights
        that both sides are made of.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import pair_weights
    >>> densities = torch.tensor([[[0.2], [0.5]], [[0.6], [0.5]]])
    >>> pair_weights(densities.log(), "overlap")[..., 0]
    tensor([[0.5000, 0.5000],
            [0.7500, 0.5000]])
    """
    if weighting in ("density", "published"):
        return log_densities.exp()
    if weighting == "uniform":
        return torch.ones_like(log_densities)
    if weighting in ("overlap", "tilted"):
        return _towards(log_densities).sigmoid()
    return _log_ratios(log_densities).exp()


def _towards(log_densities: Tensor) -> Tensor:  # [..., j, i, B]
    """Return log d_j/d_i at the rows of i."""
    own = log_densities.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)  # [..., i, B]
    return log_densities - own.unsqueeze(-3)


def _log_ratios(log_densities: Tensor) -> Tensor:  # [..., j, i, B]
    """Return log d_j/d_i towards the first environment; zero for all other pairs."""
    own = log_densities.diagonal(dim1=-3, dim2=-2).movedim(-1, -2)  # [..., i, B]
    towards = log_densities[..., 0, :, :] - own
    return torch.cat([towards.unsqueeze(-3), torch.zeros_like(log_densities[..., 1:, :, :])], -3)


Sides = tuple[Tensor, Tensor]
"""Weights `[..., j, i, B]` where i is common and where j is; the same tensor unless tilted."""

Unit = Literal["given", "pair", "own"]
"""Weights unchanged, or divided by the largest of the pair or of one environment of the pair."""


def weights_unit(scaling: Scaling, normalised: bool) -> Unit:
    """Return the unit of weights in which the penalty stays in the range of floats."""
    return "own" if normalised else "pair" if scaling in ("relative", "risk") else "given"


def side_weights(
    log_densities: Tensor, weighting: Weighting, row_weight: Tensor | None, unit: Unit
) -> Sides:
    """Return the weights of both sides in a unit."""
    if weighting == "uniform" or (weighting in ("overlap", "tilted") and unit != "own"):
        weights = pair_weights(log_densities, weighting)  # never above one
        if weighting == "tilted":
            return weights * (1 - weights), weights.square()
        return weights, weights
    logs = _log_weights(log_densities, weighting)
    if row_weight is not None:  # padding has no weight, whatever the densities there
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
    """Return both sides of tilted weights; otherwise the one that serves for both."""
    if weighting == "tilted":
        towards = _towards(log_densities)
        there = logsigmoid(towards)
        return there + logsigmoid(-towards), 2 * there
    if weighting == "overlap":
        return (logsigmoid(_towards(log_densities)),)
    return (_log_ratios(log_densities) if weighting == "ratio" else log_densities,)


def _largest(logs: Tensor) -> Tensor:  # [..., B] -> [..., 1]
    """Return the largest over the rows; finite also if every weight is zero."""
    return logs.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(logs.dtype).min)


def weighted_gaps(
    losses: Tensor,  # [..., E, B]
    log_densities: Tensor,  # [..., E density, E rows, B]
    weighting: Weighting = "density",
    row_weight: Tensor | None = None,  # [..., E, B]
    normalised: bool = False,
    any_unit: bool = False,
) -> WeightedGaps[Tensor]:
    """Compute the gaps of the weighted risks of all pairs.

    Parameters
    ----------
    losses : Tensor of shape (..., E, B)
        Loss of each example.
    log_densities : Tensor of shape (..., E, E, B)
        Log density of each environment at each example: first whose density, then whose example.
    weighting : {"density", "overlap", "tilted", "ratio", "uniform", "published"}, default="density"
        Kind of weights; see `pair_weights`.
    row_weight : Tensor of shape (..., E, B) or None, default=None
        Weights that sum to one over the examples of each environment. None: equal weights.
    normalised : bool, default=False
        Whether to divide each weighted risk by the mean weight of its rows.
    any_unit : bool, default=False
        Whether to divide weights by the largest of each pair.

    Returns
    -------
    gaps : WeightedGaps
        Gaps, mean weights, mean losses and mean risks, `[..., E, E]` each.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import weighted_gaps
    >>> losses = torch.tensor([[1.0, 3.0], [2.0, 2.0]])
    >>> weighted_gaps(losses, torch.zeros(2, 2, 2), "uniform").gap
    tensor([[0., 0.],
            [0., 0.]])
    """
    unit: Unit = "own" if normalised else "pair" if any_unit else "given"
    weights = PairWeights.of(log_densities, weighting, row_weight, unit)
    return weights.gaps(losses, normalised)


class PairWeights(NamedTuple):
    """Weights of rows in all pairs, for any losses."""

    sides: list[Tensor]  # [..., j, i, B], times the rows' weights; two for tilted weights
    totals: list[Tensor]  # [..., j, i], E_i[α_ij]
    row_weight: Tensor | None  # [..., i, B]
    weighting: Weighting

    @classmethod
    def of(
        cls, log_densities: Tensor, weighting: Weighting, row_weight: Tensor | None, unit: Unit
    ) -> Self:
        """Make the weights in a unit from log densities."""
        here, there = side_weights(log_densities, weighting, row_weight, unit)  # [..., j, i, B]
        sides = [here] if there is here else [here, there]
        if row_weight is not None:
            sides = [side * row_weight.unsqueeze(-3) for side in sides]
        totals = [_average(side, row_weight) for side in sides]
        return cls(sides, totals, row_weight, weighting)

    def sums(self, losses: Tensor) -> list[PairSums[Tensor]]:
        """Return the sums over rows of each side."""
        loss, found = weighted_mean(losses, self.row_weight), []
        for side, total in zip(self.sides, self.totals, strict=True):
            if self.weighting == "published":  # averaged before they are multiplied
                risk = total * loss.unsqueeze(-2)
            else:
                risk = _average(side * losses.unsqueeze(-3), self.row_weight)
            found.append(PairSums(total, risk, loss))
        return found

    def gaps(self, losses: Tensor, normalised: bool) -> WeightedGaps[Tensor]:
        """Return the gaps of the weighted risks."""
        sums = self.sums(losses)
        return compare_sides(sums[0], sums[-1], normalised, self.weighting == "ratio")


def _average(values: Tensor, row_weight: Tensor | None) -> Tensor:  # [..., B] -> [...]
    """Return means over rows of values that are multiplied by the rows' weights, if any."""
    return values.mean(-1) if row_weight is None else values.sum(-1)


def _library(values: Any) -> Any:
    """Return the library whose functions take these values: PyTorch or NumPy."""
    return torch if isinstance(values, Tensor) else np


def compare_sides(
    own: PairSums[Array],
    other: PairSums[Array],  # with the other weights of tilted ones, in the same order
    normalised: bool = False,
    needs_overlap: bool = False,  # weights of one side need not be small where the other's are
) -> WeightedGaps[Array]:
    """Return the gaps of risks, normalised if asked for; both are zero without overlap."""
    own_weight, other_weight = own.weight, other.weight.swapaxes(-1, -2)
    own_risk, other_risk = own.risk, other.risk.swapaxes(-1, -2)
    library = _library(own_risk)
    where = library.where
    if normalised or needs_overlap:  # otherwise both risks are zero without overlap
        least = _smallest_divisor(own_risk.dtype) if normalised else 0.0
        compared = (own_weight > least) & (other_weight > least)
        own_risk, other_risk = where(compared, own_risk, 0.0), where(compared, other_risk, 0.0)
    if normalised:
        own_risk = own_risk / where(compared, own_weight, 1.0)
        other_risk = other_risk / where(compared, other_weight, 1.0)
        own_weight = other_weight = library.ones_like(own_risk)
    mean_loss = own.loss[..., None, :]
    return WeightedGaps(
        own_risk - other_risk,
        (own_weight + other_weight) / 2,
        (mean_loss + mean_loss.swapaxes(-1, -2)) / 2,
        (own_risk + other_risk) / 2,
    )


def scaled_gaps(gaps: WeightedGaps[Array], scaling: Scaling) -> Array:  # [..., E, E]
    """Return gaps in the unit in which they are squared; zero without overlap."""
    if scaling == "none":
        return gaps.gap
    unit, compared = _unit(gaps, scaling)
    library = _library(unit)
    found: Array = library.where(compared, gaps.gap, 0.0)
    return found / (library.sqrt(unit) if scaling == "product" else unit)


def _unit(gaps: WeightedGaps[Array], scaling: Scaling) -> tuple[Array, Array]:
    """Return U of a gap g/U, or g/√U for "product", and where it is large enough to divide by."""
    if scaling == "loss":
        unit = gaps.mean_loss
    elif scaling == "risk":
        unit = gaps.mean_risk
    else:
        unit = gaps.mean_weight * gaps.mean_loss
    compared = unit > _smallest_divisor(unit.dtype)
    return _library(unit).where(compared, unit, 1.0), compared


def gap_penalty(
    gaps: Sequence[WeightedGaps[Array]],  # of all rows, or of two half-batches
    scaling: Scaling,
    reference: bool = False,
    pair_weight: Array | None = None,  # [..., E, E], how much each pair counts
) -> Array:  # [...]
    """Return the mean over pairs of the squared gaps, or of the products of two."""
    scaled = [scaled_gaps(each, scaling) for each in gaps]
    squares = scaled[0] * scaled[-1]
    return over_pairs(squares if pair_weight is None else squares * pair_weight, reference)


def pair_penalty(
    sums: PairSums[Array],
    scaling: Scaling,
    normalised: bool = False,
    pair_weight: Array | None = None,  # [..., E, E], symmetric
) -> tuple[Array, PairSums[Array]]:
    """Return the mean squared gap over all pairs, `[...]`, and its slopes in the sums.

        s = g/D,   D = 1, √U or U,   ∂s²/∂g = 2·s/D,   ∂s²/∂U = 0, −s²/U or −2·s²/U

    The rows of i have the same weights towards j in both gaps of the pair, so these are not tilted.
    """
    gaps = compare_sides(sums, sums, normalised)
    scaled = scaled_gaps(gaps, scaling)
    counted = scaled if pair_weight is None else scaled * pair_weight
    # each pair, and so each of its risks, is in the mean over pairs twice
    environments = sums.loss.shape[-1]
    slope = counted * (4 / (environments * (environments - 1)))
    at = _slopes(gaps, scaling, scaled, slope)
    if normalised:
        divisor = _library(slope).where(sums.weight > 0, sums.weight, 1.0)
        by_sum = at.risk / divisor
        at = at._replace(weight=-by_sum * sums.risk / divisor, risk=by_sum)
    return over_pairs(scaled * counted), at


def _slopes(
    gaps: WeightedGaps[Array], scaling: Scaling, scaled: Array, slope: Array
) -> PairSums[Array]:
    """Return slopes in mean weights, risks and losses; `slope` is that in the scaled gaps."""
    library = _library(slope)
    if scaling == "none":
        return PairSums(library.zeros_like(slope), slope, library.zeros_like(slope[..., 0, :]))
    unit, _ = _unit(gaps, scaling)
    at_gap = slope / (library.sqrt(unit) if scaling == "product" else unit)
    at_unit = slope * scaled / (unit * (-4 if scaling == "product" else -2))
    if scaling == "risk":
        nothing = library.zeros_like(slope)
        return PairSums(nothing, at_gap + at_unit, nothing.sum(-2))
    if scaling == "loss":
        return PairSums(library.zeros_like(slope), at_gap, at_unit.sum(-2))
    return PairSums(at_unit * gaps.mean_loss, at_gap, (at_unit * gaps.mean_weight).sum(-2))


def pair_overlap(
    log_densities: Tensor, row_weight: Tensor | None = None
) -> Tensor:  # [..., E, E, B] -> [..., E, E]
    """Return ρ_ij, the share of cases that two environments have in common; symmetric."""
    shares = None if row_weight is None else row_weight.unsqueeze(-3)
    weights = _towards(log_densities).sigmoid()  # 1/2 where i is j
    if shares is not None:  # densities at padding may be anything
        weights = torch.where(shares > 0, weights, 0.0)
    side = weighted_mean(weights, shares)  # [..., j, i]
    return side + side.transpose(-1, -2)


def over_pairs(squares: Array, reference: bool = False) -> Array:  # [..., E, E] -> [...]
    """Return the mean over all pairs, or over those with the reference environment."""
    environments = squares.shape[-1]
    if reference:
        return squares[..., 0, 1:].mean(-1)
    return squares.sum((-1, -2)) / (environments * (environments - 1))


def largest_elsewhere(
    log_densities: Tensor, row_weight: Tensor | None
) -> Tensor:  # [..., E, E, B] -> [..., E, E]
    """Return the largest log density of j at the rows of i; −inf for i = j."""
    if row_weight is not None:
        real = (row_weight > 0).unsqueeze(-3)
        log_densities = torch.where(real, log_densities, -torch.inf)
    own = torch.eye(log_densities.shape[-2], dtype=torch.bool, device=log_densities.device)
    return log_densities.amax(-1).masked_fill(own, -torch.inf)


def is_negligible(largest: Tensor, scaling: Scaling, penalty_weight: Tensor) -> Tensor:  # [R]
    """Return whether λ times the penalty of weights up to e^`largest` is below rounding.

    Relative scaling works with any weight above zero; it depends on the unit only with a running
    mean.
    """
    limits = torch.finfo(largest.dtype)
    if scaling == "relative":
        return largest < log(limits.tiny)
    power = 1 if scaling == "product" else 2
    return penalty_weight.log() + power * largest < log(limits.eps)


@cache
def _smallest_divisor(kind: Any) -> float:
    """Return the smallest divisor of a dtype, so that gradients stay in the range of floats."""
    library = torch if isinstance(kind, torch.dtype) else np
    return float(library.finfo(kind).tiny) ** 0.75


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
    """Compute the WRI penalty: the mean squared gap of pairwise weighted risks.

    Parameters
    ----------
    losses : Tensor of shape (..., E, B)
        Loss of each example: environment, then example.
    log_densities : Tensor of shape (..., E, E, B)
        Log density of each environment at each example: first whose density, then whose example.
    weighting : {"density", "overlap", "tilted", "ratio", "uniform", "published"}, default="density"
        Kind of weights; see `pair_weights`.
    scaling : {"none", "product", "loss", "relative", "risk"}, default="none"
        Scaling of a squared gap g²: g²; g²/(d̄·l̄); (g/l̄)²; (g/(d̄·l̄))²; (g/R̄)².
    row_weight : Tensor of shape (..., E, B) or None, default=None
        Weights that sum to one over the examples of each environment. None: equal weights. Examples
        of weight zero are padding; their losses must be finite, their densities may be anything.
    normalised : bool, default=False
        Whether to divide each weighted risk by the mean weight of its rows.
    form : {"square", "halves"}, default="square"
        "halves": product of the gaps of the two interleaved half-batches.
    overlap_power : float, default=0.0
        Power of the overlap by which pairs count; with 0 all pairs count the same.

    Returns
    -------
    penalty : Tensor of shape (...)
        Zero if all weighted risks agree, and without overlap.

    Raises
    ------
    InputError
        If an option is unknown or shapes do not fit.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import wri_penalty
    >>> losses = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
    >>> wri_penalty(losses, torch.zeros(2, 2, 2)).item()
    4.0
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
        weighted_gaps(loss, logs, weighting, weight, normalised, any_unit)
        for loss, logs, weight in parts
    ]
    overlap = pair_overlap(log_densities, row_weight) ** overlap_power if overlap_power else None
    return gap_penalty(gaps, scaling, weighting == "ratio", overlap)


def penalty_of_losses(
    log_densities: Tensor,
    weighting: Weighting,
    scaling: Scaling,
    row_weight: Tensor | None,
    normalised: bool,
    overlap_power: float,
) -> Callable[[Tensor], Tensor]:
    """Return `wri_penalty` as a function of the losses, with weights that are made once."""
    unit = weights_unit(scaling, normalised)
    weights = PairWeights.of(log_densities, weighting, row_weight, unit)
    overlap = pair_overlap(log_densities, row_weight) ** overlap_power if overlap_power else None

    def penalty(losses: Tensor) -> Tensor:
        gaps = weights.gaps(losses, normalised)
        return gap_penalty([gaps], scaling, weighting == "ratio", overlap)

    return penalty


def penalty_slope(
    losses: Tensor,
    log_densities: Tensor,
    weighting: Weighting,
    scaling: Scaling,
    row_weight: Tensor | None,
    factor: Tensor,
    moderate: bool = False,
) -> Tensor:
    """Return the gradient of `factor` times `wri_penalty` at the log densities, `[..., E, E, B]`.

    By hand for density and published weights, by automatic differentiation for the others.
    `factor` is `[..., 1, 1]`. With `moderate` densities are known to be neither tiny nor huge.
    """
    if weighting not in ("density", "published"):
        logs = log_densities.detach().requires_grad_()
        with torch.enable_grad():
            penalty = wri_penalty(losses, logs, weighting, scaling, row_weight)
            total = (factor[..., 0, 0] * penalty).sum()
        return torch.autograd.grad(total, logs)[0]
    unit: Unit = "given" if moderate else weights_unit(scaling, normalised=False)
    weights = PairWeights.of(log_densities, weighting, row_weight, unit)
    (sums,) = weights.sums(losses)
    _, at = pair_penalty(sums, scaling)
    if row_weight is None:
        factor = factor / losses.shape[-1]
    row_losses = sums.loss[..., None] if weighting == "published" else losses  # [..., i, B or 1]
    at_weight, at_risk = ((factor * slope).unsqueeze(-1) for slope in (at.weight, at.risk))
    return torch.addcmul(at_weight, at_risk, row_losses.unsqueeze(-3)) * weights.sides[0]
