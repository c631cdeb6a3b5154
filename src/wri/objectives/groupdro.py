"""Group distributionally robust optimisation: more weight where the risk is higher.

    q_e ← q_e · exp(η R_e), normalised;   Σ_e q_e R_e     (Sagawa et al., 2020)

The weights q start equal and are updated before they are used, as in DomainBed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, Start, StepContext, Stepped
from wri.objectives.hyperparameters import LogUniform, hyperparameter


def groupdro_weights(weights: Tensor, risks: Tensor, eta: Tensor | float) -> Tensor:
    """Compute the next weights of the environments.

    Parameters
    ----------
    weights : Tensor of shape (..., E)
        Weights before, positive.
    risks : Tensor of shape (..., E)
        Risk of each environment; gradients do not flow through it.
    eta : Tensor of shape (...) or float
        η, the rate of the update.

    Returns
    -------
    weights : Tensor of shape (..., E)
        Weights afterwards; they sum to one.

    References
    ----------
    S. Sagawa, P. W. Koh, T. B. Hashimoto and P. Liang, "Distributionally Robust Neural Networks for
    Group Shifts", ICLR, 2020.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import groupdro_weights
    >>> groupdro_weights(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 2.0]), eta=1.0)
    tensor([0.1192, 0.8808])
    """
    rate = eta[..., None] if isinstance(eta, Tensor) else eta
    return (weights.log() + rate * risks.detach()).softmax(-1)


@dataclass(frozen=True)
class GroupDRO(Objective):
    """Group distributionally robust optimisation.

    References
    ----------
    S. Sagawa, P. W. Koh, T. B. Hashimoto and P. Liang, "Distributionally Robust Neural Networks for
    Group Shifts", ICLR, 2020.
    """

    name = "groupdro"
    penalises_losses = True
    own_hyperparameters = (
        hyperparameter(
            "eta",
            "η, how fast weight moves to the environments with higher risk",
            domainbed=(1e-2, LogUniform(1e-3, 1e-1)),
        ),
    )

    def initial(self, start: Start) -> Tensor:
        shape = (len(start.seeds), start.environments)
        return torch.full(shape, 1 / start.environments, dtype=start.dtype, device=start.device)

    def loss(self, model: Model, batch: Batch, state: Tensor, context: StepContext) -> Stepped:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        weights = groupdro_weights(state, risks, context.hyper["eta"])
        return (weights * risks).sum(-1), weights
