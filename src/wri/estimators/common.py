"""What all estimators of environments share, whatever predicts: a network, or boosted trees.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of what the predictor gives, thresholds on the held-out rows
    predict:  X ─► as the predictor takes it ─► outputs, in float64

A predictor fills in how its parameters are checked, how rows reach it, and how runs train.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from wri.errors import InputError, check_option
from wri.estimators.bar import progress_bar
from wri.estimators.choice import RULES, Rule, describe_without_choice
from wri.estimators.environments import read_environments, without_column
from wri.estimators.folders import SavedInFolders
from wri.estimators.parameters import check_parameters, read_seed
from wri.estimators.search import Problem, RowSplit, choose, hold_out, penalty_weight_of
from wri.estimators.specs import AUTO, PenaltyWeight
from wri.estimators.verdicts import EvidenceMixin
from wri.estimators.warn import (
    check_environments,
    overlap_by_means,
    warn_of_little_overlap,
    warn_of_one_environment,
    warn_of_small_weights,
)
from wri.rows import Environments, Scaling
from wri.stacked import SQUARED, Loss, Seen
from wri.training import ModelSpec
from wri.training.runs import FEWEST_ROWS


class EnvironmentEstimator(SavedInFolders, EvidenceMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that is fitted to rows of several environments."""

    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": True}
    _objective: ClassVar[str]
    _loss: ClassVar[Loss]
    _sees: ClassVar[tuple[Seen, ...]] = get_args(Seen)
    """What the evidence can see of a row."""

    environment: str | None
    penalty_weight: PenaltyWeight
    candidates: Sequence[Mapping[str, Any]] | None
    choose: Rule
    early_stopping: bool
    validation_fraction: float
    random_state: Any
    n_jobs: int | None
    target_scaling_: Scaling

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Iterable[Any] | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train on all environments, then fit the evidence.

        Parameters
        ----------
        X
            Table of numbers, NumPy or pandas.
        y
            Targets.
        groups
            The environment of every row, any hashable labels. Without them and without
            `environment` there is one environment, and plain ERM is trained.
        sample_weight
            How often each row counts, once when not given: a row of weight two is a row that comes
            twice, one of weight zero is not there. Environments count alike whatever their rows
            weigh. Large environments, Mixup and WRI's classifier of environments draw rows by their
            weights, so there this holds on average. Leaves of trees count rows, not weights.
        """
        check_parameters(self)
        check_option("evidence_on", self.evidence_on, self._sees)
        check_option("choose", self.choose, RULES)
        if not 0 <= self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must be in [0, 1), not {self.validation_fraction:g}"
            )
        X, y, environments, weights = self._read(X, y, groups, sample_weight)
        targets = self._encode(y)
        check_environments(environments, targets, self._loss is not SQUARED, stacklevel=2)
        if len(environments.labels) == 1 and self._objective != "erm":
            warn_of_one_environment(type(self).__name__, stacklevel=2)
        self.environments_, self.n_environments_ = environments.labels, len(environments.labels)
        seed, contents = read_seed(self.random_state), np.column_stack([self._filled(X), targets])
        rows = hold_out(environments.rows, contents, weights, self.validation_fraction, seed)
        problem = self._problem(X, targets, weights, rows, seed)
        specs = self._specs(problem.can_leave_one_out)
        self._train(problem, [problem.complete(spec) for spec in specs])
        self._fit_evidence(X, targets, weights, rows)
        self._leave_sites_out(problem)
        return self

    def _read(
        self, X: Any, y: Any, groups: Iterable[Any] | None, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, Environments, np.ndarray | None]:
        """Checked arrays and environments of the rows that count."""
        table, X = X, self._read_columns(without_column(X, self.environment))
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=FEWEST_ROWS,
            y_numeric=self._loss is SQUARED,
        )
        self._check_cells(X)
        environments = read_environments(table, len(X), groups, self.environment)
        if sample_weight is None:
            return X, y, environments, None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        warn_of_small_weights(weights, stacklevel=3)
        present = weights > 0
        return X[present], y[present], environments.take(present), weights[present]

    def _read_columns(self, X: Any) -> Any:
        """A table before it is checked; a predictor with categories learns them here."""
        return X

    @abstractmethod
    def _check_cells(self, X: np.ndarray) -> None:
        """Refuse cells that the predictor cannot take."""

    def _filled(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
        """Rows without gaps, by which equal ones are found and ranges are told."""
        return X

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes, if there are any."""
        return None

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them."""

    @abstractmethod
    def _problem(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        rows: RowSplit,
        seed: int,
    ) -> Problem:
        """Everything that the runs of this fit have in common."""

    @abstractmethod
    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """What the constructor asks for: one specification for each candidate."""

    @property
    def hyper_(self) -> Mapping[str, float]:
        """Hyper-parameters of the predictor."""
        return self.spec_.hyper

    @property
    def n_steps_(self) -> int:
        """Steps that were taken."""
        return self.spec_.last_step

    def _train(self, problem: Problem, specs: Sequence[ModelSpec]) -> None:
        several = len(specs) > 1 or self.early_stopping
        with progress_bar("Choosing", self.verbose and several) as progress:
            chosen = choose(problem, specs, self.choose, self.early_stopping, progress)
        self.candidate_losses_ = chosen.losses
        weights = [penalty_weight_of(spec) for spec in specs]
        tried = chosen.losses is not None and None not in weights
        self.penalty_weights_ = np.array(weights, float) if tried else None
        self.selection_ = chosen.sentence or self._describe_selection()
        run = problem.run(chosen.spec, range(self.n_environments_))
        with progress_bar("Training", self.verbose) as progress:
            (record,) = problem.train([run], chosen.spec.last_step, progress)
        if record.diverged_at is not None:
            raise InputError(f"training diverged at step {record.diverged_at}; lower learning_rate")
        self._take(run, record)
        self._check_overlap(problem)

    def _describe_selection(self) -> str:
        """Where no environment was left out."""
        asked = None
        if self.candidates is not None and len(self.candidates) > 1:
            asked = "candidates need"
        elif self.penalty_weight == AUTO:
            asked = "penalty_weight='auto' needs"
        reason = describe_without_choice(asked, self.n_environments_, self.early_stopping)
        if asked:
            warnings.warn(reason, stacklevel=4)
        return reason

    def _check_overlap(self, problem: Problem) -> None:
        """WRI compares pairs of environments where they overlap."""
        if self.spec_.objective.name == "wri":
            features = problem.bank.features
            seen = [self._view(self._prepare(features[rows])) for rows in problem.rows.fitted]
            warn_of_little_overlap(overlap_by_means(seen), self.environments_, stacklevel=4)

    def _prepared(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "evidence_")
        X = self._known_columns(without_column(X, self.environment))
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        self._check_cells(X)
        return self._prepare(X)

    def _known_columns(self, X: Any) -> Any:
        """A table with the columns that `fit` has seen, before it is checked."""
        return X

    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        targets = targets if self._loss.classes else self.target_scaling_.apply(targets)
        losses = self._loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets))
        return losses.numpy() * float(self.target_scaling_.scale) ** 2
