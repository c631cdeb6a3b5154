"""Empirical risk minimisation: the mean of the environments' risks.

    mean_e R_e                                            (Vapnik, 1991)

Every environment counts the same, however many rows it has.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, StepContext


@dataclass(frozen=True)
class ERM(Objective):
    name = "erm"
    least_environments = 1

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        return risks.mean(-1), state
