"""Modules, minibatches and state of a training loop, as those of a single run.

Objectives see `head ∘ Φ` with all parameters in one row. `flat()` is that row of the modules' own
parameters, and gradients of it reach them. Other rows, such as MLDG's after its inner step, replace
them for one call. Inputs of any shape are flattened in batches and unflattened here. Minibatches,
one pair (x, y) per environment, are a batch; an objective's state is named tensors, which a module
keeps as buffers.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from wri.errors import InputError
from wri.objectives.base import Batch, DrawnRows, Draws
from wri.stacked import View, Views

HIDDEN = 64  # units of the default featurizer's layers
Minibatches = Sequence[tuple[Tensor, Tensor]]


class ModuleNetwork:
    """Featurizer `[N, *input_shape]` to `[N, width]`, flattened, and classifier to `[N, C]`."""

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


def as_batch(minibatches: Minibatches, environments: int, dtype: torch.dtype) -> Batch:
    """Return `[1, E, B, D]`; short minibatches are padded with their first row, at weight 0."""
    if len(minibatches) != environments:
        raise InputError(
            f"update needs one minibatch per environment ({environments}, num_domains), but "
            f"{len(minibatches)} were given"
        )
    sizes = [len(y) for _, y in minibatches]
    if min(sizes) == 0:
        raise InputError(f"minibatch {sizes.index(0)} has no rows; leave no environment empty")
    longest = max(sizes)
    x = torch.stack([_pad(x.flatten(1), longest) for x, _ in minibatches])[None]
    y = torch.stack([_pad(y, longest) for _, y in minibatches])[None]
    if min(sizes) == longest:
        return Batch(x, y)
    size = torch.tensor(sizes, device=x.device)[:, None]  # [E, 1]
    real = torch.arange(longest, device=x.device) < size
    return Batch(x, y, (real / size).to(dtype)[None])


def _pad(rows: Tensor, longest: int) -> Tensor:  # [n, …] -> [longest, …]
    return torch.cat([rows, rows[:1].expand(longest - len(rows), *rows.shape[1:])])


class MinibatchDraws(Draws):
    """Rows of the latest step for all of its density steps."""

    def __init__(self, features: Callable[[], Batch]) -> None:
        self._features = features  # made when they are wanted: not every step has density steps

    @cached_property
    def _latest(self) -> Batch:
        return self._features()

    @cached_property
    def _rows(self) -> Tensor:  # [1, E, B], numbers of the rows
        y = self._latest.y
        return torch.arange(y.numel(), device=y.device).view_as(y)

    @property
    def rows_per_step(self) -> int:
        return self._latest.y.numel()

    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        rows = self._rows[:, None].expand(1, steps[0], *self._rows.shape[1:])
        yield DrawnRows(rows, rows, self._latest.weight)

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self._latest.x.flatten(0, -2)[rows], self._latest.y.flatten()[rows])

    def n_learned(self, run: int) -> int:
        return self._latest.y.numel()

    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        yield self._rows.flatten(1)

    def environments(self, run: int) -> list[np.ndarray]:
        raise TypeError("a training loop hands out minibatches, not whole environments")

    def targets(self, run: int) -> list[np.ndarray]:
        raise TypeError("a training loop hands out minibatches, not whole environments")

    def split(self, run: int) -> Hashable:
        return 0


def separate(state: Any, name: str = "state") -> tuple[Any, dict[str, Tensor]]:
    """Return a state with names in place of its tensors, and the tensors by name."""
    if state is None:
        return None, {}
    if isinstance(state, Tensor):
        return name, {name: state}
    names: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for field, value in _values(state).items():
        names[field], found = separate(value, f"{name}_{field}")
        tensors |= found
    return _with_values(state, names), tensors


def fill(shape: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state again from the result of `separate`."""
    if shape is None:
        return None
    if isinstance(shape, str):
        return tensors[shape]
    return _with_values(shape, {name: fill(v, tensors) for name, v in _values(shape).items()})


def _values(state: Any) -> dict[str, Any]:
    """Return the fields of a named tuple or a data class."""
    if isinstance(state, tuple):
        return dict(state._asdict())  # type: ignore[attr-defined]
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _with_values(state: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(state, tuple):
        return state._replace(**values)  # type: ignore[attr-defined]
    return replace(state, **values)
