"""The estimator that all classifiers and regressors derive from, for any predictor.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of the representation, thresholds on the held-out rows
    predict:  X ─► form that the predictor takes ─► outputs, in float64

Subclasses for networks (`base.py`) and for boosted trees (`boosted.py`) define the form of the
rows, their checks and the training runs.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from wri.errors import InputError, check_option
from wri.estimators.choice import CandidateLosses, Rule, check_rule, describe_without_choice
from wri.estimators.environments import read_environments, without_column
from wri.estimators.folders import SavedInFolders
from wri.estimators.left_out import choose
from wri.estimators.parameters import check_parameters, read_seed
from wri.estimators.row_split import RowSplit, hold_out
from wri.estimators.search import Problem
from wri.estimators.specs import PenaltyWeight, chooses_penalty
from wri.estimators.verdicts import EvidenceMixin
from wri.estimators.warn import (
    check_environments,
    overlap_by_means,
    warn_of_little_overlap,
    warn_of_one_environment,
    warn_of_small_weights,
)
from wri.futures import FUTURES, Future
from wri.objectives import OBJECTIVES, Objective
from wri.progress import progress_bar, silent
from wri.rows import Environments, Scaling, name_large_numbers, without_gradient
from wri.stacked import SQUARED, Loss, View
from wri.training import ModelSpec
from wri.training.runs import FEWEST_ROWS


class EnvironmentEstimator(SavedInFolders, EvidenceMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers and regressors of all objectives and predictors."""

    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": True}
    _objective: ClassVar[str]
    _kind: ClassVar[type[Objective]]
    _loss: ClassVar[Loss]
    _sees: ClassVar[tuple[View, ...]] = get_args(View)
    """What the evidence can see of a row, for `evidence_on`."""

    environment: str | None
    preset: str
    hyper: Mapping[str, float] | None
    penalty_weight: PenaltyWeight
    candidates: Sequence[Mapping[str, Any]] | None
    choose: Rule
    futures: Sequence[Future] | None
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
        """Train the predictor on all environments and fit the evidence.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Numbers; only trees accept missing values and columns of categories. A DataFrame may
            hold the environment column.
        y : array-like of shape (n_rows,)
            Targets.
        groups : iterable of shape (n_rows,) or None, default=None
            Environment of each row, any hashable labels. Without `groups` and without
            `environment` there is one environment, and plain ERM is trained.
        sample_weight : array-like of shape (n_rows,) or None, default=None
            How often each row counts: weight 2 counts a row twice, weight 0 drops it. All
            environments count the same, whatever the weights of their rows. Exact for ERM, IRM,
            VREx, GroupDRO and MLDG with up to 2048 rows per environment, and there for WRI with
            whole weights of at most 10 on average; approximate for other weights with WRI, and for
            CORAL. Mixup and larger environments draw rows by their weights. Trees are as in
            LightGBM: the smallest number of rows per leaf and the bins of columns count rows.

        Returns
        -------
        self : Estimator
            The fitted estimator.

        Raises
        ------
        InputError
            If a parameter, a row or an environment cannot be used. The message names it.
        """
        return self._fit(X, y, groups, sample_weight, self._problem)

    def _fit(
        self,
        X: Any,
        y: Any,
        groups: Iterable[Any] | None,
        sample_weight: Any,
        make_problem: Callable[..., Problem],
    ) -> Self:
        """Fit with a problem made by a function with the arguments of `_problem`."""
        check_parameters(self)
        check_option("evidence_on", self.evidence_on, self._sees)
        check_rule(self.choose)
        for future in self.futures or ():
            check_option("futures", future, FUTURES)
        if not 0 <= self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must be in [0, 1), not {self.validation_fraction:g}"
            )
        X, y, environments, weights = self._read(X, y, groups, sample_weight)
        targets = self._encode(y)
        check_environments(environments, targets, self._loss is not SQUARED, stacklevel=2)
        compares = OBJECTIVES[self._objective].least_environments > 1
        if len(environments.labels) == 1 and compares:
            warn_of_one_environment(type(self).__name__, stacklevel=2)
        self.environments_, self.n_environments_ = environments.labels, len(environments.labels)
        self.fit_summary_: Any = None  # what `wri fit` measured; it fills it in
        seed, share = read_seed(self.random_state), self.validation_fraction
        rows = hold_out(environments.rows, self._filled(X), targets, weights, share, seed)
        problem = make_problem(X, targets, weights, rows, seed)
        specs = self._specs(problem.can_leave_one_out)
        self._train(problem, [problem.complete(spec) for spec in specs])
        self._fit_evidence(X, targets, weights, rows, self._without_held_out(problem))
        self._leave_sites_out(problem)
        return self

    def _read(
        self, X: Any, y: Any, groups: Iterable[Any] | None, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, Environments, np.ndarray | None]:
        """Return checked arrays and environments of the rows with positive weight."""
        X, y = without_gradient(X), without_gradient(y)
        table, X = X, self._read_columns(without_column(X, self.environment))
        with name_large_numbers(X=X, y=y):
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
        given = without_gradient(sample_weight)
        with name_large_numbers(sample_weight=given):
            weights = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
        warn_of_small_weights(weights, stacklevel=3)
        present = weights > 0
        return X[present], y[present], environments.take(present), weights[present]

    def _read_columns(self, X: Any) -> Any:
        """Return the table for the checks of `fit`; trees learn its categories here."""
        return X

    @abstractmethod
    def _check_cells(self, X: np.ndarray) -> None:
        """Refuse values that the predictor cannot take."""

    def _filled(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
        """Return rows without missing values, to find equal rows and ranges of columns."""
        return X

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes; None for a regression."""
        return None

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Encode targets for the loss."""

    @abstractmethod
    def _problem(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        rows: RowSplit,
        seed: int,
    ) -> Problem:
        """Make the problem that all runs of this fit share."""

    @abstractmethod
    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """Make one specification per candidate."""

    @property
    def hyper_(self) -> Mapping[str, float]:
        """Hyper-parameters of the predictor."""
        return self.spec_.hyper

    @property
    def n_steps_(self) -> int:
        """Number of training steps taken; 0 for a solved predictor."""
        return 0 if self.spec_.is_solved else self.spec_.last_step

    def _train(self, problem: Problem, specs: Sequence[ModelSpec]) -> None:
        """Choose a candidate, train it on all environments and keep it."""
        several = len(specs) > 1 or self.early_stopping
        with progress_bar("Choosing", self.verbose and several) as progress:
            chosen = choose(self, problem, specs, progress)
        self._keep_choice(chosen.found)
        self.selection_ = chosen.sentence or self._describe_selection()
        # along the path of a solved predictor, the others cost little more
        path = problem.keeps_path and (self.site_spread or several)
        along = [chosen.spec, *(self._path_specs(chosen.spec) if path else [])]
        runs = [problem.run(spec, range(self.n_environments_)) for spec in along]
        with progress_bar("Training", self.verbose) as progress:
            records = problem.train(runs, chosen.spec.last_step, progress)
        if records[0].diverged_at is not None:
            raise InputError(
                f"training diverged at step {records[0].diverged_at}; lower learning_rate"
            )
        self._keep_path(runs, records, chosen.found)
        self._take(runs[0], records[0])
        self._check_overlap(problem)

    def _keep_choice(self, found: CandidateLosses | None) -> None:
        """Keep the losses of the candidates at environments left out."""
        self.candidate_losses_ = None if found is None else found.losses[:, 0]
        tried = found is not None and None not in found.weights
        self.penalty_weights_ = np.array(found.weights, float) if found and tried else None

    def _path_specs(self, spec: ModelSpec) -> list[ModelSpec]:
        """Return specifications with other λ whose coefficients are kept; none by default."""
        return []

    def _keep_path(
        self, runs: Sequence[Any], records: Sequence[Any], found: CandidateLosses | None
    ) -> None:
        """Keep the coefficients along the path of λ, if there is one."""

    def _column_names(self) -> list[str]:
        """Return the names of the columns, or their numbers."""
        named = getattr(self, "feature_names_in_", None)
        if named is not None:
            return [str(name) for name in named]
        return [f"column {d}" for d in range(self.n_features_in_)]

    @abstractmethod
    def _default_penalty_weight(self) -> float | None:
        """Return λ where none is given or chosen; None without a penalty."""

    def _without_held_out(self, problem: Problem) -> Self:
        """Return the estimator as it is without the held-out rows."""
        if not (self.spec_.is_solved and any(map(len, problem.rows.held_out))):
            return self
        run = problem.run(self.spec_, range(self.n_environments_), held_out=True)
        (record,) = problem.train([run], self.spec_.last_step, silent)
        without = copy(self)
        without._take(run, record)
        return without

    def _describe_selection(self) -> str:
        """Describe the selection when no environment was left out; warn of unused candidates."""
        asked, has_candidates = None, self.candidates is not None and len(self.candidates) > 1
        if has_candidates:
            asked = "candidates need"
        elif chooses_penalty(self) and self.n_environments_ > 1:
            asked = "penalty_weight='auto' needs"
        reason = describe_without_choice(asked, self.n_environments_, self.early_stopping)
        if has_candidates:
            warnings.warn(reason, stacklevel=4)
        return reason

    def _check_overlap(self, problem: Problem) -> None:
        """Warn if an objective compares environments by weights and most pairs hardly overlap."""
        if self.spec_.objective.weighted_columns(None, 1) is None:
            return
        features = problem.bank.features
        seen = [self._view(self._prepare(features[rows])) for rows in problem.learned(self.spec_)]
        state = getattr(self, "state_", None)
        used = self.spec_.objective.weighted_columns(state, seen[0].shape[1])
        if used is None or not used.any():
            return  # every row has the same weight
        seen = [own[:, used] for own in seen]
        warn_of_little_overlap(overlap_by_means(seen), self.environments_, stacklevel=4)

    def _prepared(self, X: Any) -> np.ndarray:
        """Return the checked table in the form that the predictor takes."""
        check_is_fitted(self, "evidence_")
        X = self._known_columns(without_column(without_gradient(X), self.environment))
        with name_large_numbers(X=X):
            X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        self._check_cells(X)
        return self._prepare(X)

    def _known_columns(self, X: Any) -> Any:
        """Return the table for the checks of `predict`, with the categories of `fit`."""
        return X

    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return the loss per row in the units of the target."""
        targets = targets if self._loss.classes else self.target_scaling_.apply(targets)
        losses = self._loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets))
        return losses.numpy() * float(self.target_scaling_.scale) ** 2
