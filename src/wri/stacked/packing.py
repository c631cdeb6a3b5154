"""All parameters of a run in one row: `[R, P]` and its named pieces.

One flat tensor makes gradients, Adam, clipping, freezing and saving a handful of operations,
however many layers there are.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """How a row of `size` numbers is cut into tensors of the given shapes."""

    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> list[int]:
        return [prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def views(self, flat: Tensor) -> list[Tensor]:  # [R, P] -> [R, *shape] each
        """Pieces that share memory with `flat` and its gradient."""
        return [
            piece.view(len(flat), *shape)
            for piece, shape in zip(flat.split(self.sizes, dim=1), self.shapes, strict=True)
        ]


def differentiate(losses: Tensor, flat: Tensor) -> Tensor:  # [R], [R, P] -> [R, P]
    """Gradient of every run's loss with respect to its own parameters.

    Runs share no parameters, so the gradient of the sum holds every run's gradient.
    """
    (gradient,) = torch.autograd.grad(losses.sum(), flat)
    return gradient
