"""Variance risk extrapolation: penalise the spread of the environments' risks.

    mean_e R_e + λ · Var_e R_e                            (Krueger et al., 2021)

Before the annealing step λ is 1, as in DomainBed, or 0 with `early_weight=0`. `divided` divides
the loss by max(1, λ).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from wri.densities.base import HyperValues
from wri.objectives.base import Batch, Model, Objective, StepContext, penalised, scheduled
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting, annealing


def vrex_penalty(risks: Tensor) -> Tensor:  # [..., E] -> [...]
    """Variance of the environments' risks; zero when the risks agree."""
    return risks.var(-1, unbiased=False)


@dataclass(frozen=True)
class VREx(Objective):
    early_weight: float = 1.0
    divided: bool = False
    name = "vrex"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"coloured": {"divided": True}}
    own_hyperparameters = (
        HyperParameter(
            name="penalty_weight",
            meaning="λ, weight of the variance of the risks",
            settings={
                "domainbed": Setting(1e1, LogUniform(1e-1, 1e5)),
                "simulation": Setting(10.0),
                "coloured": Setting(1e3, LogUniform(1e2, 1e4)),
                "table": Setting(30.0, LogUniform(0.3, 3e3)),
            },
        ),
        *annealing(
            domainbed=Setting(50, LogUniform(1, 500, whole=True)),
            cmnist=Setting(500, LogUniform(1, 1e4, whole=True)),
        ),
    )

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        weight = scheduled(context, self.early_weight)
        return penalised(risks.mean(-1), weight, vrex_penalty(risks), self.divided), state

    def resets_at(self, hyper: HyperValues) -> Tensor:
        return hyper["anneal_steps"]
