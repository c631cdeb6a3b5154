"""Variance risk extrapolation: penalise the spread of the environments' risks.

    mean_e R_e + λ · Var_e R_e                            (Krueger et al., 2021)

Before the annealing step λ is 1, as in DomainBed, or 0 with `early_weight=0`. `divided` divides
the loss by max(1, λ).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from wri.objectives.base import (
    Batch,
    Model,
    Objective,
    RowForm,
    StepContext,
    Stepped,
    penalised,
    scheduled,
)
from wri.objectives.hyperparameters import LogUniform, annealing, penalty_weight
from wri.stacked.linear import Sums


def vrex_penalty(risks: Tensor) -> Tensor:  # [..., E] -> [...]
    """Compute the variance of the environments' risks.

    Parameters
    ----------
    risks : Tensor of shape (..., E)
        Risk of each environment.

    Returns
    -------
    penalty : Tensor of shape (...)
        Variance; zero if the risks agree.

    References
    ----------
    D. Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation (REx)", ICML,
    2021.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import vrex_penalty
    >>> vrex_penalty(torch.tensor([1.0, 3.0])).item()
    1.0
    """
    return risks.var(-1, unbiased=False)


def vrex_penalty_slope(sums: Sums) -> tuple[float, Sums]:
    """Return `vrex_penalty` of the risks and its slopes, for the solver."""
    risks = sums.losses[:, 0]
    apart = risks - risks.mean()
    return float(np.square(apart).mean()), Sums((2 / len(risks) * apart)[:, None])


@dataclass(frozen=True)
class VREx(Objective):
    """Variance risk extrapolation.

    Parameters
    ----------
    early_weight : float, default=1.0
        λ before the annealing step.
    divided : bool, default=False
        Whether to divide the loss by max(1, λ).

    References
    ----------
    D. Krueger et al., "Out-of-Distribution Generalization via Risk Extrapolation (REx)", ICML,
    2021.
    """

    early_weight: float = 1.0
    divided: bool = False
    name = "vrex"
    penalises_losses = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"coloured": {"divided": True}}
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the variance of the risks",
            domainbed=(1e1, LogUniform(1e-1, 1e5)),
            simulation=10.0,
            coloured=(1e3, LogUniform(1e2, 1e4)),
            table=(30.0, LogUniform(0.3, 3e3)),
        ),
        *annealing((50, LogUniform(1, 500, whole=True))),
    )

    is_smooth = True
    rows_form = RowForm(vrex_penalty_slope)

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        weight = scheduled(context, self.early_weight)
        return penalised(risks.mean(-1), weight, vrex_penalty(risks), self.divided), state
