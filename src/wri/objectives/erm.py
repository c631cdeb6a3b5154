"""Empirical risk minimisation: the mean of the environments' risks.

    mean_e R_e                                            (Vapnik, 1991)

All environments have the same weight, whatever their number of rows.
"""

from dataclasses import dataclass
from typing import Any

from wri.objectives.base import (
    Batch,
    Model,
    Objective,
    RowForm,
    StepContext,
    Stepped,
)


@dataclass(frozen=True)
class ERM(Objective):
    """Empirical risk minimisation.

    References
    ----------
    V. Vapnik, "Principles of Risk Minimization for Learning Theory", NIPS, 1991.
    """

    name = "erm"
    penalises_losses = True
    least_environments = 1
    is_smooth = True

    rows_form = RowForm()

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        return risks.mean(-1), state
