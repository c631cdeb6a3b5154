"""Inter-environmental gradient alignment: a penalty on the spread of the risks' gradients.

    mean_e R_e + λ · Σ_e |∇R_e − mean ∇R|²                (Koyama & Yamaguchi, 2020)

∇ is the gradient in all parameters of the predictor. The sum over environments is DomainBed's; the
paper has the mean. The penalty is differentiated through the gradients, by a second backward pass.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped
from wri.objectives.hyperparameters import LogUniform, penalty_weight


def gradient_spread(gradients: Tensor) -> Tensor:  # [..., E, P] -> [...]
    """Compute the sum of squared distances of gradients from their mean.

    Parameters
    ----------
    gradients : Tensor of shape (..., E, P)
        Gradient of each environment's risk.

    Returns
    -------
    penalty : Tensor of shape (...)
        Zero if the gradients agree.

    References
    ----------
    M. Koyama and S. Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization
    problem?", arXiv:2008.01883, 2020.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import gradient_spread
    >>> gradient_spread(torch.tensor([[1.0, 0.0], [3.0, 0.0]])).item()
    2.0
    """
    return (gradients - gradients.mean(-2, keepdim=True)).square().sum((-1, -2))


@dataclass(frozen=True)
class IGA(Objective):
    """Inter-environmental gradient alignment.

    References
    ----------
    M. Koyama and S. Yamaguchi, "When is invariance useful in an Out-of-Distribution Generalization
    problem?", arXiv:2008.01883, 2020.
    """

    name = "iga"
    is_smooth = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the spread of the gradients",
            domainbed=(1e3, LogUniform(1e1, 1e5)),
            table=(0.3, LogUniform(1e-2, 1e2)),
        ),
    )

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        gradients = [
            torch.autograd.grad(own.sum(), model.flat, create_graph=True)[0]
            for own in risks.unbind(-1)
        ]
        penalty = gradient_spread(torch.stack(gradients, 1))
        return risks.mean(-1) + context.hyper["penalty_weight"] * penalty, state
