"""Measures of all runs of a stack on all their splits at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from wri.errors import InputError, check_option
from wri.measures import MEASURES, applicable_measures
from wri.objectives.base import Model
from wri.stacked import SQUARED
from wri.training.runs import Bank, Run

MOST_ROWS = 65_536  # rows over all runs per evaluation step


def check_measures(measures: Sequence[str], bank: Bank) -> None:
    """Refuse measures that do not exist or do not apply to the targets."""
    possible = applicable_measures(bank.n_classes)
    for measure in measures:
        check_option("measure", measure, tuple(MEASURES))
        if measure not in possible and measure != "loss":
            raise InputError(
                f"{measure} does not exist for {bank.loss.name} targets with "
                f"{bank.n_classes or 'no'} classes; ask for {', '.join(possible)}"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class _Group:
    """Runs of one bank."""

    runs: Tensor | slice  # [G], their indices in the stack
    x: Tensor  # [G or 1, N, D]
    y: Tensor  # [G, N]
    rows: Tensor  # [G, T], places in x of the rows of all splits; short splits are padded
    counts: Tensor  # [G, T], how often each row counts; 0 for padding
    lengths: list[int]  # [S], padded
    totals: Tensor  # [G, S], sums of counts


class Evaluator:
    """Measures on the evaluation splits of all runs.

    Runs that see a bank in the same units share one matrix, so their first layer is one product.
    The outputs of a row are computed once, whatever the number of splits that hold it.
    """

    def __init__(self, runs: Sequence[Run], measures: Sequence[str], device: str) -> None:
        check_measures(measures, runs[0].bank)
        self.measures = tuple(measures)
        self._shape = len(measures), len(runs), len(runs[0].evaluate)
        self._squared = runs[0].bank.loss is SQUARED
        self._groups: list[_Group] = []
        for bank in {id(run.bank): run.bank for run in runs}.values():
            numbers = [r for r, run in enumerate(runs) if run.bank is bank]
            self._groups.append(self._group(runs, numbers, device))
        dtype = runs[0].dtype
        units = [float(run.units.target.scale) ** 2 for run in runs]
        self._unit = torch.tensor(units, dtype=dtype, device=device)  # [R], of a squared error
        if "r2" in self.measures:
            spreads = [[_variance(run, rows) for rows in run.evaluate.values()] for run in runs]
            self._spreads = torch.tensor(spreads, dtype=dtype, device=device)  # [R, S]

    def _group(self, runs: Sequence[Run], numbers: Sequence[int], device: str) -> _Group:
        chosen = [runs[r] for r in numbers]
        listed = [rows for run in chosen for rows in run.evaluate.values()]
        used = np.unique(np.concatenate([[0], *listed]))  # never empty
        alike = len({run.source for run in chosen}) == 1
        tensors = [run.tensors(device, used) for run in (chosen[:1] if alike else chosen)]
        x, y = (torch.stack(each) for each in zip(*tensors, strict=True))
        splits = [_pad_split(chosen, name, used) for name in chosen[0].evaluate]
        places, counts = (np.concatenate(part, 1) for part in zip(*splits, strict=True))
        whole, dtype = len(numbers) == len(runs), chosen[0].dtype
        totals = np.stack([own.sum(1) for _, own in splits], 1)
        return _Group(
            runs=slice(None) if whole else torch.tensor(numbers, device=device),
            x=x,
            y=y.expand(len(chosen), -1),
            rows=torch.as_tensor(places, device=device),
            counts=torch.as_tensor(counts, dtype=dtype, device=device),
            lengths=[own.shape[1] for own, _ in splits],
            totals=torch.as_tensor(totals, dtype=dtype, device=device),
        )

    @torch.no_grad()
    def __call__(self, model: Model) -> np.ndarray:  # [M, R, S]
        found = model.flat.new_zeros(self._shape)
        for group in self._groups:
            values = self._measure(model._replace(flat=model.flat[group.runs]), group)
            for m, measure in enumerate(self.measures):
                found[m, group.runs] = values[measure]
        return found.cpu().double().numpy()

    def _measure(self, model: Model, group: _Group) -> Mapping[str, Tensor]:
        """Return each measure of some runs, `[G, S]`; NaN for splits without rows."""
        found = {}
        for measure, values in self._measure_rows(model, group).items():
            own = values.gather(1, group.rows)
            if measure == "auroc":
                parts = own, group.y.gather(1, group.rows), group.counts
                splits = zip(*(part.split(group.lengths, 1) for part in parts), strict=True)
                found[measure] = torch.stack([auroc(*split) for split in splits], 1)
            else:
                sums = [split.sum(1) for split in (own * group.counts).split(group.lengths, 1)]
                found[measure] = torch.stack(sums, 1) / group.totals
        if self._squared:
            found["loss"] = found["loss"] * self._unit[group.runs, None]
            found["squared_error"] = found["loss"]
        if "r2" in self.measures:
            found["r2"] = 1 - found["loss"] / self._spreads[group.runs]
        return found

    def _measure_rows(self, model: Model, group: _Group) -> Mapping[str, Tensor]:
        """Return what the measures are computed from, `[G, N]`; NaN where outputs are infinite."""
        names = {"loss"} if self._squared else set(self.measures)
        found = {name: torch.empty_like(group.y, dtype=model.flat.dtype) for name in names}
        size = max(1, MOST_ROWS // len(group.y))
        for start in range(0, group.x.shape[1], size):
            rows = slice(start, start + size)
            outputs = model.outputs(group.x[:, rows])  # [G, N, C]
            infinite = None if outputs.sum().isfinite() else ~outputs.isfinite().all(-1)
            for name, values in found.items():
                values[:, rows] = _values(name, model, outputs, group.y[:, rows])
                if infinite is not None:  # measures of such outputs would look valid
                    values[:, rows].masked_fill_(infinite, torch.nan)
        return found


def _pad_split(runs: Sequence[Run], name: str, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of a split's rows in `used`, `[G, n]`, and their counts."""
    listed, weights = [run.evaluate[name] for run in runs], runs[0].bank.weights
    places, counts = np.zeros((2, len(runs), max(1, *map(len, listed))))
    for k, own in enumerate(listed):
        places[k, : len(own)] = np.searchsorted(used, own)
        places[k, len(own) :] = places[k, 0]
        counts[k, : len(own)] = 1 if weights is None else weights[own]
    return places.astype(np.int64), counts


