"""DomainBed's minibatches, one pair (x, y) per environment, as a batch of one run."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.objectives.base import Batch, DrawnRows, Draws

Minibatches = Sequence[tuple[Tensor, Tensor]]


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
