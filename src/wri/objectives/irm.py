"""Invariant risk minimisation: a penalty on the gradient of each risk in a scale of the outputs.

    mean_e R_e + λ · mean_e (d R_e(w·f)/dw at w = 1)²     (Arjovsky et al., 2019)

The gradient in the dummy scale w has a closed form (`stacked.losses`), so no second backward
pass is needed. `form="halves"` multiplies the gradients of two half-batches, which is unbiased
and used by DomainBed; `form="square"` squares the gradient of the whole batch, as in the IRM paper.
Before the annealing step λ is 1, as in DomainBed, or 0 with `early_weight=0`. `divided` divides the
loss by max(1, λ).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from wri.errors import check_option
from wri.objectives.base import (
    Batch,
    Model,
    Objective,
    RowForm,
    StepContext,
    Stepped,
    half_weights,
    halves,
    penalised,
    scheduled,
    weighted_mean,
)
from wri.objectives.hyperparameters import LogUniform, annealing, penalty_weight
from wri.stacked.linear import Sums


def irm_penalty(
    scale_gradients: Tensor, form: str = "square", weight: Tensor | None = None
) -> Tensor:  # [..., B] -> [...]
    """Compute the squared mean gradient of the loss in a dummy scale of the outputs.

    Parameters
    ----------
    scale_gradients : Tensor of shape (..., B)
        d loss(w·f, y)/dw at w = 1 per example, from `Loss.scale_gradient`.
    form : {"square", "halves"}, default="square"
        "square": square of the mean. "halves": product of the means of the two interleaved
        half-batches.
    weight : Tensor of shape (..., B) or None, default=None
        Weights that sum to one over the examples. None: equal weights.

    Returns
    -------
    penalty : Tensor of shape (...)
        Penalty per environment.

    Raises
    ------
    InputError
        If `form` is unknown, or "halves" has too few rows.

    References
    ----------
    M. Arjovsky, L. Bottou, I. Gulrajani and D. Lopez-Paz, "Invariant Risk Minimization",
    arXiv:1907.02893, 2019.

    Examples
    --------
    >>> import torch
    >>> from wri.objectives.functional import SQUARED, irm_penalty
    >>> outputs, y = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0])
    >>> irm_penalty(SQUARED.scale_gradient(outputs, y)).item()
    4.0
    """
    check_option("form", form, ("square", "halves"))
    if form == "square":
        return weighted_mean(scale_gradients, weight).square()
    parts = zip(halves(scale_gradients), half_weights(weight), strict=True)
    first, second = (weighted_mean(*part) for part in parts)
    return first * second


def irm_penalty_slope(sums: Sums) -> tuple[float, Sums]:
    """Return the mean of `irm_penalty` over environments and its slopes, for the solver."""
    assert sums.scale is not None  # RowForm.scale asks for it
    count = len(sums.scale)
    slopes = Sums(np.zeros_like(sums.losses), 2 / count * sums.scale)
    return float(np.square(sums.scale).mean()), slopes


@dataclass(frozen=True)
class IRM(Objective):
    """Invariant risk minimisation.

    Parameters
    ----------
    form : {"halves", "square"}, default="halves"
        Product of two half-batches, or square of the whole batch.
    early_weight : float, default=1.0
        λ before the annealing step.
    divided : bool, default=False
        Whether to divide the loss by max(1, λ).

    References
    ----------
    M. Arjovsky, L. Bottou, I. Gulrajani and D. Lopez-Paz, "Invariant Risk Minimization",
    arXiv:1907.02893, 2019.
    """

    form: Literal["halves", "square"] = "halves"
    early_weight: float = 1.0
    divided: bool = False
    name = "irm"
    rows_form = RowForm(irm_penalty_slope, scale=True)
    penalises_losses = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "coloured": {"divided": True},
        "table": {"form": "square"},
    }
    own_hyperparameters = (
        penalty_weight(
            "λ, weight of the squared gradient",
            domainbed=(1e2, LogUniform(1e-1, 1e5)),
            simulation=10.0,
            coloured=(1e5, LogUniform(1e4, 1e6)),
            table=(100.0, LogUniform(1.0, 1e4)),
        ),
        *annealing((50, LogUniform(1, 500, whole=True))),
    )

    def __post_init__(self) -> None:
        check_option("form", self.form, ("halves", "square"))

    @property
    def full_batch(self) -> Literal["whole", "shuffled"]:
        return "shuffled" if self.form == "halves" else "whole"

    @property
    def is_smooth(self) -> bool:
        return self.form == "square"

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        outputs = model.outputs(batch.x)  # [R, E, B, C]
        losses, gradients = model.loss.with_scale_gradient(outputs, batch.y)  # [R, E, B]
        risks = batch.mean(losses)  # [R, E]
        penalty = irm_penalty(gradients, self.form, batch.weight).mean(-1)
        weight = scheduled(context, self.early_weight)
        return penalised(risks.mean(-1), weight, penalty, self.divided), state