def _values(measure: str, model: Model, outputs: Tensor, targets: Tensor) -> Tensor:  # [G, N]
    if measure == "accuracy":
        return model.loss.correct(outputs, targets)
    if measure == "auroc":  # of these scores
        return outputs[..., -1] - (outputs[..., 0] if outputs.shape[-1] > 1 else 0)
    return model.loss.per_example(outputs, targets)


def auroc(scores: Tensor, positive: Tensor, counts: Tensor) -> Tensor:  # [G, n] each -> [G]
    """Return P(positive scores higher) + ½·P(tied); NaN if a class is missing or a score NaN."""
    order = scores.argsort(1)
    score = scores.gather(1, order)
    one, count = positive.gather(1, order).double(), counts.gather(1, order).double()
    ones, zeros = one * count, (1 - one) * count
    group = pad((score.diff(dim=1) != 0).long(), (1, 0)).cumsum(1)  # equal for tied rows
    tied = torch.zeros_like(zeros).scatter_add_(1, group, zeros)  # zeros of each group
    below = (tied.cumsum(1) - tied / 2).gather(1, group)  # zeros before a row, tied ones half
    found = (ones * below).sum(1) / (ones.sum(1) * zeros.sum(1))
    return found.to(scores.dtype).masked_fill(scores.isnan().any(1), torch.nan)


def by_split(
    values: np.ndarray, measures: Sequence[str], splits: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:  # [T, M, S]
    """Return the checkpoints of a run by measure and split, `[T]` each."""
    return {
        measure: {split: values[:, m, s] for s, split in enumerate(splits)}
        for m, measure in enumerate(measures)
    }


def _variance(run: Run, rows: np.ndarray) -> float:
    """Return the variance of a split's targets; NaN if all are equal."""
    if not len(rows):
        return np.nan
    targets = run.bank.targets[rows]
    weights = None if run.bank.weights is None else run.bank.weights[rows]
    variance = float(np.average((targets - np.average(targets, weights=weights)) ** 2, 0, weights))
    return variance or np.nan
