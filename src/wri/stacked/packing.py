"""All parameters of a run in one row: `[R, P]` and its named pieces.

One flat tensor makes Adam, clipping, freezing and saving a handful of operations,
however many layers there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """How a row of `size` numbers is cut into tensors of the given shapes."""

    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    def views(self, flat: Tensor) -> list[Tensor]:  # [R, P] -> [R, *shape] each
        """Pieces that share memory with `flat` and its gradient."""
        sizes = [prod(shape) for shape in self.shapes]
        pieces = flat.split(sizes, dim=1)
        return [
            piece.view(flat.shape[0], *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def leaves(self, flat: Tensor) -> list[Tensor]:
        """Pieces that share memory with `flat` and start a graph of their own."""
        return [piece.detach().requires_grad_() for piece in self.views(flat)]


def differentiate(losses: Tensor, leaves: Sequence[Tensor]) -> Tensor:  # [R] -> [R, P]
    """Gradient of every run's loss with respect to its own parameters.

    Runs share no parameters, so the gradient of the sum holds every run's gradient.
    A loss that no parameter reaches has gradient zero.
    """
    gradients = torch.autograd.grad(losses.sum(), leaves, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
