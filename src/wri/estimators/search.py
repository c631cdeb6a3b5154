"""Training in `fit`: candidates by leave-one-environment-out, then the chosen one on all rows.

    l_ce = loss on environment e of candidate c, trained on the others

One candidate is chosen by these losses (`choice.py`). All candidates and all left-out environments
are trained in one call of `train`. A run standardises with its own training rows, so a left-out
environment is new in every respect. No row outside `fit` is used.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from wri.estimators.choice import Rule, choose_candidate
from wri.progress import Progress
from wri.stacked import generator
from wri.threads import torch_threads
from wri.training import Bank, ModelSpec, Run, train
from wri.training.runs import FEWEST_ROWS

CHECKPOINTS = 20  # evaluations for early stopping
FEWEST_SPLIT = 25  # rows of an environment from which some are held out
FEWEST_HELD = 5  # smallest number of rows to hold out
MOST_FOLDS = 5  # most runs that leave environments out, for the spread between sites
STEP_ROWS = 2**14  # rows per step of all runs together that choose λ only
FEWEST_CHOOSING = 100  # rows per environment that choose λ, if it has them
MOST_LIGHT = 1.5  # most held-out rows, as a multiple of the share, if they weigh little


class RowSplit(NamedTuple):
    """Row numbers of each environment: fitted and held out."""

    fitted: list[np.ndarray]  # training rows
    held_out: list[np.ndarray]  # other rows; empty if an environment is small

    @property
    def calibrating(self) -> list[np.ndarray]:
        """Rows that set thresholds: the held-out rows, or the fitted ones if none were held out."""
        pairs = zip(self.held_out, self.fitted, strict=True)
        return [held if len(held) else fitted for held, fitted in pairs]


def hold_out(
    environments: Sequence[np.ndarray],
    contents: np.ndarray,
    weights: np.ndarray | None,
    share: float,
    seed: int,
) -> RowSplit:
    """Hold out a random share of the rows of each environment.

    Rows with the same contents stay together, so that a repeated row is in one part only and counts
    like one row with weight 2.
    """
    random = generator(seed, "held-out rows")
    held = np.zeros(len(contents), bool)
    for rows in environments:
        distinct, place = np.unique(contents[rows], axis=0, return_inverse=True)
        lots = random.permutation(len(distinct))[place]
        n = len(distinct)
        weight = np.bincount(lots, None if weights is None else weights[rows])
        middle = (weight.cumsum() - weight / 2) / weight.sum()
        # neither a few heavy rows nor many light ones
        chosen = (middle < share) & (np.arange(n) < min(share * n * MOST_LIGHT, n - FEWEST_ROWS))
        if n >= FEWEST_SPLIT and chosen.sum() >= FEWEST_HELD:
            held[rows] = chosen[lots]
    return RowSplit(
        [rows[~held[rows]] for rows in environments], [r[held[r]] for r in environments]
    )


class LeftOutRun(NamedTuple):
    """Run that was trained without some environments."""

    environments: list[int]  # those left out
    run: Run
    record: Any  # what training left of it


class ChosenSpec(NamedTuple):
    """Specification to train on all environments."""

    spec: ModelSpec
    losses: np.ndarray | None = None  # [C, E], of each candidate on each left-out environment
    sentence: str | None = None  # how it was chosen, where environments were left out


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Shared data and settings of all runs of one `fit`."""

    bank: Bank
    rows: RowSplit
    seed: int
    device: str = "auto"
    n_jobs: int | None = None

    @property
    def n_environments(self) -> int:
        return len(self.rows.fitted)

    @property
    def can_leave_one_out(self) -> bool:
        """Whether at least two environments remain when one is left out."""
        return self.n_environments > 2

    def complete(self, spec: ModelSpec) -> ModelSpec:
        """Complete a specification for the size of all environments, the same for all runs."""
        learned, weights = np.concatenate(self.rows.fitted), self.bank.weights
        weight = len(learned) if weights is None else weights[learned].sum()
        largest = max(len(own) for own in self.rows.fitted)
        return spec.complete(self.bank.features.shape[1], float(weight), largest)

    def run(
        self,
        spec: ModelSpec,
        environments: Sequence[int],
        evaluate: Mapping[str, np.ndarray] | None = None,
    ) -> Run:
        """Make a run on some environments."""
        with warnings.catch_warnings():  # `fit` warns once, with the environment's name
            warnings.filterwarnings("ignore", "environment .* holds a single class")
            return self._make_run(spec, [self.rows.fitted[e] for e in environments], evaluate or {})

    def _make_run(
        self, spec: ModelSpec, rows: Sequence[np.ndarray], evaluate: Mapping[str, np.ndarray]
    ) -> Run:
        return Run(spec, self.bank, rows, seed=self.seed, evaluate=evaluate)

    def train(self, runs: Sequence[Any], every: int, progress: Progress) -> list[Any]:
        """Train runs with the threads that `n_jobs` allows; return one record per run."""
        jobs = effective_n_jobs(self.n_jobs)
        with torch_threads(jobs if jobs > 1 else None):
            return train(
                runs,
                checkpoint_every=every,
                measures=("loss",),
                device=self.device,
                progress=progress,
                # unless asked, a library does not change the threads of the process
                side_by_side=jobs > 1,
                threads=1,  # operations are small: more stacks pay, more threads per stack do not
            )

    def left_out_losses(
        self, specs: Sequence[ModelSpec], every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses `[C, E, T]` at left-out environments, and the steps."""
        runs, thinned = [], self._with_fewer_rows(specs)
        for left_out in range(self.n_environments):
            others = [e for e in range(self.n_environments) if e != left_out]
            rows = np.concatenate([self.rows.fitted[left_out], self.rows.held_out[left_out]])
            runs += [thinned.run(spec, others, {"left out": rows}) for spec in specs]
        records = self.train(runs, every, progress)
        losses = np.stack([record.measures["loss"]["left out"] for record in records])  # [E·C, T]
        losses = losses.reshape(self.n_environments, len(specs), -1)
        return losses.swapaxes(0, 1), records[0].steps

    def leave_out(self, spec: ModelSpec, progress: Progress) -> list[LeftOutRun]:
        """Train the specification without each environment in turn.

        With more than `MOST_FOLDS` environments several are left out at a time, so that the cost
        grows linearly with their number.
        """
        n = self.n_environments
        folds = [list(range(first, n, MOST_FOLDS)) for first in range(min(n, MOST_FOLDS))]
        runs = [self.run(spec, [e for e in range(n) if e not in fold]) for fold in folds]
        records = self.train(runs, spec.last_step, progress)
        return [LeftOutRun(*each) for each in zip(folds, runs, records, strict=True)]

    def _with_fewer_rows(self, specs: Sequence[ModelSpec]) -> "Problem":
        """Return the problem with fewer training rows, if candidates differ in λ only.

        Fewer rows are enough to choose λ and take a fraction of the time.
        """
        alike = {repr(_without_penalty_weight(spec).as_dict()) for spec in specs}
        most = self._most_choosing(len(specs))
        if len(alike) > 1 or max(map(len, self.rows.fitted)) <= most:
            return self
        random = generator(self.seed, "rows that choose")
        fitted = [
            rows if len(rows) <= most else np.sort(random.permutation(rows)[:most])
            for rows in self.rows.fitted
        ]
        return replace(self, rows=self.rows._replace(fitted=fitted))

    def _most_choosing(self, candidates: int) -> int:
        """Return the number of rows per environment that choose λ."""
        environments = self.n_environments
        most = STEP_ROWS // (candidates * environments * (environments - 1))
        return max(most, FEWEST_CHOOSING)

    def held_out_losses(
        self, spec: ModelSpec, every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the losses `[1, E, T]` of one candidate on held-out rows, and the steps."""
        every_one = range(self.n_environments)
        splits = {str(e): self.rows.calibrating[e] for e in every_one}
        (record,) = self.train([self.run(spec, every_one, splits)], every, progress)
        return np.stack([record.measures["loss"][s] for s in splits])[None], record.steps


def choose(
    problem: Problem,
    specs: Sequence[ModelSpec],
    rule: Rule,
    early_stopping: bool,
    progress: Progress,
) -> ChosenSpec:
    """Choose a candidate by the rule and, with early stopping, the step of its smallest mean loss.

    With fewer than three environments none can be left out: the first candidate is taken, and its
    step is chosen by the loss on held-out rows.
    """
    leave_out = problem.can_leave_one_out
    if not (early_stopping or (leave_out and len(specs) > 1)):
        return ChosenSpec(specs[0])
    last = max(spec.last_step for spec in specs)
    every = max(1, last // CHECKPOINTS) if early_stopping else last
    if leave_out:
        losses, steps = problem.left_out_losses(specs, every, progress)
    else:
        specs = specs[:1]
        losses, steps = problem.held_out_losses(specs[0], every, progress)
    mean = np.nan_to_num(losses.mean(1), nan=np.inf, posinf=np.inf)  # [C, T]
    for c, spec in enumerate(specs):
        # steps before the penalty has its full weight do not count
        mean[c, (steps < spec.full_penalty_at) & (steps < steps[-1])] = np.inf
    at = mean.argmin(1) if early_stopping else np.full(len(specs), len(steps) - 1)  # [C]
    final = losses[np.arange(len(specs)), :, at]  # [C, E]
    best, sentence = choose_candidate(final, [penalty_weight_of(spec) for spec in specs], rule)
    stopped = int(steps[at[best]]) + 1 if early_stopping else last
    spec = specs[best] if stopped == last else replace(specs[best], stop_after=stopped)
    return ChosenSpec(spec, final, sentence) if leave_out else ChosenSpec(spec)


def _without_penalty_weight(spec: ModelSpec) -> ModelSpec:
    others = {name: value for name, value in spec.hyper.items() if name != "penalty_weight"}
    return replace(spec, hyper=others)


def penalty_weight_of(spec: ModelSpec) -> float | None:
    """Return λ of a complete specification; None if its objective has none."""
    return spec.hyper.get("penalty_weight")
