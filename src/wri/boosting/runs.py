"""Runs of trees and their records."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from joblib import effective_n_jobs

from wri.boosting.column_view import ColumnView, fill_gaps
from wri.boosting.row_weights import WeightedRows
from wri.boosting.spec import TreeSpec
from wri.boosting.trees import Trees, grow
from wri.jobs import Jobs, LocalRunner, Report
from wri.progress import Progress
from wri.rows import Scaling
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED, generator
from wri.training import Run, Units
from wri.training.runs import RunResult

TWO = 2


@dataclass(frozen=True, eq=False)
class TreeRun(Run):
    """One training of trees: a specification, rows of a bank, and a seed.

    Parameters
    ----------
    spec : TreeSpec
        What is trained. The run completes it by the size of its training rows.
    bank : Bank
        The rows.
    train : sequence of ndarray of int
        Row numbers of each training environment.
    seed : int, default=0
        Seed of the halves and of LightGBM.
    evaluate : mapping of str to ndarray of int, default={}
        Named sets of row numbers that are measured at each checkpoint.
    tolerance : float, default=1e-8
        Without effect: trees are grown, not solved.
    categorical : tuple of int, default=()
        Columns that hold categories as whole numbers from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import TreeRun, TreeSettings, TreeSpec
    >>> from wri.training import Bank
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> bank = Bank(x, (x[:, 0] > 0).astype(int), gaps=True)
    >>> spec = TreeSpec.grown("erm", TreeSettings(rounds=5, least_rows=5))
    >>> run = TreeRun(spec, bank, [np.arange(40), np.arange(40, 80)])
    >>> run.weighted_rows.n_environments, run.spec.trees.rounds
    (2, 5)
    """

    spec: TreeSpec
    _: KW_ONLY
    categorical: tuple[int, ...] = ()

    @property
    def _weights(self) -> np.ndarray | None:  # [n], of the training rows
        return None if self.bank.weights is None else self.bank.weights[self.learned]

    @cached_property
    def column_view(self) -> ColumnView:
        """What densities see of the columns, standardised with the training rows."""
        return ColumnView.of(self.bank.features[self.learned], self._weights, self.categorical)

    @cached_property
    def units(self) -> Units:
        """Units: inputs are unchanged, the target of a regression is standardised."""
        units = Units.plain(self.bank.features.shape[1])
        if self.bank.loss is not SQUARED:
            return units
        targets = self.bank.targets[self.learned].astype(float)
        return Units(units.inputs, Scaling.of(targets, self._weights))

    @property
    def weighted_rows(self) -> WeightedRows:
        """The training rows in the form that an objective takes."""
        learned, bank, weights = self.learned, self.bank, self._weights
        loss = LOGISTIC if bank.n_classes == TWO else bank.loss
        targets = bank.targets[learned]
        targets = self.units.target.apply(targets) if loss is SQUARED else targets.astype(int)
        return WeightedRows(
            features=self.column_view.apply(bank.features[learned]),
            targets=targets,
            environment=np.repeat(np.arange(len(self.train)), [len(own) for own in self.train]),
            loss=loss,
            weights=np.ones(len(learned)) if weights is None else weights,
        )

    def outputs(self, trees: Trees, rows: np.ndarray, rounds: int | None = None) -> np.ndarray:
        """Return the outputs of trees for some rows.

        Parameters
        ----------
        trees : Trees
            Grown trees.
        rows : ndarray of int of shape (n_rows,)
            Row numbers in the bank.
        rounds : int or None, default=None
            Number of rounds that count. None: all.

        Returns
        -------
        outputs : ndarray of shape (n_rows, C)
            Outputs.
        """
        return class_outputs(trees.scores(self.bank.features[rows], rounds), self.bank.n_classes)


def class_outputs(scores: np.ndarray, classes: int | None) -> np.ndarray:
    """Convert scores to outputs for a softmax: with two classes trees score the second only.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, C)
        Scores of trees.
    classes : int or None
        Number of classes; None for a regression.

    Returns
    -------
    outputs : ndarray of shape (n_rows, classes)
        Outputs; scores are unchanged unless there are two classes.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import class_outputs
    >>> class_outputs(np.array([[0.5], [-2.0]]), 2).tolist()
    [[0.0, 0.5], [0.0, -2.0]]
    """
    if classes != TWO:
        return scores
    return np.column_stack([np.zeros(len(scores)), scores])


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeRecord(RunResult):
    """Record of a run of trees: losses at checkpoints, and the trees.

    Attributes
    ----------
    steps : ndarray of int of shape (T,)
        Round of each checkpoint, counted from 0.
    measures : mapping of str to mapping of str to ndarray
        Values `[T]` by measure and split.
    diverged_at : int or None
        Round after which scores were not finite; None if they are.
    trees : Trees
        The grown trees.

    Examples
    --------
    See `train_trees`, which returns records.

    >>> from wri.boosting import TreeRecord
    >>> [each for each in TreeRecord.__dataclass_fields__]
    ['steps', 'measures', 'diverged_at', 'trees']
    """

    trees: Trees


def split_halves(run: TreeRun) -> np.ndarray:  # [n], 0 or 1
    """Split the rows of each environment into two random halves; equal rows stay together."""
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
    """Train several runs at the same time.

    Parameters
    ----------
    runs : sequence of TreeRun
        Runs to train.
    every : int
        Rounds between checkpoints; the last round is always one.
    n_jobs : int or None
        Number of runs at the same time, as in joblib. A single run uses as many threads instead.
    progress : callable
        Called with the runs done and in all; for a single run with its rounds.

    Returns
    -------
    records : list of TreeRecord
        One record per run.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import TreeRun, TreeSettings, TreeSpec
    >>> from wri.training import Bank
    >>> x = np.random.default_rng(0).normal(size=(80, 2))
    >>> bank = Bank(x, (x[:, 0] > 0).astype(int), gaps=True)
    >>> spec = TreeSpec.grown("erm", TreeSettings(rounds=5, least_rows=5))
    >>> run = TreeRun(spec, bank, [np.arange(40), np.arange(40, 80)])
    >>> from wri.boosting import train_trees
    >>> from wri.progress import silent
    >>> (record,) = train_trees([run], every=5, n_jobs=None, progress=silent)
    >>> record.steps.tolist(), record.trees.scores(x).shape
    ([4], (80, 1))
    """
    jobs = effective_n_jobs(n_jobs)
    if len(runs) == 1:
        return [_train_one(runs[0], every, jobs, progress)]

    def work(run: TreeRun, report: Report) -> TreeRecord:
        return _train_one(run, every, 1, lambda done, of: report(done))

    records: dict[int, TreeRecord] = {}
    with closing(LocalRunner(min(jobs, len(runs))).run(Jobs(work=work, jobs=runs))) as finished:
        for ended in finished:
            records[ended.number] = ended.result
            progress(len(records), len(runs))
    return [records[number] for number in range(len(runs))]


def _train_one(run: TreeRun, every: int, threads: int, progress: Progress) -> TreeRecord:
    spec, learned = run.spec, run.learned
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
    """Return the mean loss of some rows after the first rounds, in the unit of the target."""
    outputs: Any = torch.as_tensor(run.outputs(trees, rows, rounds))
    targets, unit = run.bank.targets[rows], run.units.target
    targets = unit.apply(targets) if run.bank.loss is SQUARED else targets
    losses = run.bank.loss.per_example(outputs, torch.as_tensor(targets)).numpy()
    weights = None if run.bank.weights is None else run.bank.weights[rows]
    return float(np.average(losses, weights=weights)) * float(unit.scale) ** 2
