"""Multi-layer perceptrons `head ∘ Φ` with a leading axis of runs.

Shapes are written `[R, E, B, features]`, but activations are stored with the features before the
rows, `[R, features, rows]`: with few classes and many rows the last product and the softmax are
several times faster in this order.

All parameters of a run are one row `[R, P]`: gradients, Adam, clipping, freezing and saving are a
few operations, whatever the number of layers.

Random numbers of a run come from its own seed and a purpose, never from its place in a stack, so a
run in a stack equals the run alone. NumPy draws them on every device.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple, Protocol, Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError, shorten


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Make the random generator of one run and one purpose."""
    return np.random.default_rng([seed, crc32(purpose.encode())])


class Streams:
    """One random generator per run of a stack."""

    def __init__(self, seeds: Sequence[int], purpose: str, dtype: torch.dtype, device: str) -> None:
        self.generators = [generator(seed, purpose) for seed in seeds]
        self._dtype = dtype
        self._device = device

    def take(self, runs: Sequence[int]) -> Self:
        """Return the same generators of some runs only."""
        taken = copy(self)
        taken.generators = [self.generators[run] for run in runs]
        return taken

    def permutations(self, n: int) -> Tensor:  # [R, n]
        """Draw one permutation per run."""
        rows = np.stack([g.permutation(n) for g in self.generators])
        return torch.from_numpy(rows).to(self._device)

    def beta(self, alpha: Tensor, n: int) -> Tensor:  # [R] -> [R, n]
        """Draw from Beta(α, α) with each run's own α."""
        rows = [g.beta(a, a, n) for g, a in zip(self.generators, alpha.tolist(), strict=True)]
        return torch.from_numpy(np.stack(rows)).to(self._device, self._dtype)


MOST_WEIGHTS = 2**27  # one gigabyte in double precision
View = Literal["x", "phi", "outputs"]
"""What a density or the evidence sees of a row."""


class Views(NamedTuple):
    """Rows at three stages of a network: inputs, Φ(x) and outputs."""

    x: Tensor  # [R, …, D]
    phi: Tensor  # [R, …, F]
    outputs: Tensor  # [R, …, C]

    def view(self, what: View) -> Tensor:
        """Return the view of that name."""
        found: Tensor = getattr(self, what)
        return found


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


class AnyNetwork(Protocol):
    """Protocol of a network `head ∘ Φ` whose parameters are rows `flat [R, P]`."""

    def view_width(self, what: View) -> int:
        """Return the width of a view."""

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:  # [R, P], [R, …, D] -> [R, …, F]
        """Return Φ(x)."""

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:  # [R, P], [R, …, F] -> [R, …, C]
        """Return the outputs of a representation."""

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:  # [R, P], [R, …, D] -> [R, …, C]
        """Return head(Φ(x))."""

    def views(self, flat: Tensor, x: Tensor) -> Views:  # [R, P], [R, …, D]
        """Return x, Φ(x) and head(Φ(x))."""


