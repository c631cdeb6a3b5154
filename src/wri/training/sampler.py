"""Batches of a stack: each run draws from its own rows with its own generator.

Rows are drawn with replacement, as in DomainBed's loaders, with equal probability or by the weights
of the bank. An environment with no more rows than the batch is used completely, each row once with
its weight, unless the objective resamples it. Batches are padded to the largest of the stack;
padding has weight zero.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wri.objectives.base import Batch, DrawnRows, Draws, Start, TrainingRows
from wri.stacked import Streams, generator
from wri.training.runs import Run, cached_for

AHEAD = 2**20  # row numbers per draw
AT_ONCE = 2**13  # rows of a run's density steps per lookup


class StackedRows:
    """Rows of a stack's runs on the device, one bank after the other.

    A bank is stored once for all runs that do not standardise, and once per split that standardises
    it.
    """

    def __init__(self, runs: Sequence[Run], device: str) -> None:
        sources = {run.source: run for run in runs}
        sizes = [len(run.bank.features) for run in sources.values()]
        starts = dict(zip(sources, np.cumsum([0, *sizes]), strict=False))
        self.starts = [int(starts[run.source]) for run in runs]
        tensors = [run.tensors(device) for run in sources.values()]
        self.x, self.y = tensors[0]
        if len(tensors) > 1:
            self.x, self.y = map(torch.cat, zip(*tensors, strict=True))

    def batch(self, rows: Tensor) -> Batch:  # rows [R, …, B]
        return Batch(self.look_up(rows), self.y[rows])

    def drawn(self, drawn: DrawnRows) -> Batch:
        return Batch(self.look_up(drawn.rows), self.y[drawn.rows], drawn.weight, drawn.indices)

    def look_up(self, rows: Tensor) -> Tensor:  # [R, …, B] -> [R, …, B, D]
        return torch.nn.functional.embedding(rows, self.x)


class Sampler:
    """Row numbers `[R, E, B]` for one purpose, with a batch size per run."""

    def __init__(
        self,
        runs: Sequence[Run],
        features: StackedRows,
        sizes: Sequence[int],
        purpose: str,
        dtype: torch.dtype,
    ) -> None:
        self._whole = runs[0].objective.full_batch
        self._generators = [generator(run.seed, purpose) for run in runs]
        self._tables = [
            np.concatenate(list(run.train)) + s
            for run, s in zip(runs, features.starts, strict=True)
        ]
        counts = [[len(rows) for rows in run.train] for run in runs]
        self._counts = np.array(counts)  # [R, E]
        self._starts = np.cumsum(np.pad(self._counts, ((0, 0), (1, 0))), axis=1)[:, :-1]
        self._taken = np.minimum(self._counts, np.array(sizes)[:, None])  # [R, E]
        self.size = int(self._taken.max())  # B
        self._device = features.x.device
        self._row_weights = [
            None if run.bank.weights is None else [run.bank.weights[rows] for rows in run.train]
            for run in runs
        ]
        self.weight = self._weights(dtype)

    def _weights(self, dtype: torch.dtype) -> Tensor | None:  # [R, E, B]
        if (self._taken == self.size).all() and all(w is None for w in self._row_weights):
            return None
        real = np.arange(self.size) < self._taken[..., None]
        weight = real / self._taken[..., None]
        for run, weights in enumerate(self._row_weights):
            if weights is not None:
                for e in self._used_whole(run):
                    weight[run, e, : len(weights[e])] = weights[e] / weights[e].sum()
        return torch.as_tensor(weight, dtype=dtype).to(self._device)

    def _used_whole(self, run: int) -> np.ndarray:
        """Return the environments whose rows are all in every batch."""
        whole = self._whole != "resampled"
        if self._row_weights[run] is not None:  # shuffled rows would need their weights shuffled
            whole = self._whole == "whole"
        return np.flatnonzero((self._taken[run] == self._counts[run]) & whole)

    def table(self, run: int) -> np.ndarray:
        """Return all training rows of a run, environment by environment."""
        return self._tables[run]

    def indices(self, run: int, steps: int) -> np.ndarray:  # [steps, E, B]
        """Return the next `steps` batches as indices in `table`; padding repeats the first row.

        So nothing can overflow at padding that does not overflow at a row of the batch.
        """
        counts, taken, starts = self._counts[run], self._taken[run], self._starts[run]
        longest = int(taken.max())
        position = np.zeros((steps, len(counts), self.size), dtype=np.int64)
        drawn = self._generators[run].random((steps, len(counts), longest))
        position[..., :longest] = self._indices(run, drawn)
        for e in self._used_whole(run):
            position[:, e] = 0
            own = drawn[:, e, : counts[e]]
            position[:, e, : counts[e]] = (
                own.argsort(-1) if self._whole == "shuffled" else range(counts[e])
            )
        if taken.min() < self.size:
            padding = np.arange(self.size) >= taken[:, None]  # [E, B]
            position = np.where(padding, position[..., :1], position)
        position += starts[:, None]
        return position

    def _indices(self, run: int, drawn: np.ndarray) -> np.ndarray:  # [steps, E, B]
        """Return indices in each environment from numbers drawn in [0, 1)."""
        weights = self._row_weights[run]
        if weights is None:
            return drawn * self._counts[run][:, None]
        indices = np.empty_like(drawn)
        for e, own in enumerate(weights):
            ends = own.cumsum()
            indices[:, e] = np.searchsorted(ends / ends[-1], drawn[:, e], "right")
        return indices

    def stream(self, steps: int) -> Iterator[DrawnRows]:
        """Yield the batches of all runs, step by step."""
        runs, environments = self._counts.shape
        ahead = max(1, AHEAD // (runs * environments * self.size))
        for start in range(0, steps, ahead):
            own = [self.indices(run, min(ahead, steps - start)) for run in range(runs)]
            found = [table[indices] for table, indices in zip(self._tables, own, strict=True)]
            rows, indices = (
                torch.from_numpy(np.stack(part, axis=1)).to(self._device) for part in (found, own)
            )
            for step in range(len(rows)):
                yield DrawnRows(rows[step], indices[step], self.weight)


def start_objective(
    runs: Sequence[Run], features: StackedRows, dtype: torch.dtype
) -> tuple[Any, Draws, Streams]:
    """Return the state of the runs' objective before the first step, rows and random draws."""
    first, seeds, device = runs[0], [run.seed for run in runs], str(features.x.device)
    draws = StackDraws(runs, features, dtype)
    start = Start(
        seeds=seeds,
        environments=len(first.train),
        network=first.network,
        dtype=dtype,
        device=device,
        draws=draws,
    )
    return first.objective.initial(start), draws, Streams(seeds, "objective", dtype, device)


