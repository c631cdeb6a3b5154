"""Measures of all runs of a stack on all their splits, at once."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.objectives.base import Model
from wri.stacked import SQUARED
from wri.training.runs import Run

MEASURES = ("accuracy", "loss")
MOST_ROWS = 65_536  # rows over all runs that are evaluated at a time


def _size(run: Run, rows: np.ndarray) -> float:
    """Rows of a split, or what they weigh."""
    return len(rows) if run.bank.weights is None else float(run.bank.weights[rows].sum())


class Evaluator:
    """Mean accuracy or loss on every run's evaluation splits.

    Runs of one bank see its rows as one matrix, so the first layer of all of them is one product;
    a row's split is a number, and the split means are one scatter.
    """

    def __init__(
        self, runs: Sequence[Run], measures: Sequence[str], dtype: torch.dtype, device: str
    ) -> None:
        for measure in measures:
            if measure not in MEASURES:
                raise InputError(f"unknown measure {measure!r}; choose from {', '.join(MEASURES)}")
        if "accuracy" in measures and runs[0].bank.loss is SQUARED:
            raise InputError("squared has no accuracy; ask for measures=('loss',)")
        self.measures = tuple(measures)
        self.splits = tuple(runs[0].evaluate)
        self._runs = len(runs)
        self._groups = []
        for bank in {id(run.bank): run.bank for run in runs}.values():
            numbers = [r for r, run in enumerate(runs) if run.bank is bank]
            split_of = np.full((len(numbers), len(bank.features)), len(self.splits))
            for k, r in enumerate(numbers):
                for s, rows in enumerate(runs[r].evaluate.values()):
                    split_of[k, rows] = s
            used = np.flatnonzero((split_of < len(self.splits)).any(0))
            x, y = bank.tensors(dtype, device, used)
            counts = None
            if bank.weights is not None:
                counts = torch.as_tensor(bank.weights[used], dtype=dtype, device=device)
            which = None if len(numbers) == len(runs) else torch.tensor(numbers, device=device)
            splits = torch.as_tensor(split_of[:, used], device=device)
            self._groups.append((which, x, y, counts, splits))
        sizes = [[_size(run, rows) for rows in run.evaluate.values()] for run in runs]
        self._sizes = torch.tensor(sizes, dtype=dtype, device=device)  # [R, S]

    @torch.no_grad()
    def __call__(self, model: Model) -> np.ndarray:  # [M, R, S]
        shape = (len(self.measures), self._runs, len(self.splits) + 1)  # the last: in no split
        sums = model.flat.new_zeros(shape)
        for numbers, x, y, counts, split_of in self._groups:
            here = model
            if numbers is not None:
                here = model._replace(flat=model.flat[numbers])
            size = max(1, MOST_ROWS // len(split_of))
            group_sums = sums.new_zeros((shape[0], len(split_of), shape[2]))
            for start in range(0, len(x), size):
                rows = slice(start, start + size)
                outputs = here.outputs(x[None, rows])  # [R, N, C]
                targets = y[rows].expand(len(split_of), -1)
                for m, measure in enumerate(self.measures):
                    values = self._values(measure, here, outputs, targets)
                    if counts is not None:
                        values = values * counts[rows]
                    group_sums[m].scatter_add_(1, split_of[:, rows], values)
            sums[:, slice(None) if numbers is None else numbers] = group_sums
        means = sums[..., :-1] / self._sizes  # a split without rows gives NaN
        return means.cpu().double().numpy()

    @staticmethod
    def _values(measure: str, model: Model, outputs: Tensor, targets: Tensor) -> Tensor:
        if measure == "accuracy":
            return model.loss.correct(outputs, targets).to(outputs.dtype)
        return model.loss.per_example(outputs, targets)
