"""Inter-environment mixup: training on interpolations between rows of two environments.

    x̃ = κ x_e + (1 − κ) x_e',   mean_e [κ l(x̃, y_e) + (1 − κ) l(x̃, y_e')],   κ ~ Beta(α, α)

At each step the environments form a random circle; e' follows e (DomainBed's pairing, with one κ
per pair and step). If the partner's batch is shorter, only the rows that both have are used.
                                                          (Zhang et al., 2018; Wang et al., 2020)
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped, weighted_mean
from wri.objectives.hyperparameters import LogUniform, hyperparameter
from wri.objectives.pairs import circle, take_environments


@dataclass(frozen=True)
class Mixup(Objective):
    """Inter-environment mixup.

    References
    ----------
    H. Zhang, M. Cisse, Y. N. Dauphin and D. Lopez-Paz, "mixup: Beyond Empirical Risk Minimization",
    ICLR, 2018.
    Y. Wang, H. Li and A. C. Kot, "Heterogeneous Domain Generalization via Domain Mixup", ICASSP,
    2020.
    """

    name = "mixup"
    own_hyperparameters = (
        hyperparameter(
            "alpha",
            "α of the Beta distribution of the mixing share",
            domainbed=(0.2, LogUniform(1e-1, 1e1)),
            low=1e-3,
        ),
    )

    @property
    def full_batch(self) -> Literal["shuffled"]:
        return "shuffled"

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        environments = batch.x.shape[1]
        partner = circle(context.random.permutations(environments))  # [R, E]
        share = context.random.beta(context.hyper["alpha"], environments)[..., None]  # [R, E, 1]
        mixed = torch.lerp(take_environments(batch.x, partner), batch.x, share[..., None])
        weight = batch.weight
        if weight is not None:
            weight = torch.minimum(weight, take_environments(weight, partner))
            both = (weight > 0).to(weight.dtype)
            weight = both / both.sum(-1, keepdim=True)
        outputs = model.outputs(mixed)  # [R, E, B, C]
        per_example = model.loss.per_example
        losses = share * per_example(outputs, batch.y) + (1 - share) * per_example(
            outputs, take_environments(batch.y, partner)
        )
        return weighted_mean(losses, weight).mean(-1), state