@dataclass(frozen=True)
class Network:
    """Multi-layer perceptron with ReLU, stacked over runs; Φ is all but the last layer."""

    widths: tuple[int, ...]  # inputs, hidden layers, outputs; with (D, C) Φ is the identity
    copies: int = 1  # K, independent networks per run, such as one per environment's density

    def __post_init__(self) -> None:
        if self.packing.size > MOST_WEIGHTS:
            hidden = shorten(self.widths[1:-1])
            raise InputError(
                f"hidden layers of {hidden} units have more than {MOST_WEIGHTS:,} weights; give "
                "smaller ones"
            )

    @cached_property
    def packing(self) -> Packing:
        """Shapes of the weights and biases."""
        shapes: list[tuple[int, ...]] = []
        for inputs, outputs in pairwise(self.widths):
            shapes += [(self.copies, outputs, inputs), (self.copies, outputs, 1)]
        return Packing(tuple(shapes))

    def view_width(self, what: View) -> int:
        """Return the width of a view."""
        return {"x": self.widths[0], "phi": self.widths[-2], "outputs": self.widths[-1]}[what]

    def initial(self, seeds: Sequence[int], purpose: str = "weights") -> np.ndarray:  # [R, P]
        """Draw initial parameters, uniform in ±1/√inputs like PyTorch's linear layers."""
        bound = np.concatenate(
            [
                np.full(self.copies * outputs * (inputs + 1), inputs**-0.5)
                for inputs, outputs in pairwise(self.widths)
            ]
        )
        return np.stack([generator(s, purpose).uniform(-bound, bound) for s in seeds])

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:  # [R, P], [R·K, …, D] -> [R·K, …, F]
        """Return Φ(x)."""
        return self._through(self._parts(flat)[:-1], x)

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:  # [R, P], [R·K, …, F] -> [R·K, …, C]
        """Return the outputs of a representation: the last layer."""
        return self._through(self._parts(flat)[-1:], phi, last=True)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:  # [R, P], [R·K, …, D] -> [R·K, …, C]
        """Return head(Φ(x))."""
        return self._through(self._parts(flat), x, last=True)

    def views(self, flat: Tensor, x: Tensor) -> Views:  # [R, P], [R·K, …, D]
        """Return x, Φ(x) and head(Φ(x))."""
        phi = self.represent(flat, x)
        return Views(x, phi, self.head(flat, phi))

    def outputs_of_copies(self, flat: Tensor, x: Tensor) -> Tensor:  # [R, …, D] -> [R, K, …, C]
        """Return the outputs of all copies at the same x; their first layers are one product."""
        (weight, bias), *others = self._parts(flat)
        runs = len(flat)
        first = weight.reshape(runs, -1, self.widths[0]), bias.reshape(runs, -1, 1)
        outputs = self._through([first, *others], x, last=True)
        return outputs.unflatten(0, (-1, self.copies))

    def _parts(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return weight `[R·K, out, in]` and bias `[R·K, out, 1]` of each layer."""
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
        """Apply some layers to x, with ReLU after each but the `last` of the network."""
        hidden = _columns(x)  # [R, F, N]
        for k, (weight, bias) in enumerate(parts):
            if k == 0 and len(hidden) == 1 < len(weight):  # all runs share the rows: one product
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


def differentiate(losses: Tensor, flat: Tensor) -> Tensor:  # [R], [R, P] -> [R, P]
    """Return the gradient of each run's loss with respect to its own parameters."""
    (gradient,) = torch.autograd.grad(losses.sum(), flat)
    return gradient


Pullback = Callable[[Tensor], Tensor]
"""Function from the gradient at some values to the gradient at the parameters; called once."""


class OneHiddenLayer:
    """Networks with one hidden layer and one output, differentiated by hand for many cheap steps.

        h = relu(W x + b),   o = v·h + c

    With g the gradient at o, and G = g where h > 0 and zero elsewhere:

        at W   v ⊙ (G xᵀ)              at b   v ⊙ ΣG
        at v   (W ⊙ G xᵀ)·1 + b ⊙ ΣG   at c   Σg

    Only two products grow with the number of rows. No graph is kept, there is no gradient with
    respect to x, and activations are overwritten in place.
    """

    def __init__(self, network: Network, flat: Tensor) -> None:
        self._inputs, self._hidden, _ = network.widths
        self._copies, self._flat = network.copies, flat
        self._pieces = flat.split(network.packing.sizes, 1)  # weight, bias, and those of the output

    def forward(self, x: Tensor) -> tuple[Tensor, Pullback]:  # [R, N, D] -> [R, K, N]
        """Compute outputs and their pullback; call it under `no_grad`."""
        groups, rows, _ = x.shape
        runs, units = len(self._flat), self._copies * self._hidden
        weight, bias, out_weight, out_bias = self._pieces
        first = weight.reshape(groups, -1, self._inputs)
        shift = bias.reshape(groups, -1, 1)
        second = out_weight.reshape(-1, 1, self._hidden)  # [R·K, 1, H]
        hidden = torch.baddbmm(shift, first, x.transpose(1, 2)).relu_()
        by_copy = hidden.view(-1, self._hidden, rows)  # [R·K, H, N]
        outputs = torch.baddbmm(out_bias.reshape(-1, 1, 1), second, by_copy)

        def pullback(gradient: Tensor) -> Tensor:  # [R, K, N]
            gradient = gradient.reshape(-1, 1, rows)
            torch.ops.aten.threshold_backward.grad_input(gradient, by_copy, 0, grad_input=by_copy)
            sums = hidden.sum(-1).view(runs, units)  # of G, which stands in the place of h
            products = torch.bmm(hidden, x)  # [groups, …, D]
            at_second = torch.addcmul((first * products).sum(-1).view(runs, units), bias, sums)
            at_first = products.view(runs, units, -1).mul_(out_weight[:, :, None])
            at_outputs = gradient.sum(-1).view(runs, -1)
            return torch.cat([at_first.flatten(1), sums * out_weight, at_second, at_outputs], 1)

        return outputs.view(runs, self._copies, rows), pullback
