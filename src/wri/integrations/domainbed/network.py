"""PyTorch modules, a featurizer and a classifier, as a network of one run.

Objectives see `head ∘ Φ` with all parameters in one row. `flat()` is that row of the modules' own
parameters, and gradients of it reach them. Other rows, such as MLDG's after its inner step, replace
them for one call. Inputs of any shape are flattened in batches and unflattened here.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wri.errors import InputError
from wri.stacked import View, Views

HIDDEN = 64  # units of the default featurizer's layers


class ModuleNetwork:
    """Featurizer and classifier as a network of one run.

    Parameters
    ----------
    featurizer
        `[N, *input_shape]` to `[N, F]`, or to any shape that flattens to it.
    classifier
        `[N, F]` to `[N, C]`.
    input_shape
        Of a row.
    width
        F.
    """

    def __init__(
        self, featurizer: nn.Module, classifier: nn.Module, input_shape: Sequence[int], width: int
    ) -> None:
        self.featurizer = featurizer
        self.classifier = classifier
        self.input_shape = tuple(input_shape)
        self.width = width
        self.latest: tuple[Tensor | None, Tensor | None] = (None, None)  # x and its outputs

    def flat(self) -> Tensor:  # [1, P]
        """Return the modules' parameters in one row."""
        return torch.cat([p.reshape(-1) for module in self._both for p in module.parameters()])[
            None
        ]

    def view_width(self, what: View) -> int:
        if what == "x":
            raise InputError("densities see the featurizer's output here, 'phi', not 'x'")
        return self.width if what == "phi" else output_width(self.classifier, (self.width,))

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:  # [K, …, D] -> [K, …, F]
        self.latest = (x, None)
        rows = x.reshape(len(x), -1, *self.input_shape)  # [K, N, *input_shape]
        return self._call(0, flat, rows).unflatten(1, x.shape[1:-1])

    def head(self, flat: Tensor, phi: Tensor) -> Tensor:  # [K, …, F] -> [K, …, C]
        outputs = self._call(1, flat, phi.flatten(1, -2)).unflatten(1, phi.shape[1:-1])
        self.latest = (self.latest[0], outputs.detach())
        return outputs

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:  # [K, …, D] -> [K, …, C]
        return self.head(flat, self.represent(flat, x))

    def views(self, flat: Tensor, x: Tensor) -> Views:
        phi = self.represent(flat, x)
        return Views(x, phi, self.head(flat, phi))

    @property
    def _both(self) -> tuple[nn.Module, nn.Module]:
        return self.featurizer, self.classifier

    def _call(self, which: int, flat: Tensor, rows: Tensor) -> Tensor:  # [K, N, …] -> [K, N, F]
        """Call copy k of a module on its own rows, with the parameters of row k."""
        named = [dict(module.named_parameters()) for module in self._both]
        sizes = [sum(p.numel() for p in own.values()) for own in named]
        own = flat.split(sizes, dim=1)[which]  # [K, P of the module]
        pieces = own.split([p.numel() for p in named[which].values()], dim=1)
        made = []
        for k, inputs in enumerate(rows):
            values = {
                name: piece[k].view_as(p)
                for (name, p), piece in zip(named[which].items(), pieces, strict=True)
            }
            made.append(functional_call(self._both[which], values, (inputs,)).flatten(1))
        return torch.stack(made)


def make_featurizer(input_shape: Sequence[int], hparams: dict[str, Any], given: Any) -> nn.Module:
    """Return the given featurizer, DomainBed's if it is installed, or a small perceptron."""
    if isinstance(given, nn.Module):
        return given
    if given is not None:
        made: nn.Module = given(input_shape, hparams)
        return made
    try:
        networks = import_module("domainbed.networks")
    except ModuleNotFoundError:
        if len(input_shape) != 1:
            raise InputError(
                f"inputs of shape {tuple(input_shape)} need a featurizer and DomainBed is not "
                "installed; give featurizer=, a module that makes features of them"
            ) from None
        return nn.Sequential(
            nn.Linear(input_shape[0], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
    featurizer: nn.Module = networks.Featurizer(tuple(input_shape), hparams)
    return featurizer


def output_width(featurizer: nn.Module, input_shape: Sequence[int]) -> int:
    """Return the featurizer's `n_outputs`, as in DomainBed, or the width of its output."""
    width = getattr(featurizer, "n_outputs", None)
    if isinstance(width, int):
        return width
    like = next(iter(featurizer.parameters()), torch.zeros(()))
    was_training = featurizer.training
    featurizer.eval()
    with torch.no_grad():
        made = featurizer(torch.zeros(2, *input_shape, dtype=like.dtype, device=like.device))
    featurizer.train(was_training)
    return int(made.flatten(1).shape[1])
