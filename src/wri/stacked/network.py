"""Multi-layer perceptrons `head ∘ Φ` with a leading axis of runs.

Shapes are written `[R, E, B, features]`, but activations lie in memory with the features before
the rows, `[R, features, rows]`: with few classes and many rows the last product and the softmax
are several times faster that way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from wri.stacked.packing import Packing
from wri.stacked.seeds import generator

Seen = Literal["x", "phi", "outputs"]
"""What a density or the evidence sees of a row."""


class Views(NamedTuple):
    """Rows on their way through a network: inputs, Φ(x), outputs."""

    x: Tensor  # [R, …, D]
    phi: Tensor  # [R, …, F]
    outputs: Tensor  # [R, …, C]

    def seen(self, what: Seen) -> Tensor:
        """The view of that name."""
        found: Tensor = getattr(self, what)
        return found


class AnyNetwork(Protocol):
    """What objectives ask of a network `head ∘ Φ` whose parameters are rows `flat [R, P]`."""

    def width_seen(self, what: Seen) -> int:
        """The width of a view."""

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:
        """Φ(x): `[R, …, D]` to `[R, …, F]`."""

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:
        """`[R, …, F]` to `[R, …, C]`."""

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """head(Φ(x)): `[R, …, D]` to `[R, …, C]`."""

    def views(self, flat: Tensor, x: Tensor) -> Views:
        """x, Φ(x) and head(Φ(x))."""


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

    @cached_property
    def packing(self) -> Packing:
        shapes: list[tuple[int, ...]] = []
        for inputs, outputs in pairwise(self.widths):
            shapes += [(self.copies, outputs, inputs), (self.copies, outputs, 1)]
        return Packing(tuple(shapes))

    def width_seen(self, what: Seen) -> int:
        """The width of a view."""
        return {"x": self.widths[0], "phi": self.widths[-2], "outputs": self.widths[-1]}[what]

    def initial(self, seeds: Sequence[int], purpose: str = "weights") -> np.ndarray:  # [R, P]
        """Uniform in ±1/√inputs, weights and biases, as PyTorch's linear layers start."""
        bound = np.concatenate(
            [
                np.full(self.copies * outputs * (inputs + 1), inputs**-0.5)
                for inputs, outputs in pairwise(self.widths)
            ]
        )
        return np.stack([generator(s, purpose).uniform(-bound, bound) for s in seeds])

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:
        """Φ(x): `[R·K, …, D]` (or `[1, …, D]`, shared by all) to `[R·K, …, F]`."""
        return self._through(self._parts(flat)[:-1], x)

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:
        """The last layer: `[R·K, …, F]` to `[R·K, …, C]`."""
        return self._through(self._parts(flat)[-1:], phi, last=True)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """head(Φ(x)): `[R·K, …, D]` to `[R·K, …, C]`."""
        return self._through(self._parts(flat), x, last=True)

    def views(self, flat: Tensor, x: Tensor) -> Views:
        """x, Φ(x) and head(Φ(x))."""
        phi = self.represent(flat, x)
        return Views(x, phi, self.head(flat, phi))

    def outputs_of_copies(self, flat: Tensor, x: Tensor) -> Tensor:
        """Every copy on the same x: `[R, …, D]` to `[R, K, …, C]`.

        The copies' first layers stand side by side in one product.
        """
        (weight, bias), *others = self._parts(flat)
        runs = len(flat)
        first = weight.reshape(runs, -1, self.widths[0]), bias.reshape(runs, -1, 1)
        outputs = self._through([first, *others], x, last=True)
        return outputs.unflatten(0, (-1, self.copies))

    def _parts(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each layer's weight `[R·K, out, in]` and bias `[R·K, out, 1]`."""
        pieces = flat.split(self.packing.sizes, dim=1)
        return [
            (weight.reshape(-1, outputs, inputs), bias.reshape(-1, outputs, 1))
            for weight, bias, (inputs, outputs) in zip(
                pieces[::2], pieces[1::2], pairwise(self.widths), strict=True
            )
        ]

    def _through(
        self, parts: Sequence[tuple[Tensor, Tensor]], x: Tensor, last: bool = False
    ) -> Tensor:
        """x through some layers, ReLU behind each; not behind the `last` of the network."""
        hidden = _columns(x)  # [R, F, N]
        for k, (weight, bias) in enumerate(parts):
            if k == 0 and len(hidden) == 1 < len(weight):  # rows that all share: one product
                product = torch.mm(weight.flatten(0, 1), hidden[0])
                hidden = product.view(*weight.shape[:2], -1).add_(bias)
            else:
                inputs = hidden.view(len(weight), -1, hidden.shape[-1])
                hidden = torch.baddbmm(bias, weight, inputs)
            if not (last and k == len(parts) - 1):
                hidden = hidden.relu_()
        return hidden.view(len(hidden), -1, *x.shape[1:-1]).movedim(1, -1)


def _columns(x: Tensor) -> Tensor:  # [R, …, F] -> [R, F, N], without a copy where possible
    if x.dim() > 2 and x.stride(-1) != 1:
        return x.movedim(-1, 1).flatten(2)
    return x.flatten(1, -2).transpose(1, 2)
