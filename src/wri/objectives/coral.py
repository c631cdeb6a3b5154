"""Deep CORAL: alignment of the means and covariances of Φ(x) between environments.

    mean_e R_e + γ · mean over pairs of [mean (m_i − m_j)² + mean (C_i − C_j)²]
                                                          (Sun & Saenko, 2016)

with the covariances C_e and means m_e of Φ, the last hidden layer here. The mean over pairs is
2/(E − 1) times the sum of squared deviations from the environments' mean, so the cost is linear
in environments. As in DomainBed the means are compared too.

Means and covariances are differentiated by hand. With row weights w that sum to one, s = √w·(x − m)
and f the degrees of freedom, C = s sᵀ/f. As Σ √w·s = 0, the gradient through m in C vanishes:

    at x   √w · ((G + Gᵀ) s/f + √w·g)         for gradients G at C and g at m
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


class _Moments(Function):
    """Means `[L, E, F]` and covariances `[L, E, F, F]` of features `[L, E, B, F]`.

    Computed per environment: their rows lie apart in memory, and one product for all would copy
    them.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        root = weight.sqrt()  # [L, E, B]
        freedom = 1 - weight.square().sum(-1)[..., None, None]  # (n − 1)/n for n equal weights
        means, covariances, scaled = [], [], []
        for e, rows in enumerate(features.unbind(1)):
            columns = rows.transpose(1, 2)  # [L, F, B]
            means.append(torch.bmm(columns, weight[:, e, :, None]))
            scaled.append((columns - means[-1]).mul_(root[:, e, None]))
            covariances.append(torch.bmm(scaled[-1], scaled[-1].transpose(1, 2)))
        ctx.save_for_backward(features, root, freedom, *scaled)
        return torch.stack(means, 1)[..., 0], torch.stack(covariances, 1) / freedom

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, at_mean: Tensor, at_covariance: Tensor) -> tuple[Tensor, None]:
        features, root, freedom, *scaled = ctx.saved_tensors
        both = (at_covariance + at_covariance.transpose(-1, -2)) / freedom
        gradient = torch.empty_like(features)
        for e, own in enumerate(scaled):
            roots = root[:, e, None]  # [L, 1, B]
            at_rows = torch.bmm(both[:, e], own).addcmul_(at_mean[:, e, :, None], roots)
            torch.mul(at_rows, roots, out=gradient[:, e].transpose(1, 2))
        return gradient, None


def coral_penalty(features: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean squared difference of means and covariances over pairs of environments.

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
        Zero if means and covariances agree.

    References
    ----------
    B. Sun and K. Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", ECCV
    Workshops, 2016.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import coral_penalty
    >>> features = torch.tensor([[[0.0], [2.0]], [[1.0], [3.0]]])
    >>> coral_penalty(features).item()
    1.0
    """
    *leading, environments, rows, width = features.shape
    if weight is None:
        weight = features.new_full((1,), 1 / rows).expand(features.shape[:-1])
    mean, covariance = _Moments.apply(
        features.reshape(-1, environments, rows, width), weight.reshape(-1, environments, rows)
    )
    return (_spread(mean, 1) + _spread(covariance, 2)).view(leading)


def _spread(values: Tensor, axes: int) -> Tensor:  # [..., E, F] or [..., E, F, F] -> [...]
    """Return the mean over pairs of environments of the mean squared difference."""
    environments = values.shape[-axes - 1]
    deviation = values - values.mean(-axes - 1, keepdim=True)
    return 2 / (environments - 1) * deviation.square().flatten(-axes).mean(-1).sum(-1)


@dataclass(frozen=True)
class CORAL(PenaltyObjective):
    """Deep CORAL: alignment of the means and covariances of the representation.

    References
    ----------
    B. Sun and K. Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", ECCV
    Workshops, 2016.
    """

    name = "coral"
    needs_hidden = True
    own_hyperparameters = (
        penalty_weight(
            "γ, weight of the distance of means and covariances",
            domainbed=(1.0, LogUniform(1e-1, 1e1)),
        ),
    )

    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        return coral_penalty(views.phi, batch.weight)
