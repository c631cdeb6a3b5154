"""Runs of trees: a specification, rows of a bank, a seed; and what a run leaves behind."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs

from wri.boosting.column_view import ColumnView, fill_gaps
from wri.boosting.row_weights import WeightedRows
from wri.boosting.spec import TreeSpec
from wri.boosting.trees import Trees, grow
from wri.progress import Progress
from wri.rows import Scaling
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED, generator
from wri.training import Run, Units

TWO = 2


@dataclass(frozen=True, eq=False)
class TreeRun(Run):
    """One training of trees.

    Parameters
    ----------
    categorical
        Columns whose numbers are names.
    """

    _: KW_ONLY
    categorical: tuple[int, ...] = ()

    @property
    def tree_spec(self) -> TreeSpec:
        if not isinstance(self.spec, TreeSpec):
            raise TypeError("a run of trees needs a specification of trees")
        return self.spec

    @cached_property
    def view(self) -> ColumnView:
        """What densities see of the columns, in units of the training rows."""
        learned = self.learned
        weights = None if self.bank.weights is None else self.bank.weights[learned]
        return ColumnView.of(self.bank.features[learned], weights, self.categorical)

    @cached_property
    def units(self) -> Units:
        """Inputs as they are; the target of a regression in units of the training rows."""
        units = Units.plain(self.bank.features.shape[1])
        if self.bank.loss is not SQUARED:
            return units
        learned, weights = self.learned, self.bank.weights
        own = None if weights is None else weights[learned]
        return Units(units.inputs, Scaling.of(self.bank.targets[learned].astype(float), own))

    @property
    def weighted_rows(self) -> WeightedRows:
        """The training rows as an objective takes them."""
        learned, bank = self.learned, self.bank
        loss = LOGISTIC if bank.n_classes == TWO else bank.loss
        targets = bank.targets[learned]
        targets = self.units.target.apply(targets) if loss is SQUARED else targets.astype(int)
        return WeightedRows(
            features=self.view.apply(bank.features[learned]),
            targets=targets,
            environment=np.repeat(np.arange(len(self.train)), [len(own) for own in self.train]),
            loss=loss,
            weights=np.ones(len(learned)) if bank.weights is None else bank.weights[learned],
        )

    def without_penalty(self) -> "TreeRun":
        """The same trees for ERM."""
        spec = self.tree_spec
        plain = TreeSpec.grown("erm", spec.trees, stop_after=spec.stop_after)
        return replace(self, spec=plain)

    def outputs(self, trees: Trees, rows: np.ndarray, rounds: int | None = None) -> np.ndarray:
        """What the trees give for some rows, `[n, C]`."""
        return class_outputs(trees.scores(self.bank.features[rows], rounds), self.bank.n_classes)


def class_outputs(scores: np.ndarray, classes: int | None) -> np.ndarray:
    """Scores as outputs for a softmax: of two classes trees score the second alone."""
    if classes != TWO:
        return scores
    return np.column_stack([np.zeros(len(scores)), scores])


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeRecord:
    """What a run of trees left behind."""

    steps: np.ndarray  # [T], round of each checkpoint, counted from 0
    measures: dict[str, dict[str, np.ndarray]]  # measure -> split -> [T]
    diverged_at: int | None  # round after which scores were not finite
    trees: Trees


def split_halves(run: TreeRun) -> np.ndarray:  # [n], 0 or 1
    """Two halves of every environment's rows, drawn by lot; equal rows stay together."""
    random, bank = generator(run.seed, "halves"), run.bank
    found = []
    for own in run.train:
        contents = np.column_stack([fill_gaps(bank.features[own]), bank.targets[own]])
        distinct, place = np.unique(contents, axis=0, return_inverse=True)
        found.append(random.permutation(len(distinct))[place.ravel()] % 2)
    return np.concatenate(found)


def train_trees(
    runs: Sequence[TreeRun], *, every: int, n_jobs: int | None, progress: Progress
) -> list[TreeRecord]:
    """Train runs side by side.

    Parameters
    ----------
    runs
        What is trained.
    every
        Rounds between checkpoints; the last round is one.
    n_jobs
        Runs at a time, as joblib counts; a single run takes as many threads instead.
    progress
        Called with runs done and in all, or with the rounds of a single run.
    """
    jobs = effective_n_jobs(n_jobs)
    if len(runs) == 1:
        return [_train_one(runs[0], every, jobs, progress)]
    waiting = Parallel(n_jobs=min(jobs, len(runs)), prefer="threads", return_as="generator")(
        delayed(_train_one)(run, every, 1, None) for run in runs
    )
    records = []
    for record in waiting:
        records.append(record)
        progress(len(records), len(runs))
    return records


def _train_one(run: TreeRun, every: int, threads: int, progress: Progress | None) -> TreeRecord:
    spec, learned = run.tree_spec, run.learned
    rows, last = run.weighted_rows, run.spec.last_step
    trees = grow(
        run.bank.features[learned],
        rows,
        spec.objective,
        spec.hyper,
        spec.trees,
        classes=run.bank.outputs if rows.loss is CROSS_ENTROPY else None,
        categorical=run.categorical,
        halves=split_halves(run) if spec.compares else None,
        seed=run.seed,
        threads=threads,
        rounds=last,
        progress=progress,
    )
    steps = np.unique([*range(every - 1, last, every), last - 1])
    measures: dict[str, np.ndarray] = {
        name: np.array([_loss(run, trees, own, int(step) + 1) for step in steps])
        for name, own in run.evaluate.items()
    }
    fine = np.isfinite(trees.scores(run.bank.features[learned[:1]])).all()
    return TreeRecord(
        steps=steps,
        measures={"loss": measures},
        diverged_at=None if fine else last - 1,
        trees=trees,
    )


def _loss(run: TreeRun, trees: Trees, rows: np.ndarray, rounds: int) -> float:
    """Mean loss of some rows by the first rounds, in the target's unit."""
    outputs: Any = torch.as_tensor(run.outputs(trees, rows, rounds))
    targets, unit = run.bank.targets[rows], run.units.target
    targets = unit.apply(targets) if run.bank.loss is SQUARED else targets
    losses = run.bank.loss.per_example(outputs, torch.as_tensor(targets)).numpy()
    weights = None if run.bank.weights is None else run.bank.weights[rows]
    return float(np.average(losses, weights=weights)) * float(unit.scale) ** 2
