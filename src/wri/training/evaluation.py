"""Measures of all runs of a stack on all their splits at once."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

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


class _Layer(NamedTuple):
    """Splits without common rows."""

    split_of: Tensor  # [G, N], number of each row's split; the last number for none
    weights: Tensor | None  # [G or 1, N], of the rows, times how often they stand in their split


class _Group(NamedTuple):
    """Runs of one bank."""

    runs: Tensor | None  # [G], their indices in the stack; None for all
    x: Tensor  # [G or 1, N, D]
    y: Tensor  # [G or 1, N]
    layers: list[_Layer]


class Evaluator:
    """Measures on the evaluation splits of all runs.

    Runs that see a bank in the same units share one matrix, so their first layer is one product.
    The split of a row is a number, and the means of splits are one scatter. Splits with common rows
    are in several layers; the outputs of a row are computed once for all of them.
    """

    def __init__(self, runs: Sequence[Run], measures: Sequence[str], device: str) -> None:
        check_measures(measures, runs[0].bank)
        self.measures = tuple(measures)
        self.splits = tuple(runs[0].evaluate)
        self._runs, self._squared = len(runs), runs[0].bank.loss is SQUARED
        self._groups: list[_Group] = []
        for bank in {id(run.bank): run.bank for run in runs}.values():
            numbers = [r for r, run in enumerate(runs) if run.bank is bank]
            self._groups.append(self._group(runs, numbers, device))
        dtype = runs[0].dtype
        units = [float(run.units.target.scale) ** 2 for run in runs]
        self._unit = torch.tensor(units, dtype=dtype, device=device)  # [R], of a squared error
        sizes = [[_size(run, rows) for rows in run.evaluate.values()] for run in runs]
        self._sizes = torch.tensor(sizes, dtype=dtype, device=device)  # [R, S]
        if "r2" in self.measures:
            spreads = [[_variance(run, rows) for rows in run.evaluate.values()] for run in runs]
            self._spreads = torch.tensor(spreads, dtype=dtype, device=device)  # [R, S]

    def _group(self, runs: Sequence[Run], numbers: Sequence[int], device: str) -> _Group:
        chosen = [runs[r] for r in numbers]
        layers = self._layers(chosen)
        used = np.flatnonzero(
            np.any([split_of < len(self.splits) for split_of, _ in layers], (0, 1))
        )
        alike = len({run.source for run in chosen}) == 1
        tensors = [run.tensors(device, used) for run in (chosen[:1] if alike else chosen)]
        which = None if len(numbers) == len(runs) else torch.tensor(numbers, device=device)
        x, y = (torch.stack(each) for each in zip(*tensors, strict=True))
        weights, dtype = chosen[0].bank.weights, chosen[0].dtype
        made = []
        for split_of, times in layers:
            shown = None if weights is None else weights[None, used]
            if (times > 1).any():
                shown = times[:, used] if shown is None else times[:, used] * shown
            counted = None if shown is None else torch.as_tensor(shown, dtype=dtype, device=device)
            made.append(_Layer(torch.as_tensor(split_of[:, used], device=device), counted))
        return _Group(which, x, y, made)

    def _layers(self, runs: Sequence[Run]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return each row's split and its count there, `[G, N]` both, per layer."""
        shape = len(runs), len(runs[0].bank.features)
        none = len(self.splits)
        layers: list[tuple[np.ndarray, np.ndarray]] = []
        for s, name in enumerate(self.splits):
            rows = [run.evaluate[name] for run in runs]
            free = [
                layer
                for layer in layers
                if all((layer[0][k, own] == none).all() for k, own in enumerate(rows))
            ]
            if not free:
                free = [(np.full(shape, none), np.ones(shape, np.int32))]
                layers += free
            split_of, times = free[0]
            for k, own in enumerate(rows):
                split_of[k, own] = s
                times[k] += np.bincount(own, minlength=shape[1]).clip(1) - 1
        return layers

    @torch.no_grad()
    def __call__(self, model: Model) -> np.ndarray:  # [M, R, S]
        shape = (len(self.measures), self._runs, len(self.splits))
        found = model.flat.new_zeros(shape)
        for group in self._groups:
            here = model
            if group.runs is not None:
                here = model._replace(flat=model.flat[group.runs])
            which = slice(None) if group.runs is None else group.runs
            values = self._measure(here, group, which)
            for m, measure in enumerate(self.measures):
                found[m, which] = values[measure]
        return found.cpu().double().numpy()

    def _measure(self, model: Model, group: _Group, which: slice | Tensor) -> Mapping[str, Tensor]:
        """Return each measure of some runs, `[G, S]`."""
        n = len(group.layers[0].split_of)
        per_row = [m for m in ("accuracy", "loss") if m in self._summed]
        sums = {m: model.flat.new_zeros((n, len(self.splits) + 1)) for m in per_row}
        scores = []
        lost = torch.zeros((n, len(self.splits)), dtype=torch.bool, device=model.flat.device)
        size = max(1, MOST_ROWS // n)
        for start in range(0, group.x.shape[1], size):
            rows = slice(start, start + size)
            outputs = model.outputs(group.x[:, rows])  # [G, N, C]
            targets = group.y[:, rows].expand(n, -1)
            infinite = None if outputs.sum().isfinite() else ~outputs.isfinite().all(-1)
            values = {measure: _values(measure, model, outputs, targets) for measure in sums}
            for layer in group.layers:
                split_of = layer.split_of[:, rows]
                if infinite is not None:  # measures of such outputs would look valid
                    lost |= _splits_with(infinite, split_of, lost)
                for measure, total in sums.items():
                    counted = values[measure]
                    if layer.weights is not None:
                        counted = counted * layer.weights[:, rows]
                    total.scatter_add_(1, split_of, counted)
            if "auroc" in self.measures:
                scores.append(outputs[..., -1] - (outputs[..., 0] if outputs.shape[-1] > 1 else 0))
        # a split without rows gives NaN
        means: dict[str, Tensor] = {}
        for measure, total in sums.items():
            means[measure] = total[:, :-1] / self._sizes[which]
        if self._squared:
            means["loss"] = means["loss"] * self._unit[which, None]
            means["squared_error"] = means["loss"]
        if "r2" in self.measures:
            means["r2"] = 1 - means["loss"] / self._spreads[which]
        if "auroc" in self.measures:
            means["auroc"] = self._aurocs(torch.cat(scores, 1), group)
        if lost.any():
            means = {measure: torch.where(lost, torch.nan, each) for measure, each in means.items()}
        return means

    def _aurocs(self, scores: Tensor, group: _Group) -> Tensor:  # [G, N] -> [G, S]
        """Return AUROCs; a split is in one layer, and NaN in all others."""
        found = [
            auroc_by_split(scores, group.y, layer.split_of, len(self.splits), layer.weights)
            for layer in group.layers
        ]
        each = torch.stack(found)
        return torch.where(each.isnan().all(0), torch.nan, each.nan_to_num(0.0).sum(0))

    @property
    def _summed(self) -> set[str]:
        """Means over rows from which the measures are computed."""
        return {"loss"} if self._squared else set(self.measures)


def by_split(
    values: np.ndarray, measures: Sequence[str], splits: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:  # [T, M, S]
    """Return the checkpoints of a run by measure and split, `[T]` each."""
    return {
        measure: {split: values[:, m, s] for s, split in enumerate(splits)}
        for m, measure in enumerate(measures)
    }


def _splits_with(rows: Tensor, split_of: Tensor, like: Tensor) -> Tensor:  # [G, N] -> [G, S]
    """Return the splits that hold any of `rows`."""
    counts = torch.zeros((len(like), like.shape[1] + 1), device=like.device)
    return counts.scatter_add_(1, split_of, rows.to(counts.dtype))[:, :-1] > 0


def _values(measure: str, model: Model, outputs: Tensor, targets: Tensor) -> Tensor:  # [G, N]
    if measure == "accuracy":
        return model.loss.correct(outputs, targets).to(outputs.dtype)
    return model.loss.per_example(outputs, targets)


def auroc_by_split(
    scores: Tensor,  # [G, N]
    positive: Tensor,  # [G or 1, N], class 0 or 1
    split_of: Tensor,  # [G, N]
    splits: int,
    weights: Tensor | None = None,  # [G or 1, N]
) -> Tensor:  # [G, S]
    """Return P(positive scores higher) + ½·P(tied) per split; NaN if a class is missing."""
    by_score = scores.argsort(dim=1, stable=True)
    by_split = split_of.gather(1, by_score).argsort(dim=1, stable=True)
    order = by_score.gather(1, by_split)  # splits one after the other, scores ascending in each
    score, split = scores.gather(1, order), split_of.gather(1, order)
    one = positive.expand_as(scores).gather(1, order).to(torch.float64)
    count = torch.ones_like(one)
    if weights is not None:
        count = weights.double().expand_as(scores).gather(1, order)
    ones, zeros = one * count, (1 - one) * count
    new = torch.ones_like(split)  # where a group of tied rows begins
    new[:, 1:] = ((score.diff(dim=1) != 0) | (split.diff(dim=1) != 0)).long()
    group = new.cumsum(1) - 1
    tied = torch.zeros_like(zeros).scatter_add_(1, group, zeros)  # zeros of each group
    before = (tied.cumsum(1) - tied).gather(1, group)  # zeros before the group, all splits
    shape = (len(scores), splits + 1)
    totals = [torch.zeros(shape, dtype=torch.float64, device=scores.device) for _ in range(3)]
    total_zeros = totals[0].scatter_add_(1, split, zeros)
    total_ones = totals[1].scatter_add_(1, split, ones)
    earlier = (total_zeros.cumsum(1) - total_zeros).gather(1, split)  # zeros of earlier splits
    wins = ones * (before - earlier + tied.gather(1, group) / 2)
    found = totals[2].scatter_add_(1, split, wins) / (total_zeros * total_ones)
    return found[:, :-1].to(scores.dtype)


def _size(run: Run, rows: np.ndarray) -> float:
    """Return the number of rows of a split, or their weight."""
    return len(rows) if run.bank.weights is None else float(run.bank.weights[rows].sum())


def _variance(run: Run, rows: np.ndarray) -> float:
    """Return the variance of a split's targets; NaN if all are equal."""
    if not len(rows):
        return np.nan
    targets = run.bank.targets[rows]
    weights = None if run.bank.weights is None else run.bank.weights[rows]
    variance = float(np.average((targets - np.average(targets, weights=weights)) ** 2, 0, weights))
    return variance or np.nan
