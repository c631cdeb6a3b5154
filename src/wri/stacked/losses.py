"""Element-wise losses and their gradients in a dummy scale.

IRM needs the change of the risk when the outputs f are multiplied by a scale w, at w = 1:

    cross-entropy   Σ_c p_c · log p_c − log p_y, with p = softmax(f): the loss minus the entropy
    logistic        f · (σ(f) − y)
    squared         2 f · (f − y)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Element-wise loss of outputs `[..., C]` and targets `[...]`."""

    name: str
    per_example: Callable[[Tensor, Tensor], Tensor]  # […, C], […] -> […], as the others
    scale_gradient: Callable[[Tensor, Tensor], Tensor]  # d loss(w·f, y)/dw at w = 1
    correct: Callable[[Tensor, Tensor], Tensor]  # share of the point that a prediction earns
    classes: bool  # targets are class numbers, one output each

    def __reduce__(self) -> tuple[Callable[[str], "Loss"], tuple[str]]:
        """Pickle by name, so that another process has the same object."""
        return _find_loss, (self.name,)

    def with_scale_gradient(
        self, outputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor]:  # […, C], […] -> […], […]
        """Return `per_example` and `scale_gradient`; cross-entropy needs one softmax for both."""
        if self.classes:
            return _cross_entropy_and_scale(outputs, targets)
        return self.per_example(outputs, targets), self.scale_gradient(outputs, targets)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")


def _cross_entropy_and_scale(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_p = outputs.movedim(-1, 1).log_softmax(1)
    losses = F.nll_loss(log_p, targets, reduction="none")
    return losses, losses + (log_p.exp() * log_p).sum(1)


def _cross_entropy_scale(outputs: Tensor, targets: Tensor) -> Tensor:
    return _cross_entropy_and_scale(outputs, targets)[1]


def _most_likely(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 1 if the target's output is the largest; ties share the point."""
    largest = outputs.amax(-1)
    hit = outputs.gather(-1, targets[..., None])[..., 0] == largest
    return hit / (outputs == largest[..., None]).sum(-1).clamp_min(1)


def _logistic(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(
        outputs[..., 0], targets.to(outputs.dtype), reduction="none"
    )


def _logistic_scale(outputs: Tensor, targets: Tensor) -> Tensor:
    logit = outputs[..., 0]
    return logit * (logit.sigmoid() - targets)


def _right_side(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return 1 if the logit is on the target's side of 0, and one half at 0."""
    return ((2 * targets - 1) * outputs[..., 0].sign() + 1) / 2


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[..., 0] - targets).square()


def _squared_scale(outputs: Tensor, targets: Tensor) -> Tensor:
    return 2 * outputs[..., 0] * (outputs[..., 0] - targets)


def _never(outputs: Tensor, targets: Tensor) -> Tensor:
    raise TypeError("a number is never exactly right")


CROSS_ENTROPY = Loss(
    name="cross_entropy",
    per_example=_cross_entropy,
    scale_gradient=_cross_entropy_scale,
    correct=_most_likely,
    classes=True,
)
LOGISTIC = Loss(
    name="logistic",
    per_example=_logistic,
    scale_gradient=_logistic_scale,
    correct=_right_side,
    classes=False,
)
SQUARED = Loss(
    name="squared",
    per_example=_squared,
    scale_gradient=_squared_scale,
    correct=_never,
    classes=False,
)
LOSSES = {loss.name: loss for loss in (CROSS_ENTROPY, LOGISTIC, SQUARED)}


def _find_loss(name: str) -> Loss:
    return LOSSES[name]
