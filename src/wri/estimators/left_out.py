"""Choice of a candidate by its losses at environments left out, in every future.

Every candidate is trained without each environment in turn. The columns whose relation to the
target changes are flagged without the environment that judges, and their cells at its rows are
taken from other rows of it (`wri.futures`). Rows are drawn in the order of their
contents, so that the order of the table does not matter.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wri.diagnosis.changing_features import flagged_columns
from wri.estimators.choice import CandidateLosses, describe, pick
from wri.estimators.row_split import hash_rows
from wri.estimators.search import Problem, penalty_weight_of
from wri.futures import FUTURES, LIKE, Future, future_rows
from wri.progress import Progress
from wri.training import ModelSpec

if TYPE_CHECKING:
    from wri.estimators.common import EnvironmentEstimator

CHECKPOINTS = 20  # evaluations for early stopping


class ChosenSpec(NamedTuple):
    """Specification to train on all environments."""

    spec: ModelSpec
    found: CandidateLosses | None = None  # where environments were left out
    sentence: str | None = None  # how it was chosen


def choose(
    estimator: "EnvironmentEstimator",
    problem: Problem,
    specs: Sequence[ModelSpec],
    progress: Progress,
) -> ChosenSpec:
    """Choose a candidate by the estimator's rule.

    With fewer than three environments none can be left out: the first candidate is taken. With
    early stopping the mean loss at such environments chooses candidate and step.
    """
    if estimator.early_stopping:
        return _stop_early(problem, specs, progress)
    if len(specs) < 2 or not problem.can_leave_one_out:
        return ChosenSpec(specs[0])
    futures = tuple(dict.fromkeys((LIKE, *(estimator.futures or FUTURES))))
    losses, flagged = left_out_losses(estimator, problem, specs, futures, progress)
    weights = [penalty_weight_of(spec) for spec in specs]
    named = estimator._column_names()
    found = CandidateLosses(
        losses=losses,
        futures=futures,
        weights=weights,
        default=estimator._default_penalty_weight() if problem.trusts_preset else None,
        flagged=tuple(named[d] for d in sorted({int(d) for own in flagged for d in own})),
        stressed=np.array([len(own) > 0 for own in flagged]),
    )
    best = pick(found, estimator.choose)
    return ChosenSpec(specs[best], found, describe(found, estimator.choose, best))


def _stop_early(problem: Problem, specs: Sequence[ModelSpec], progress: Progress) -> ChosenSpec:
    """Choose candidate and step by the mean loss at environments, or rows, left out."""
    last = max(spec.last_step for spec in specs)
    every = max(1, last // CHECKPOINTS)
    leave_out = problem.can_leave_one_out
    if leave_out:
        losses, steps = problem.left_out_losses(specs, every, progress)
    else:
        specs = specs[:1]
        losses, steps = problem.held_out_losses(specs[0], every, progress)
    mean = np.nan_to_num(losses.mean(1), nan=np.inf, posinf=np.inf)  # [C, T]
    for c, spec in enumerate(specs):
        # steps before the penalty has its full weight do not count
        mean[c, (steps < spec.full_penalty_at) & (steps < steps[-1])] = np.inf
    at = mean.argmin(1)  # [C]
    final = losses[np.arange(len(specs)), :, at]  # [C, E]
    weights = [penalty_weight_of(spec) for spec in specs]
    found = CandidateLosses(losses=final[:, None], futures=(LIKE,), weights=weights)
    best = pick(found, "average")
    stopped = int(steps[at[best]]) + 1
    spec = specs[best] if stopped == last else replace(specs[best], stop_after=stopped)
    if not leave_out:
        return ChosenSpec(spec)
    return ChosenSpec(spec, found, describe(found, "average", best))


class FutureLosses(NamedTuple):
    """Losses at environments left out, and what was flagged without each."""

    losses: np.ndarray  # [C, F, E]
    flagged: list[np.ndarray]  # E of column numbers


def left_out_losses(
    estimator: "EnvironmentEstimator",
    problem: Problem,
    specs: Sequence[ModelSpec],
    futures: Sequence[Future],
    progress: Progress,
) -> FutureLosses:
    """Train every candidate without each environment in turn; return its losses there."""
    count = problem.n_environments
    folds = [[e for e in range(count) if e != left_out] for left_out in range(count)]
    thinned = problem.for_choosing(specs)
    runs = [thinned.run(spec, others) for others in folds for spec in specs]
    records = problem.train(runs, max(spec.last_step for spec in specs), progress)
    losses = np.full((len(specs), len(futures), count), np.nan)
    flagged = []
    for left_out, others in enumerate(folds):
        columns = _flag(estimator, problem, others) if len(futures) > 1 else np.empty(0, int)
        flagged.append(columns)
        site = _Site.of(estimator, problem, left_out, columns)
        for c in range(len(specs)):
            number = left_out * len(specs) + c
            run, record = runs[number], records[number]
            if record.diverged_at is None:
                without = copy(estimator)
                without._take(run, record)
                losses[c, :, left_out] = [site.loss(without, future) for future in futures]
    return FutureLosses(losses, flagged)


def _flag(
    estimator: "EnvironmentEstimator", problem: Problem, environments: Sequence[int]
) -> np.ndarray:
    """Return the columns whose relation to the target changes between some environments."""
    bank, rows = problem.bank, problem.rows.every
    chosen = np.concatenate([rows[e] for e in environments])
    site = np.repeat(environments, [len(rows[e]) for e in environments])
    x = estimator._filled(bank.features[chosen])
    return flagged_columns(x, bank.targets[chosen], site, bank.n_classes is not None)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Site:
    """Rows of one environment, sorted by their contents."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    shares: np.ndarray  # [n], sum to one
    columns: np.ndarray  # those that change
    classes: bool

    @classmethod
    def of(
        cls, estimator: "EnvironmentEstimator", problem: Problem, site: int, columns: np.ndarray
    ) -> "_Site":
        bank, rows = problem.bank, problem.rows.every[site]
        x, y = bank.features[rows], bank.targets[rows]
        order = hash_rows(estimator._filled(x), y, 0).argsort(kind="stable")
        weights = np.ones(len(y)) if bank.weights is None else bank.weights[rows]
        return cls(
            x=x[order],
            y=y[order],
            shares=weights[order] / weights.sum(),
            columns=columns,
            classes=bank.n_classes is not None,
        )

    def loss(self, estimator: Any, future: Future) -> float:
        """Return the mean loss in a future; as the rows are, if no column changes."""
        rows = future_rows(self.x, self.y, self.columns, future, self.classes)
        return float(np.mean([self._mean(estimator, moved) for moved in rows]))

    def _mean(self, estimator: Any, x: np.ndarray) -> float:
        losses = estimator._losses(estimator._outputs(estimator._prepare(x)), self.y)
        return float(self.shares @ losses)
