"""Deep CORAL: the same mean and covariance of Φ(x) in every environment.

    mean_e R_e + γ · mean over pairs of [mean (m_i − m_j)² + mean (C_i − C_j)²]
                                                          (Sun & Saenko, 2016)

with the covariances C_e and means m_e of Φ, the last hidden layer here. The mean over pairs is
2/(E − 1) times the sum of squared deviations from the environments' mean, so the cost is linear
in environments. As in DomainBed the means are compared too.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, StepContext
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting


def coral_penalty(features: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean squared difference of means and covariances over pairs of environments.

    Parameters
    ----------
    features
        `[..., E, B, F]`.
    weight
        `[..., E, B]`, summing to one over B; equal when not given.
    """
    rows = features.shape[-2]
    columns = features.movedim(-1, -2)  # [..., E, F, B]
    if weight is None:
        mean = columns.mean(-1)  # [..., E, F]
        centred = columns - mean[..., None]
        covariance = centred @ centred.transpose(-1, -2) / (rows - 1)
    else:
        mean = (columns * weight[..., None, :]).sum(-1)
        centred = columns - mean[..., None]
        freedom = 1 - weight.square().sum(-1)[..., None, None]  # (n − 1)/n for n equal weights
        covariance = (centred * weight[..., None, :]) @ centred.transpose(-1, -2) / freedom
    return _spread(mean, 1) + _spread(covariance, 2)


def _spread(values: Tensor, axes: int) -> Tensor:  # [..., E, F] or [..., E, F, F] -> [...]
    """Mean over pairs of environments of the mean squared difference."""
    environments = values.shape[-axes - 1]
    deviation = values - values.mean(-axes - 1, keepdim=True)
    return 2 / (environments - 1) * deviation.square().flatten(-axes).mean(-1).sum(-1)


@dataclass(frozen=True)
class CORAL(Objective):
    name = "coral"
    needs_hidden = True
    own_hyperparameters = (
        HyperParameter(
            name="penalty_weight",
            meaning="γ, weight of the distance of means and covariances",
            settings={"domainbed": Setting(1.0, LogUniform(1e-1, 1e1))},
        ),
    )

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        phi = model.represent(batch.x)  # [R, E, B, F]
        risks = batch.mean(model.loss.per_example(model.head(phi), batch.y))  # [R, E]
        penalty = coral_penalty(phi, batch.weight)
        return risks.mean(-1) + context.hyper["penalty_weight"] * penalty, state
