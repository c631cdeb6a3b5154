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
    """Division of a row of numbers into tensors of given shapes.

    Parameters
    ----------
    shapes : tuple of tuple of int
        Shapes of the tensors.

    Examples
    --------
    >>> import torch
    >>> from wri.stacked import Packing
    >>> packing = Packing(((2, 2), (3,)))
    >>> [tuple(part.shape) for part in packing.views(torch.zeros(4, packing.size))]
    [(4, 2, 2), (4, 3)]
    """

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
        """Return the tensors; they share memory with `flat` and its gradient.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            One row per run.

        Returns
        -------
        tensors : list of Tensor
            `[R, *shape]` each.
        """
        return [
            piece.view(len(flat), *shape)
            for piece, shape in zip(flat.split(self.sizes, dim=1), self.shapes, strict=True)
        ]


def differentiate(losses: Tensor, flat: Tensor) -> Tensor:  # [R], [R, P] -> [R, P]
    """Return the gradient of each run's loss with respect to its own parameters.

    Runs share no parameters, so the gradient of the sum holds the gradient of each run.

    Parameters
    ----------
    losses : Tensor of shape (R,)
        Loss of each run.
    flat : Tensor of shape (R, P)
        Parameters.

    Returns
    -------
    gradient : Tensor of shape (R, P)
        Gradient of each run.

    Examples
    --------
    >>> import torch
    >>> from wri.stacked import differentiate
    >>> flat = torch.tensor([[1.0], [3.0]], requires_grad=True)
    >>> differentiate(flat.square().sum(1), flat)
    tensor([[2.],
            [6.]])
    """
    (gradient,) = torch.autograd.grad(losses.sum(), flat)
    return gradient
