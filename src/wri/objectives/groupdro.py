"""Group distributionally robust optimisation: more weight where the risk is higher.

    q_e ← q_e · exp(η R_e), normalised;   Σ_e q_e R_e     (Sagawa et al., 2020)

The weights q start equal and are updated before they are used, as in DomainBed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, Start, StepContext
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting


def groupdro_weights(weights: Tensor, risks: Tensor, eta: Tensor | float) -> Tensor:
    """The next weights of the environments, `[..., E]`; they sum to one."""
    rate = eta[..., None] if isinstance(eta, Tensor) else eta
    return (weights.log() + rate * risks.detach()).softmax(-1)


@dataclass(frozen=True)
class GroupDRO(Objective):
    name = "groupdro"
    own_hyperparameters = (
        HyperParameter(
            name="eta",
            meaning="η, how fast weight moves to the environments with higher risk",
            settings={"domainbed": Setting(1e-2, LogUniform(1e-3, 1e-1))},
        ),
    )

    def initial(self, start: Start) -> Tensor:
        shape = (len(start.seeds), start.environments)
        return torch.full(shape, 1 / start.environments, dtype=start.dtype, device=start.device)

    def loss(
        self, model: Model, batch: Batch, state: Tensor, context: StepContext
    ) -> tuple[Tensor, Tensor]:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        weights = groupdro_weights(state, risks, context.hyper["eta"])
        return (weights * risks).sum(-1), weights
