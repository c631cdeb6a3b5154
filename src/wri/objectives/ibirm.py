"""Information bottleneck IRM: IRM's penalty and one on the variance of Φ(x).

    mean_e R_e + λ · mean_e (d R_e(w·f)/dw at w = 1)² + γ · mean_e mean_k Var_e Φ_k(x)
                                                          (Ahuja et al., 2021)

As in DomainBed, λ is 1 before IRM's annealing step and γ is 0 before the bottleneck's. Adam starts
again at IRM's; in DomainBed at both. `form` is that of IRM (`irm.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from wri.densities.base import HyperValues
from wri.errors import check_option
from wri.objectives.base import Batch, Model, Objective, StepContext, scheduled
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting, annealing
from wri.objectives.iberm import bottleneck_penalty
from wri.objectives.irm import irm_penalty

_IRM_STEPS = annealing(
    domainbed=Setting(50, LogUniform(1, 1e3, whole=True)),
    cmnist=Setting(500, LogUniform(1, 1e4, whole=True)),
)


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
        HyperParameter(
            name="penalty_weight",
            meaning="λ, weight of IRM's squared gradient",
            settings={
                "domainbed": Setting(1e2, LogUniform(1e-1, 1e5)),
                "table": Setting(100.0, LogUniform(1.0, 1e4)),
            },
        ),
        *_IRM_STEPS,
        HyperParameter(
            name="bottleneck_penalty_weight",
            meaning="γ, weight of the variance of Φ(x)",
            settings={
                "domainbed": Setting(1e2, LogUniform(1e-1, 1e5)),
                "table": Setting(3.0, LogUniform(0.1, 1e2)),
            },
        ),
        HyperParameter(
            name="bottleneck_anneal_steps",
            meaning="steps before the variance of Φ(x) counts",
            settings=_IRM_STEPS[0].settings,
            whole=True,
            of_steps=True,
        ),
    )

    def __post_init__(self) -> None:
        check_option("form", self.form, ("halves", "square"))

    @property
    def full_batch(self) -> Literal["whole", "shuffled"]:
        return "shuffled" if self.form == "halves" else "whole"

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        hyper, phi = context.hyper, model.represent(batch.x)  # [R, E, B, F]
        losses, gradients = model.loss.with_scale_gradient(model.head(phi), batch.y)  # [R, E, B]
        invariance = irm_penalty(gradients, self.form, batch.weight).mean(-1)
        variance = bottleneck_penalty(phi, batch.weight).mean(-1)
        late = context.step >= hyper["bottleneck_anneal_steps"]
        loss = batch.mean(losses).mean(-1) + scheduled(context, 1.0) * invariance
        return loss + torch.where(late, hyper["bottleneck_penalty_weight"], 0.0) * variance, state

    def resets_at(self, hyper: HyperValues) -> Tensor:
        return hyper["anneal_steps"]
