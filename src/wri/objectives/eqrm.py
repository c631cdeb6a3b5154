"""Empirical quantile risk minimisation: a quantile of the environments' risks.

    F⁻¹(α),   F(r) = mean_e Φ((r − R_e) / h),   h = 1.06 · s · E^(−1/5)   (Eastwood et al., 2022)

F is the distribution of risks, smoothed by a normal kernel; s is their standard deviation. α = 1/2
with symmetric risks is their mean, and α near 1 the worst environment and beyond. Before the
annealing step the loss is the mean risk, as in DomainBed.

In units of s the quantile u solves mean_e Φ((u − s_e)/b) = α, and its gradient follows from the
implicit function: du/ds_e is the share of environment e in the density at u. DomainBed
differentiates through its bisection instead, which gives all weight to the smallest and the largest
risk. Its second step size, for the time after the annealing step, is not there either.
The minimum often lies where all risks agree, and there s has a kink: the objective is trained, not
solved.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped
from wri.objectives.hyperparameters import LogUniform, Uniform, annealing, hyperparameter

BISECTIONS, NEWTON_STEPS = 10, 4  # to rounding for up to a hundred environments


def risk_quantile(risks: Tensor, quantile: Tensor | float) -> Tensor:  # [..., E] -> [...]
    """Compute a quantile of the smoothed distribution of the environments' risks.

    Parameters
    ----------
    risks : Tensor of shape (..., E)
        Risk of each of two or more environments.
    quantile : Tensor of shape (...) or float
        α, between 0 and 1.

    Returns
    -------
    value : Tensor of shape (...)
        The risk below which a share α of the distribution lies.

    References
    ----------
    C. Eastwood et al., "Probable Domain Generalization via Quantile Risk Minimization", NeurIPS,
    2022.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import risk_quantile
    >>> risk_quantile(torch.tensor([1.0, 3.0]), 0.5).item()
    2.0
    """
    alpha = torch.as_tensor(quantile, dtype=risks.dtype, device=risks.device)
    mean, bandwidth = risks.mean(-1), 1.06 * risks.shape[-1] ** -0.2
    # risks that agree to rounding have no standard deviation to differentiate
    least = torch.finfo(risks.dtype).eps * mean.detach().square()
    scale = risks.var(-1).clamp_min(least.clamp_min(torch.finfo(risks.dtype).tiny)).sqrt()
    apart = (risks - mean[..., None]) / scale[..., None]  # [..., E], in units of s
    with torch.no_grad():
        at = _solve(apart, alpha, bandwidth)
        share, density = _distribution(apart, at, bandwidth)
    share, _ = _distribution(apart, at, bandwidth)
    unit = at - (share - alpha) / density  # a Newton step, whose gradient is the implicit one
    return mean + scale * unit


def _solve(apart: Tensor, alpha: Tensor, bandwidth: float) -> Tensor:  # [..., E], [...] -> [...]
    """Return the quantile: by bisection between the extremes, then by Newton's method."""
    tail = bandwidth * torch.special.ndtri(alpha)
    low, high = apart.amin(-1) + tail, apart.amax(-1) + tail
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        above = _distribution(apart, middle, bandwidth)[0] > alpha
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    at = (low + high) / 2
    for _ in range(NEWTON_STEPS):
        share, density = _distribution(apart, at, bandwidth)
        at = torch.minimum(torch.maximum(at - (share - alpha) / density, low), high)
    return at


def _distribution(apart: Tensor, at: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    """Return the share below a point and the density there."""
    z = (at[..., None] - apart) / bandwidth  # [..., E]
    density = (-0.5 * z.square()).exp().mean(-1) / (bandwidth * (2 * torch.pi) ** 0.5)
    return torch.special.ndtr(z).mean(-1), density


@dataclass(frozen=True)
class EQRM(Objective):
    """Empirical quantile risk minimisation.

    References
    ----------
    C. Eastwood et al., "Probable Domain Generalization via Quantile Risk Minimization", NeurIPS,
    2022.
    """

    name = "eqrm"
    penalises_losses = True
    own_hyperparameters = (
        hyperparameter(
            "quantile",
            "α, share of environments whose risk lies below the loss",
            domainbed=(0.75, Uniform(0.5, 0.99)),
            low=1e-6,
            high=1 - 1e-6,
        ),
        annealing(
            (250, LogUniform(10**1.5, 10**2.5, whole=True)),
            (250, LogUniform(10**1.5, 10**2.5, whole=True)),
        )[0],
    )

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        late = context.step >= context.hyper["anneal_steps"]
        if not late.any():
            return risks.mean(-1), state
        value = risk_quantile(risks, context.hyper["quantile"])
        return torch.where(late, value, risks.mean(-1)), state
