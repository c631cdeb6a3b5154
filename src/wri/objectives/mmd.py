"""Maximum mean discrepancy: alignment of the distributions of Φ(x) between environments.

    mean_e R_e + γ · mean over pairs of [K_ii + K_jj − 2 K_ij]     (Li et al., 2018)
    K_ij = mean over rows a of i and b of j of Σ_g exp(−g |Φ_a − Φ_b|²),   g = 0.001, …, 1000

Φ is the last hidden layer. With signed weights A_ab of pairs of rows the penalty is the sum of
A_ab k(d_ab), d the squared distance, and its gradient at row a

    4 Σ_b A_ab k′(d_ab) (Φ_a − Φ_b)

Both are computed in the forward pass, for a few runs at a time, so that no matrix of pairs is kept.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from wri.objectives.base import Batch, Model, PenaltyObjective
from wri.objectives.hyperparameters import LogUniform, penalty_weight
from wri.stacked import Views

RATES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
AT_ONCE = 2**16  # pairs of rows


class _Discrepancy(Function):
    """Sum over pairs of rows of A · k, `[L]`, of features `[L, N, F]` and A's parts."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, sign: Tensor) -> Tensor:
        """Take `weight [L, N]`, and `sign [N, N]` by the environments of the rows."""
        values, gradient = [], torch.empty_like(features)
        size = max(1, AT_ONCE // sign.numel())
        for first in range(0, len(features), size):
            part = slice(first, first + size)
            rows, share = features[part], weight[part]
            squares = rows.square().sum(-1)
            distance = torch.baddbmm(squares[:, :, None], rows, rows.transpose(1, 2), alpha=-2)
            distance = distance.add_(squares[:, None]).clamp_min_(0)
            kernel, slope = torch.zeros_like(distance), torch.zeros_like(distance)
            for rate in RATES:
                term = torch.exp(-rate * distance)
                kernel += term
                slope -= rate * term
            signed = sign * share[:, :, None] * share[:, None]
            values.append((signed * kernel).sum((1, 2)))
            signed *= slope
            at = signed.sum(-1, keepdim=True) * rows - torch.bmm(signed, rows)
            gradient[part] = 4 * at
        ctx.save_for_backward(gradient)
        return torch.cat(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, at_value: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return at_value[:, None, None] * gradient, None, None


def mmd_penalty(features: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean squared maximum mean discrepancy over pairs of environments.

    It can be differentiated once.

    Parameters
    ----------
    features : Tensor of shape (..., E, B, F)
        Representations Φ(x) of the rows of each environment.
    weight : Tensor of shape (..., E, B) or None, default=None
        Weights of the rows, which sum to one over B. None: equal weights.

    Returns
    -------
    penalty : Tensor of shape (...)
        Zero if the environments have the same rows.

    References
    ----------
    H. Li, S. J. Pan, S. Wang and A. C. Kot, "Domain Generalization with Adversarial Feature
    Learning", CVPR, 2018.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import mmd_penalty
    >>> mmd_penalty(torch.tensor([[[0.0], [2.0]], [[2.0], [0.0]]])).item()
    0.0
    """
    *leading, environments, rows, width = features.shape
    if weight is None:
        weight = features.new_full((1,), 1 / rows).expand(features.shape[:-1])
    own = torch.arange(environments, device=features.device).repeat_interleave(rows)
    inside, across = 2 / environments, -2 / (environments * (environments - 1))
    sign = torch.where(own[:, None] == own, inside, across).to(features.dtype)
    found: Tensor = _Discrepancy.apply(
        features.reshape(-1, environments * rows, width),
        weight.reshape(-1, environments * rows),
        sign,
    )
    return found.view(leading)


@dataclass(frozen=True)
class MMD(PenaltyObjective):
    """Maximum mean discrepancy of the representation.

    References
    ----------
    H. Li, S. J. Pan, S. Wang and A. C. Kot, "Domain Generalization with Adversarial Feature
    Learning", CVPR, 2018.
    """

    name = "mmd"
    needs_hidden = True
    own_hyperparameters = (
        penalty_weight(
            "γ, weight of the distance of the distributions of Φ(x)",
            domainbed=(1.0, LogUniform(1e-1, 1e1)),
        ),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        return mmd_penalty(views.phi, batch.weight)
