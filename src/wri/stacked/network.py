"""Multi-layer perceptrons `head ∘ Φ` with a leading axis of runs.

Shapes are written `[R, E, B, features]`, but activations lie in memory with the features
before the rows, `[R, features, rows]`: few classes and many rows make the last product and
the softmax several times faster that way (see `benchmarks/`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from wri.stacked.packing import Packing
from wri.stacked.seeds import generator


@dataclass(frozen=True)
class Network:
    """A perceptron with ReLU between its layers; Φ is everything before the last layer.

    Parameters
    ----------
    widths
        Inputs, hidden layers, outputs. With `(D, C)` Φ is the identity.
    copies
        Independent networks in each run, K of them (one for each environment's density).
    """

    widths: tuple[int, ...]
    copies: int = 1

    @property
    def packing(self) -> Packing:
        shapes: list[tuple[int, ...]] = []
        for inputs, outputs in pairwise(self.widths):
            shapes += [(self.copies, outputs, inputs), (self.copies, outputs, 1)]
        return Packing(tuple(shapes))

    @property
    def feature_width(self) -> int:
        """The width of Φ(x)."""
        return self.widths[-2]

    def initial(self, seeds: Sequence[int], purpose: str = "weights") -> np.ndarray:  # [R, P]
        """Uniform in ±1/√inputs, weights and biases, as PyTorch's linear layers start."""
        bound = np.concatenate(
            [
                np.full(self.copies * outputs * (inputs + 1), inputs**-0.5)
                for inputs, outputs in pairwise(self.widths)
            ]
        )
        return np.stack([generator(s, purpose).uniform(-bound, bound) for s in seeds])

    def represent(self, parts: Sequence[Tensor], x: Tensor) -> Tensor:
        """Φ(x): `[R·K, …, D]` (or `[1, …, D]`, shared by all) to `[R·K, …, F]`."""
        hidden = _columns(x)
        for weight, bias in zip(parts[:-2:2], parts[1:-2:2], strict=True):  # [R, K, out, in]
            hidden = _affine(weight.flatten(0, 1), bias.flatten(0, 1), hidden).relu_()
        return _logical(hidden, x.shape[1:-1])

    def head(self, parts: Sequence[Tensor], phi: Tensor) -> Tensor:
        """The last layer: `[R·K, …, F]` to `[R·K, …, C]`."""
        weight, bias = parts[-2].flatten(0, 1), parts[-1].flatten(0, 1)
        return _logical(_affine(weight, bias, _columns(phi)), phi.shape[1:-1])

    def outputs(self, parts: Sequence[Tensor], x: Tensor) -> Tensor:
        """head(Φ(x)): `[R·K, …, D]` to `[R·K, …, C]`."""
        return self.head(parts, self.represent(parts, x))

    def outputs_of_copies(self, parts: Sequence[Tensor], x: Tensor) -> Tensor:
        """Every copy on the same x: `[R, …, D]` to `[R, K, …, C]`.

        The copies' first layers stand side by side in one product.
        """
        first = _affine(parts[0].flatten(1, 2), parts[1].flatten(1, 2), _columns(x))
        hidden = first.view(-1, self.widths[1], first.shape[-1])  # [R·K, H, N]
        for weight, bias in zip(parts[2::2], parts[3::2], strict=True):
            hidden = _affine(weight.flatten(0, 1), bias.flatten(0, 1), hidden.relu_())
        return _logical(hidden, x.shape[1:-1]).unflatten(0, (-1, self.copies))


def _columns(x: Tensor) -> Tensor:  # [R, …, F] -> [R, F, N], without a copy where possible
    return x.movedim(-1, 1).flatten(2) if x.stride(-1) != 1 else x.flatten(1, -2).transpose(1, 2)


def _logical(hidden: Tensor, rows: Sequence[int]) -> Tensor:  # [R, F, N] -> [R, …, F]
    return hidden.unflatten(2, tuple(rows)).movedim(1, -1)


def _affine(weight: Tensor, bias: Tensor, columns: Tensor) -> Tensor:
    """`[R, out, in] · [R or 1, in, N] + [R, out, 1]`."""
    if columns.shape[0] == 1 < weight.shape[0]:  # one product for all runs
        product = torch.mm(weight.flatten(0, 1), columns[0]).unflatten(0, weight.shape[:2])
    else:
        product = torch.bmm(weight, columns)
    return product.add_(bias)
