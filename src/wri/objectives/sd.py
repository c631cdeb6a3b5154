"""Spectral decoupling: a penalty on the squared outputs.

    mean_e R_e + λ · mean_e mean_b f_b²                   (Pezeshki et al., 2021)

f² is the mean over the outputs of a row, as in DomainBed. The penalty does not compare
environments: it keeps one strong feature from hiding the gradient of the others.
"""

from dataclasses import dataclass
from typing import Any

from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped
from wri.objectives.hyperparameters import LogUniform, penalty_weight


@dataclass(frozen=True)
class SD(Objective):
    """Spectral decoupling.

    References
    ----------
    M. Pezeshki, S.-O. Kaba, Y. Bengio, A. Courville, D. Precup and G. Lajoie, "Gradient Starvation:
    A Learning Proclivity in Neural Networks", NeurIPS, 2021.
    """

    name = "sd"
    least_environments = 1
    is_smooth = True
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared outputs",
            domainbed=(0.1, LogUniform(1e-5, 1e-1)),
            table=(0.03, LogUniform(1e-3, 1.0)),
        ),
    )

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        outputs = model.outputs(batch.x)  # [R, E, B, C]
        risks = batch.mean(model.loss.per_example(outputs, batch.y))  # [R, E]
        penalty = batch.mean(outputs.square().mean(-1)).mean(-1)
        return risks.mean(-1) + context.hyper["penalty_weight"] * penalty, state
