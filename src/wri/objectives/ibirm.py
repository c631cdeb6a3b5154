"""Information bottleneck IRM: IRM's penalty and one on the variance of Φ(x).

    mean_e R_e + λ · mean_e (d R_e(w·f)/dw at w = 1)² + γ · mean_e mean_k Var_e Φ_k(x)
                                                          (Ahuja et al., 2021)

As in DomainBed, λ is 1 before IRM's annealing step and γ is 0 before the bottleneck's. Adam starts
again at IRM's; in DomainBed at both. `form` is that of IRM (`irm.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from wri.errors import check_option
from wri.objectives.base import Batch, Model, Objective, StepContext, Stepped, scheduled
from wri.objectives.hyperparameters import (
    LogUniform,
    annealing,
    hyperparameter,
    penalty_weight,
)
from wri.objectives.iberm import bottleneck_penalty
from wri.objectives.irm import irm_penalty

_IRM_STEPS = annealing((50, LogUniform(1, 1e3, whole=True)))


@dataclass(frozen=True)
class IBIRM(Objective):
    """Information bottleneck IRM.

    Parameters
    ----------
    form : {"halves", "square"}, default="halves"
        Product of two half-batches, or square of the whole batch, in IRM's penalty.

    References
    ----------
    K. Ahuja et al., "Invariance Principle Meets Information Bottleneck for Out-of-Distribution
    Generalization", NeurIPS, 2021.
    """

    form: Literal["halves", "square"] = "halves"
    name = "ibirm"
    needs_hidden = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"table": {"form": "square"}}
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of IRM's squared gradient",
            domainbed=(1e2, LogUniform(1e-1, 1e5)),
            table=(100.0, LogUniform(1.0, 1e4)),
        ),
        *_IRM_STEPS,
        hyperparameter(
            "bottleneck_penalty_weight",
            "γ, weight of the variance of Φ(x)",
            domainbed=(1e2, LogUniform(1e-1, 1e5)),
            table=(3.0, LogUniform(0.1, 1e2)),
        ),
        replace(
            _IRM_STEPS[0],
            name="bottleneck_anneal_steps",
            meaning="steps before the variance of Φ(x) counts",
        ),
    )

    def __post_init__(self) -> None:
        check_option("form", self.form, ("halves", "square"))

    @property
    def full_batch(self) -> Literal["whole", "shuffled"]:
        return "shuffled" if self.form == "halves" else "whole"

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        hyper, phi = context.hyper, model.represent(batch.x)  # [R, E, B, F]
        losses, gradients = model.loss.with_scale_gradient(model.head(phi), batch.y)  # [R, E, B]
        invariance = irm_penalty(gradients, self.form, batch.weight).mean(-1)
        variance = bottleneck_penalty(phi, batch.weight).mean(-1)
        late = context.step >= hyper["bottleneck_anneal_steps"]
        loss = batch.mean(losses).mean(-1) + scheduled(context, 1.0) * invariance
        return loss + torch.where(late, hyper["bottleneck_penalty_weight"], 0.0) * variance, state