class StackDraws(Draws):
    """Density batches and whole environments of a stack's runs."""

    def __init__(self, runs: Sequence[Run], features: StackedRows, dtype: torch.dtype) -> None:
        self._runs = runs
        self._features = features
        self._dtype = dtype

    @cached_property
    def _sampler(self) -> Sampler:
        """Sampler of density batches, made on first use: most objectives have no densities."""
        sizes = [int(run.hyper["density_batch_size"]) for run in self._runs]
        return Sampler(self._runs, self._features, sizes, "density batches", self._dtype)

    @property
    def rows_per_step(self) -> int:
        return self._sampler.size * len(self._runs[0].train)

    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        indices = [self._sampler.indices(run, n) for run, n in zip(runs, steps, strict=True)]
        weight = self._sampler.weight
        if weight is not None:
            weight = weight[list(runs)]
        start = 0
        while start < steps[0]:
            n = sum(count > start for count in steps)
            stop = min(steps[n - 1], start + max(1, AT_ONCE // self.rows_per_step))
            parts = [own[start:stop] for own in indices[:n]]
            rows = [self._sampler.table(run)[own] for run, own in zip(runs, parts, strict=False)]
            yield DrawnRows(
                self._on_device(rows),
                self._on_device(parts),
                None if weight is None else weight[:n],
            )
            start = stop

    def _on_device(self, arrays: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.stack(arrays)).to(self._features.x.device)

    def batch(self, rows: Tensor) -> Batch:
        return self._features.batch(rows)

    def features(self, rows: Tensor) -> Tensor:
        return self._features.look_up(rows)

    def n_learned(self, run: int) -> int:
        return len(self._sampler.table(run))

    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        tables = [self._sampler.table(run) for run in runs]
        longest = max(map(len, tables))
        for start in range(0, longest, AT_ONCE):
            piece = np.arange(start, min(start + AT_ONCE, longest))
            yield self._on_device(
                [table[np.where(piece < len(table), piece, 0)] for table in tables]
            )

    def training_rows(self, run: int) -> TrainingRows:
        return self._runs[run].training_rows()

    def split(self, run: int) -> Hashable:
        return self._runs[run].split

    def cached(self, run: int, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        return cached_for(self._runs[run], key, make)
