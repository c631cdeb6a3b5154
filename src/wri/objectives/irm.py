"""Invariant risk minimisation: no environment's risk may want another scale of the outputs.

    mean_e R_e + λ · mean_e (d R_e(w·f)/dw at w = 1)²     (Arjovsky et al., 2019)

The gradient in the dummy scale w has a closed form (`stacked.losses`), so no second backward
pass is needed. `form="halves"` multiplies the gradients of two half-batches, which is unbiased
and DomainBed's choice; `form="square"` squares the gradient of the whole, as the paper of IRM
writes. Before the annealing step λ is 1, as in DomainBed, or 0 with `early_weight=0`.
`divided` divides the loss by max(1, λ).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from wri.densities.base import HyperValues
from wri.errors import check_option
from wri.objectives.base import (
    Batch,
    Model,
    Objective,
    StepContext,
    half_weights,
    halves,
    penalised,
    scheduled,
    weighted_mean,
)
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting, annealing


def irm_penalty(
    scale_gradients: Tensor, form: str = "square", weight: Tensor | None = None
) -> Tensor:  # [..., B] -> [...]
    """Squared mean gradient of the loss in a dummy scale of the outputs.

    Parameters
    ----------
    scale_gradients
        d loss(w·f, y)/dw at w = 1 for each example, from `Loss.scale_gradient`.
    form
        "square", or "halves" for the product of the two interleaved half-batches' means.
    weight
        Weights that sum to one over the examples; equal when not given.
    """
    check_option("form", form, ("square", "halves"))
    if form == "square":
        return weighted_mean(scale_gradients, weight).square()
    parts = zip(halves(scale_gradients), half_weights(weight), strict=True)
    first, second = (weighted_mean(*part) for part in parts)
    return first * second


@dataclass(frozen=True)
class IRM(Objective):
    form: Literal["halves", "square"] = "halves"
    early_weight: float = 1.0
    divided: bool = False
    name = "irm"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "coloured": {"divided": True},
        "table": {"form": "square"},
    }
    own_hyperparameters = (
        HyperParameter(
            name="penalty_weight",
            meaning="λ, weight of the squared gradient",
            settings={
                "domainbed": Setting(1e2, LogUniform(1e-1, 1e5)),
                "simulation": Setting(10.0),
                "coloured": Setting(1e5, LogUniform(1e4, 1e6)),
                "table": Setting(100.0, LogUniform(1.0, 1e4)),
            },
        ),
        *annealing(
            domainbed=Setting(50, LogUniform(1, 500, whole=True)),
            cmnist=Setting(500, LogUniform(1, 1e4, whole=True)),
        ),
    )

    def __post_init__(self) -> None:
        check_option("form", self.form, ("halves", "square"))

    @property
    def whole(self) -> Literal["whole", "shuffled"]:
        return "shuffled" if self.form == "halves" else "whole"

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        outputs = model.outputs(batch.x)  # [R, E, B, C]
        losses, gradients = model.loss.with_scale_gradient(outputs, batch.y)  # [R, E, B]
        risks = batch.mean(losses)  # [R, E]
        penalty = irm_penalty(gradients, self.form, batch.weight).mean(-1)
        weight = scheduled(context, self.early_weight)
        return penalised(risks.mean(-1), weight, penalty, self.divided), state

    def resets_at(self, hyper: HyperValues) -> Tensor:
        return hyper["anneal_steps"]
