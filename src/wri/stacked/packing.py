"""All parameters of a run in one row `[R, P]`, and its parts.

With one flat tensor gradients, Adam, clipping, freezing and saving are a few operations, whatever
the number of layers.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Division of a row of numbers into tensors of given shapes."""

    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of entries of each tensor."""
        return [prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Number of entries of all tensors."""
        return sum(self.sizes)

    def views(self, flat: Tensor) -> list[Tensor]:  # [R, P] -> [R, *shape] each
        """Return the tensors; they share memory with `flat` and its gradient."""
        return [
            piece.view(len(flat), *shape)
            for piece, shape in zip(flat.split(self.sizes, dim=1), self.shapes, strict=True)
        ]


def differentiate(losses: Tensor, flat: Tensor) -> Tensor:  # [R], [R, P] -> [R, P]
    """Return the gradient of each run's loss with respect to its own parameters."""
    (gradient,) = torch.autograd.grad(losses.sum(), flat)
    return gradient
