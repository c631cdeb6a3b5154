"""Runs of one `fit`: on all environments, or without some of them.

A run standardises with its own training rows, so a left-out environment is new in every respect. No
row outside `fit` is used.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from joblib import effective_n_jobs

from wri.estimators.inputs import RowSplit
from wri.progress import Progress
from wri.stacked import generator
from wri.stacked.linear import GRADIENT
from wri.threads import torch_threads
from wri.training import Bank, ModelSpec, Run, train

MOST_FOLDS = 5  # most runs that leave environments out, for the spread between sites
STEP_ROWS = 2**14  # rows per step of all runs together that choose λ only
FEWEST_CHOOSING = 100  # rows per environment that choose λ, if it has them
TO_MEASURE = 1e-4
"""Gradient where solved runs end that are only measured: their losses are exact to its square."""


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

    @cached_property
    def weights(self) -> np.ndarray:  # [N]
        """Weight of each row."""
        given = self.bank.weights
        return np.ones(len(self.bank.targets)) if given is None else given

    @property
    def keeps_path(self) -> bool:
        """Whether other λ of a solved predictor cost little more."""
        return True

    @property
    def trusts_preset(self) -> bool:
        """Whether the preset's λ costs little where nothing changes."""
        return True

    @property
    def can_leave_one_out(self) -> bool:
        """Whether at least two environments remain when one is left out."""
        return self.n_environments > 2

    def complete(self, spec: ModelSpec) -> ModelSpec:
        """Complete a specification for the size of all environments, the same for all runs."""
        rows, weights = self.learned(spec), self.bank.weights
        learned = np.concatenate(rows)
        weight = len(learned) if weights is None else weights[learned].sum()
        largest = max(map(len, rows))
        return spec.complete(self.bank.features.shape[1], float(weight), largest)

    def learned(self, spec: ModelSpec) -> list[np.ndarray]:
        """Rows that the final predictor learns from.

        A solved predictor learns from all rows; it is solved once more without the held-out rows,
        which set the thresholds of the evidence. A trained one is trained once, without them.
        """
        return self.rows.every if spec.is_solved else self.rows.fitted

    def run(
        self,
        spec: ModelSpec,
        environments: Sequence[int],
        evaluate: Mapping[str, np.ndarray] | None = None,
        held_out: bool = False,
    ) -> Run:
        """Make a run on some environments; without the held-out rows in any case if asked for."""
        rows = self.rows.fitted if held_out else self.learned(spec)
        measured = held_out or len(environments) < self.n_environments
        with warnings.catch_warnings():  # `fit` warns once, with the environment's name
            warnings.filterwarnings("ignore", ".* holds a single class")
            return self._make_run(
                spec,
                [rows[e] for e in environments],
                evaluate=evaluate or {},
                tolerance=TO_MEASURE if measured else GRADIENT,
            )

    def _make_run(self, spec: ModelSpec, rows: Sequence[np.ndarray], **settings: Any) -> Run:
        return Run(spec, self.bank, rows, seed=self.seed, **settings)

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
        runs, thinned = [], self.for_choosing(specs)
        for left_out in range(self.n_environments):
            others = [e for e in range(self.n_environments) if e != left_out]
            rows = np.concatenate([self.rows.fitted[left_out], self.rows.held_out[left_out]])
            runs += [thinned.run(spec, others, {"left out": rows}) for spec in specs]
        records = self.train(runs, every, progress)
        losses = np.stack([record.measures["loss"]["left out"] for record in records])  # [E·C, T]
        losses = losses.reshape(self.n_environments, len(specs), -1)
        return losses.swapaxes(0, 1), records[0].steps

    def leave_out(
        self, spec: ModelSpec, progress: Progress
    ) -> list[tuple[list[int], Run, Any]]:  # environments left out, run, record
        """Train the specification without each environment in turn.

        With more than `MOST_FOLDS` environments several are left out at a time, so that the cost
        grows linearly with their number.
        """
        n = self.n_environments
        folds = [list(range(first, n, MOST_FOLDS)) for first in range(min(n, MOST_FOLDS))]
        others = [[e for e in range(n) if e not in fold] for fold in folds]
        runs = [self.run(spec, kept, held_out=True) for kept in others]
        records = self.train(runs, spec.last_step, progress)
        return list(zip(folds, runs, records, strict=True))

    def for_choosing(self, specs: Sequence[ModelSpec]) -> "Problem":
        """Return the problem with fewer training rows, if trained candidates differ in λ only.

        Fewer rows are enough to choose λ and take a fraction of the time.
        """
        if specs[0].is_solved:
            return self
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


def _without_penalty_weight(spec: ModelSpec) -> ModelSpec:
    others = {name: value for name, value in spec.hyper.items() if name != "penalty_weight"}
    return replace(spec, hyper=others)
