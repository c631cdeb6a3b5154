"""One fit: its runs, and the evidence behind its predictions.

A run is on all environments, or without some of them. It standardises with its own training rows,
so a left-out environment is new in every respect. No row outside `fit` is used.

Densities and thresholds are fitted after the predictor, for every objective, on the predictor's
representation of the rows; see `wri.ood.evidence`. Higher scores are more common.
"""

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from joblib import effective_n_jobs

from wri.estimators.inputs import RowSplit
from wri.ood.evidence import Evidence
from wri.ood.held_out import ExpectedLoss, HeldOutRows, LeftOutSites
from wri.progress import Progress, progress_bar, silent
from wri.rows import in_proportion
from wri.stacked import generator
from wri.stacked.linear import GRADIENT
from wri.threads import torch_threads
from wri.training import Bank, ModelSpec, Run, train

if TYPE_CHECKING:
    from wri.estimators.base import EnvironmentEstimator
    from wri.estimators.network import Estimator

MOST_OPTIMISM = 1e-3  # nats by which the loss on seen rows may be too small
MOST_FOLDS = 5  # most runs that leave environments out, for the spread between sites
STEP_ROWS = 2**14  # rows per step of all runs together that choose λ only
FEWEST_CHOOSING = 100  # rows per environment that choose λ, if it has them
TO_MEASURE = 1e-4
"""Gradient where solved runs end that are only measured: their losses are exact to its square."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Shared data and settings of all runs of one `fit`."""

    keeps_path: ClassVar[bool] = True  # other λ of a solved predictor cost little more
    trusts_preset: ClassVar[bool] = True  # its λ costs little where nothing changes

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

    def losses_in_training(
        self, specs: Sequence[ModelSpec], every: int, progress: Progress
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return losses `[C, E, T]` at environments left out, or on held-out rows, and steps."""
        everyone = range(self.n_environments)
        if not self.can_leave_one_out:
            splits = {str(e): self.rows.calibrating[e] for e in everyone}
            runs = [self.run(spec, everyone, splits) for spec in specs]
            records = self.train(runs, every, progress)
            found = [[record.measures["loss"][s] for s in splits] for record in records]
            return np.array(found), records[0].steps
        runs, thinned = [], self.for_choosing(specs)
        for left_out in everyone:
            others = [e for e in everyone if e != left_out]
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
        others = [{n: v for n, v in spec.hyper.items() if n != "penalty_weight"} for spec in specs]
        pairs = zip(specs, others, strict=True)
        alike = {repr(replace(spec, hyper=hyper).as_dict()) for spec, hyper in pairs}
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


def fit_evidence(
    model: "EnvironmentEstimator", without: "EnvironmentEstimator", problem: Problem
) -> None:
    """Fit densities and thresholds; predict the held-out rows `without` them."""
    model.evidence_on_ = without.evidence_on_ = model.evidence_on
    bank, rows, weights = problem.bank, problem.rows, problem.weights
    outputs, z = _outputs_seen(model, bank.features)
    other_outputs, other_z = outputs, z
    if without is not model:
        other_outputs, other_z = _outputs_seen(without, bank.features)
    sure = model._confidence(other_outputs)
    calibrating = [weights[own] for own in rows.calibrating]
    model.evidence_ = Evidence.fit(
        [z[own[in_proportion(weights[own])]] for own in rows.fitted],
        [other_z[own] for own in rows.calibrating],
        model.rare,
        model.outside,
        calibrating,
        None if sure is None else [sure[own] for own in rows.calibrating],
    )
    kept = np.concatenate(rows.held_out)
    model.held_out_ = HeldOutRows.of(
        without._predictions(other_outputs[kept]),
        without._losses(other_outputs[kept], bank.targets[kept]),
        [weights[own] for own in rows.held_out],
    )


def _outputs_seen(
    model: "EnvironmentEstimator", features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:  # [n, C], [n, F]
    """Return the outputs of rows, and what the evidence sees of them."""
    prepared = model._prepare(features)
    outputs = model._outputs(prepared)
    return outputs, model._represent(prepared, outputs)


def without_held_out(
    models: Sequence["EnvironmentEstimator"], problem: Problem
) -> list["EnvironmentEstimator"]:
    """Return estimators as they are without the held-out rows: solved ones learn from them too."""
    found = list(models)
    rows, columns = problem.bank.features.shape
    # p parameters lower the loss on seen rows by about p/n nats (Akaike, 1973)
    if not any(map(len, problem.rows.held_out)) or columns <= MOST_OPTIMISM * rows:
        return found
    solved = [k for k, model in enumerate(models) if model.spec_.is_solved]
    every = range(problem.n_environments)
    runs = [problem.run(models[k].spec_, every, held_out=True) for k in solved]
    records = problem.train(runs, 1, silent) if runs else []
    for k, run, record in zip(solved, runs, records, strict=True):
        found[k] = copy(models[k])
        found[k]._take(run, record)
    return found


def leave_sites_out(model: "EnvironmentEstimator", problem: Problem) -> LeftOutSites | None:
    """Measure the loss at each environment when the specification is trained without it."""
    possible = problem.can_leave_one_out and model.n_held_out_ > 0
    # an exact density is given for all environments at once
    density = model.spec_.objective.density
    exact = density is not None and density.learning == "fixed"
    if not (model.site_spread and possible) or exact:
        return None
    rows, environments = problem.rows, range(problem.n_environments)
    losses, expectations = np.empty((2, len(environments)))
    with progress_bar("Leaving sites out", model.verbose) as progress:
        runs = problem.leave_out(model.spec_, progress)
    for fold, run, record in runs:
        if record.diverged_at is not None:
            return None
        without = copy(model)  # the estimator trained without these sites
        without._take(run, record)
        others = [rows.held_out[e] for e in environments if e not in fold]
        known = _predicted(without, problem, others)
        if not len(known.losses):
            return None
        expected = ExpectedLoss.of(known)
        for site in fold:
            every = np.concatenate([rows.fitted[site], rows.held_out[site]])
            new = _predicted(without, problem, [every])
            near = expected.mean(expected.near(new.predictions), expected.losses)
            losses[site], expectations[site] = new.shares @ new.losses, new.shares @ near
    return LeftOutSites(losses, expectations)


def _predicted(
    model: "EnvironmentEstimator", problem: Problem, rows: Sequence[np.ndarray]
) -> HeldOutRows:
    """Return predictions and losses of some rows of each environment."""
    every = np.concatenate(rows)
    outputs = model._outputs(model._prepare(problem.bank.features[every]))
    losses = model._losses(outputs, problem.bank.targets[every])
    weights = [problem.weights[own] for own in rows]
    return HeldOutRows.of(model._predictions(outputs), losses, weights)


def fit_together(
    models: Sequence["Estimator"], X: Any, y: Any, groups: Any, judges: Sequence["Estimator"]
) -> None:
    """Fit estimators that differ in objective, λ and hidden layers; `judges` also fit evidence.

    They read, divide and standardise the same rows, weigh them alike, and λ of one objective lie on
    one path. Each predicts and judges rows as if it were fitted alone; nothing is kept that only
    answers about a whole site need, and nobody is warned.
    """
    first = models[0]
    problem = first._read_problem(X, y, groups)
    learned = {name: value for name, value in vars(first).items() if name not in first.get_params()}
    specs = []
    for model in models:
        for name, value in learned.items():
            setattr(model, name, value)
        model._check_parameters()
        specs.append(model._choose(problem)[0])
    runs = [problem.run(spec, range(problem.n_environments)) for spec in specs]
    records = problem.train(runs, max(spec.last_step for spec in specs), silent)
    for model, run, record in zip(models, runs, records, strict=True):
        model._learn(problem, run, record)
        model.penalty_path_, model.left_out_ = None, None
    for model, without in zip(judges, without_held_out(judges, problem), strict=True):
        fit_evidence(model, without, problem)
