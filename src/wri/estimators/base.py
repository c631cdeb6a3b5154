"""The estimator that all classifiers and regressors derive from, in the order of its life.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of the representation, thresholds on the held-out rows
    predict:  X ─► form that the predictor takes ─► outputs, in float64
    verdict:  outputs ─► how common such rows were in training, and how sure they are

A class that users meet (`__init__.py` makes them) has two further bases: what predicts, networks
(`network.py`) or boosted trees (`trees.py`), and what is predicted, classes or numbers, at the end
of this file.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np
import torch
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from wri.errors import InputError, check_option, shorten
from wri.estimators.choice import (
    DEFAULT_RULE,
    RULES,
    CandidateLosses,
    PenaltyWeight,
    Rule,
    choose,
    make_specs,
)
from wri.estimators.inputs import (
    RowSplit,
    check_environments,
    check_overlap,
    check_parameters,
    hold_out,
    read_rows,
    read_seed,
    without_column,
)
from wri.estimators.problem import Problem, fit_evidence, leave_sites_out, without_held_out
from wri.estimators.table_model import Assessment, TableModel
from wri.futures import FUTURES, Future
from wri.objectives import Objective
from wri.ood.evidence import Evidence, RowEvidence
from wri.ood.held_out import ColumnRanges, HeldOutRows
from wri.progress import progress_bar
from wri.rows import (
    Scaling,
    name_unreadable_cells,
    refuse_infinite,
    refuse_missing,
    without_gradient,
)
from wri.stacked import CROSS_ENTROPY, SQUARED, Loss, View
from wri.training import Bank, ModelSpec

if TYPE_CHECKING:
    from wri.diagnosis.new_site import NewSite

LARGEST = 1e150  # of a target, so that its square is finite
ENOUGH_FOR_RANGES = 2000  # rows; 20 of them lie beyond the ranges


@dataclass(kw_only=True, eq=False, repr=False)
class EnvironmentEstimator(TableModel, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers and regressors of all objectives and predictors."""

    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": True}
    _objective: ClassVar[str]
    _kind: ClassVar[type[Objective]]
    _loss: ClassVar[Loss]
    _sees: ClassVar[tuple[View, ...]] = get_args(View)
    """What the evidence can see of a row, for `evidence_on`."""
    _ladder: ClassVar[tuple[float, ...]]
    """λ that "auto" chooses from, as multiples of the default; 0 is ERM."""
    _allows_missing: ClassVar[bool] = False

    environment: str | None = None
    penalty_weight: PenaltyWeight = None
    hyper: Mapping[str, float] | None = None
    options: Mapping[str, Any] | None = None
    candidates: Sequence[Mapping[str, Any]] | None = None
    choose: Rule = DEFAULT_RULE
    futures: Sequence[Future] | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.2
    evidence_on: View = "outputs"
    rare: float = 0.05
    outside: float = 0.005
    site_spread: bool = True
    random_state: int | np.random.RandomState | None = 0
    n_jobs: int | None = None
    verbose: bool = False

    spec_: ModelSpec = field(init=False)
    target_scaling_: Scaling = field(init=False)
    evidence_: Evidence = field(init=False)
    evidence_on_: View = field(init=False)
    held_out_: HeldOutRows = field(init=False)
    ranges_: ColumnRanges = field(init=False)

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
            environments count the same, whatever the weights of their rows. Exact for linear
            predictors that are solved, and for most others with up to 2048 rows per environment;
            approximate for WRI in steps unless weights are whole and at most 10 on average, and for
            CORAL, IBERM and IBIRM. Mixup and larger environments draw rows by their weights. Trees
            are as in LightGBM: the smallest number of rows per leaf and the bins of columns count
            rows.

        Returns
        -------
        self : Estimator
            The fitted estimator.

        Raises
        ------
        InputError
            If a parameter, a row or an environment cannot be used. The message names it.
        """
        return self._fit(self._read_problem(X, y, groups, sample_weight))

    def _fit(self, problem: Problem) -> Self:
        spec, found = self._choose(problem)
        # along the path of a solved predictor, the others cost little more
        path = problem.keeps_path and (self.site_spread or found is not None)
        along = [spec, *(self._path_specs(spec) if path else [])]
        runs = [problem.run(each, range(self.n_environments_)) for each in along]
        with progress_bar("Training", self.verbose) as progress:
            records = problem.train(runs, spec.last_step, progress)
        self._learn(problem, runs[0], records[0])
        check_overlap(self, problem)
        self._keep_path(runs, records, found)
        fit_evidence(self, without_held_out([self], problem)[0], problem)
        self.ranges_ = self._find_ranges(problem)
        self.left_out_ = leave_sites_out(self, problem)
        return self

    def _read_problem(self, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Problem:
        """Check the parameters and the rows; set rows aside."""
        self._check_parameters()
        X, y, environments, weights = read_rows(self, X, y, groups, sample_weight)
        targets = self._encode(y)
        check_environments(self, environments, targets)
        self.environments_, self.n_environments_ = environments.labels, len(environments.labels)
        self.fit_summary_: Any = None  # what `wri fit` measured; it fills it in
        seed, share = read_seed(self.random_state), self.validation_fraction
        rows = hold_out(environments.rows, self._filled(X), targets, weights, share, seed)
        self.n_held_out_ = sum(len(own) for own in rows.held_out)
        bank = Bank(
            X,
            targets,
            loss=self._loss,
            classes=self._n_outputs,
            weights=weights,
            gaps=self._allows_missing,
        )
        return self._problem(bank, rows, seed)

    def _check_parameters(self) -> None:
        check_parameters(self)
        check_option("evidence_on", self.evidence_on, self._sees)
        check_option("choose", self.choose, RULES)
        for future in self.futures or ():
            check_option("futures", future, FUTURES)
        if not 0 <= self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must be in [0, 1), not {self.validation_fraction:g}"
            )

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """Make one specification per candidate, or one where no environment can be left out."""
        specs = make_specs(self)
        if len(specs) > 1 and not can_choose:
            specs = [self._spec({})]
        if self.n_environments_ < specs[0].objective.least_environments:
            return [self._plain_erm(specs[0])]
        return specs

    def _choose(self, problem: Problem) -> tuple[ModelSpec, CandidateLosses | None]:
        """Choose a candidate, by its losses at environments left out if there are several."""
        specs = [problem.complete(spec) for spec in self._specs(problem.can_leave_one_out)]
        several = len(specs) > 1 or self.early_stopping
        with progress_bar("Choosing", self.verbose and several) as progress:
            spec, self.selection_, found = choose(self, problem, specs, progress)
        self.candidate_losses_ = None if found is None else found.losses[:, 0]
        tried = found is not None and None not in found.weights
        self.penalty_weights_ = np.array(found.weights, float) if found and tried else None
        return spec, found

    def _learn(self, problem: Problem, run: Any, record: Any) -> None:
        """Keep the predictor that was trained on all environments."""
        if record.diverged_at is not None:
            raise InputError(f"training diverged at step {record.diverged_at}; lower learning_rate")
        self._take(run, record)

    def _find_ranges(self, problem: Problem) -> ColumnRanges:
        """Find the range of each column in the predictor's form.

        The rows that set thresholds are enough, if there are many.
        """
        own = problem.rows.calibrating
        if sum(map(len, own)) < ENOUGH_FOR_RANGES:
            own = problem.rows.every
        prepared = (self._filled(self._prepare(problem.bank.features[rows])) for rows in own)
        return ColumnRanges.of([*prepared], [problem.weights[rows] for rows in own])

    @property
    def hyper_(self) -> Mapping[str, float]:
        """Hyper-parameters of the predictor."""
        return self.spec_.hyper

    @property
    def n_steps_(self) -> int:
        """Number of training steps taken; 0 for a solved predictor."""
        return 0 if self.spec_.is_solved else self.spec_.last_step

    def _column_names(self) -> list[str]:
        """Return the names of the columns, or their numbers."""
        named = getattr(self, "feature_names_in_", None)
        if named is not None:
            return [str(name) for name in named]
        return [f"column {d}" for d in range(self.n_features_in_)]

    def _check_cells(self, X: np.ndarray) -> None:
        """Refuse infinite values, and missing ones where the predictor cannot take them."""
        cells = np.nan_to_num(X, posinf=np.inf, neginf=-np.inf) if self._allows_missing else X
        refuse_missing(cells, getattr(self, "feature_names_in_", None))

    def _prepared(self, X: Any) -> np.ndarray:
        """Return the checked table in the form that the predictor takes."""
        check_is_fitted(self, "spec_")
        X = without_column(without_gradient(X), self.environment)
        X = self._encode_columns(X, fit=False)
        with name_unreadable_cells(X=X):
            X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        self._check_cells(X)
        return self._prepare(X)

    def _finite_outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs; refuse rows whose predictions are not finite."""
        outputs = self._outputs(prepared)
        with np.errstate(over="ignore", invalid="ignore"):
            predictions = self._predictions(outputs)
        refuse_infinite(predictions)
        return outputs

    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return the loss per row in the units of the target."""
        targets = targets if self._loss.classes else self.target_scaling_.apply(targets)
        losses = self._loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets))
        return losses.numpy() * float(self.target_scaling_.scale) ** 2

    def assess(self, X: Any) -> Assessment:
        """Return predictions with probabilities, typicality, verdicts and nearest environments.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        assessment : Assessment
            The same numbers as from the single methods, computed in one pass.
        """
        prepared = self._prepared(X)
        outputs = self._finite_outputs(prepared)
        judged = self._evidence(prepared, outputs)
        return Assessment(
            **vars(judged),
            predictions=self._decide(outputs),
            probabilities=self._predictions(outputs) if hasattr(self, "classes_") else None,
            nearest=self.environments_[judged.environments.argmax(1)],
        )

    def score_new_site(self, X: Any, *, level: float = 0.95) -> "NewSite":
        """Estimate the loss and describe the rows of a site without known outcomes.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Rows of the site, like those in `fit`.
        level : float, default=0.95
            Level of the interval for the site's mean loss.

        Returns
        -------
        site : NewSite
            Expected mean loss with an interval that contains the spread between sites, shares of
            rare and outside rows, nearest training environment, columns beyond their range in
            training, and the mean prediction. `meaning` describes it in words, `plot()` draws it.
            The interval needs at least three training sites and `site_spread=True`.
        """
        from wri.diagnosis.new_site import describe_new_site  # it draws, and so loads Matplotlib

        x = self._prepared(X)
        outputs, beyond = self._outputs(x), self.ranges_.beyond(x)
        judged = self._evidence(x, outputs)
        del x  # as large as X
        return describe_new_site(
            self, judged, self._predictions(outputs), beyond, tuple(self._column_names()), level
        )

    def _represent(
        self, prepared: np.ndarray, outputs: np.ndarray | None = None
    ) -> np.ndarray:  # [n, D] -> [n, F]
        """Return what the evidence sees of prepared rows, or of their known outputs."""
        if self.evidence_on_ == "outputs":
            return self._free_outputs(self._outputs(prepared) if outputs is None else outputs)
        return self._view(prepared)

    def _for_estimator(self, X: Any) -> tuple["EnvironmentEstimator", np.ndarray]:
        return self, self._prepared(X)

    def _judge(self, X: Any) -> RowEvidence:
        prepared = self._prepared(X)
        return self._evidence(prepared, self._outputs(prepared))

    def _evidence(self, prepared: np.ndarray, outputs: np.ndarray) -> RowEvidence:
        """Return the evidence of prepared rows with these outputs."""
        return self.evidence_.judge(self._represent(prepared, outputs), self._confidence(outputs))

    # What a predictor defines

    @abstractmethod
    def _problem(self, bank: Bank, rows: RowSplit, seed: int) -> Problem:
        """Make the problem that all runs of this fit share."""

    @abstractmethod
    def _spec(self, candidate: Mapping[str, Any]) -> ModelSpec:
        """Make the specification of the constructor, changed by a candidate."""

    @abstractmethod
    def _plain_erm(self, spec: ModelSpec) -> ModelSpec:
        """Make the ERM specification with the settings of another."""

    @abstractmethod
    def _default_penalty_weight(self) -> float | None:
        """Return λ where none is given or chosen; None without a penalty."""

    @abstractmethod
    def _take(self, run: Any, record: Any) -> None:
        """Keep the predictor that a run has trained."""

    @abstractmethod
    def _prepare(self, features: np.ndarray) -> np.ndarray:
        """Convert checked rows to the form that the predictor takes."""

    @abstractmethod
    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs of the predictor."""

    def _view(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, V]
        """Return the inputs in units of about one, without missing values."""
        return prepared

    def _path_specs(self, spec: ModelSpec) -> list[ModelSpec]:
        """Return specifications with other λ whose coefficients are kept; none by default."""
        return []

    def _keep_path(
        self, runs: Sequence[Any], records: Sequence[Any], found: CandidateLosses | None
    ) -> None:
        """Keep the coefficients along the path of λ, if there is one."""

    def _encode_columns(self, X: Any, fit: bool) -> Any:
        """Return the table for the checks, its categories as codes; `fit` learns them."""
        return X

    def _filled(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
        """Return rows without missing values, to find equal rows and ranges of columns."""
        return X

    # What a kind of target defines

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Encode targets for the loss."""

    @abstractmethod
    def _decide(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return the most probable classes, or numbers in the unit of the target."""

    @abstractmethod
    def _predictions(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C]
        """Return class probabilities, or numbers in the unit of the target."""

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes; None for a regression."""
        return None

    def _confidence(self, outputs: np.ndarray) -> np.ndarray | None:  # [n, C] -> [n]
        """Return the log-odds of the predicted classes; None for numbers."""
        return None

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:
        """Drop the part of the outputs that the prediction does not depend on."""
        return outputs


class Classifier(ClassifierMixin, EnvironmentEstimator):  # type: ignore[misc]
    """Classifier with log-loss of the class probabilities, which are the softmax of the outputs.

    Labels may be of any type; two classes or more. The attribute `classes_` holds the labels in the
    order of the columns of `predict_proba`.

    Examples
    --------
    >>> import numpy as np
    >>> from wri import WRIClassifier
    >>> X = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = np.where(X[:, 0] > 0, "ill", "well")
    >>> site = np.repeat(["north", "east", "south"], 30)
    >>> model = WRIClassifier(steps=60, site_spread=False).fit(X, y, groups=site)
    >>> model.predict([[1.5, 0.0], [-1.5, 0.0]]).tolist()
    ['ill', 'well']
    >>> model.n_environments_
    3
    """

    _loss = CROSS_ENTROPY

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_rows, n_features)
            Table like the one in `fit`, with or without the environment column.

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Columns in the order of `classes_`.
        """
        return self._predictions(self._finite_outputs(self._prepared(X)))

    @property
    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        check_classification_targets(y)
        self.classes_, number = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = shorten(repr(self.classes_[0]))
            raise InputError(f"y holds one class, {only}; a classifier needs two classes")
        return number

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        return self.classes_[outputs.argmax(1)]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return softmax(outputs, axis=1)

    def _confidence(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        ordered = np.sort(outputs, axis=1)
        return ordered[:, -1] - logsumexp(ordered[:, :-1], axis=1)

    def _free_outputs(self, outputs: np.ndarray) -> np.ndarray:  # [n, C] -> [n, C − 1]
        """Return log-odds against the last class; a shift of all outputs does not matter."""
        return outputs[:, :-1] - outputs[:, -1:]

    def _shape_coefficients(
        self, weight: np.ndarray, bias: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        if len(weight) == 2:
            return weight[1:] - weight[:1], bias[1:] - bias[:1]
        return weight - weight.mean(0), bias - bias.mean()


class Regressor(RegressorMixin, EnvironmentEstimator):  # type: ignore[misc]
    """Regressor with squared error.

    Penalties scale with y⁴, so λ would depend on the unit of y. Therefore y is standardised with
    the training rows, and predictions are returned in the unit of y.

    Examples
    --------
    >>> import numpy as np
    >>> from wri import WRIRegressor
    >>> X = np.random.default_rng(0).normal(size=(90, 2))
    >>> y = 100 + 10 * X[:, 0]
    >>> site = np.repeat(["north", "east", "south"], 30)
    >>> model = WRIRegressor(steps=60, site_spread=False).fit(X, y, groups=site)
    >>> low, high = model.predict([[-1.5, 0.0], [1.5, 0.0]])
    >>> bool(low < 100 < high)
    True
    >>> model.n_environments_
    3
    """

    _loss = SQUARED

    def _decide(self, outputs: np.ndarray) -> np.ndarray:
        return self._predictions(outputs)[:, 0]

    def _predictions(self, outputs: np.ndarray) -> np.ndarray:
        return self.target_scaling_.undo(outputs)

    def _encode(self, y: np.ndarray) -> np.ndarray:
        with name_unreadable_cells(y=y):
            numbers = np.asarray(y, np.float64)
        largest = float(np.abs(numbers).max())
        if largest and not 1 / LARGEST < largest < LARGEST:
            raise InputError(
                f"y holds numbers of the order of {largest:.0e}, whose squares do not fit in "
                "float64; give y in another unit"
            )
        return numbers

    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, float]:
        unit = self.target_scaling_
        return weight[0] * unit.scale, float(bias[0] * unit.scale + unit.mean)
