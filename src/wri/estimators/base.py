"""The estimator that all classifiers and regressors derive from.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of the representation, thresholds on the held-out rows
    predict:  X ─► the model's units ─► head(Φ(x)), in float64

What is learned is kept as plain arrays in attributes with a trailing underscore.
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
from wri.estimators.choice import DEFAULT_RULE, RULES, Rule, describe_without_choice
from wri.estimators.environments import read_environments, without_column
from wri.estimators.folders import SavedInFolders
from wri.estimators.linear import CoefficientsMixin
from wri.estimators.parameters import check_parameters, read_seed
from wri.estimators.search import Problem, choose, hold_out, penalty_weight_of
from wri.estimators.specs import (
    AUTO,
    PRESET,
    PenaltyWeight,
    chooses_penalty,
    constructor_parameters,
    make_spec,
    make_specs,
    plain_erm,
)
from wri.estimators.verdicts import EvidenceMixin
from wri.estimators.warn import (
    check_environments,
    overlap_by_means,
    warn_of_little_overlap,
    warn_of_one_environment,
    warn_of_small_weights,
)
from wri.rows import Environments, refuse_gaps
from wri.stacked import SQUARED, Loss, Seen
from wri.training import Bank, ModelSpec, Record, Run
from wri.training.runs import FEWEST_ROWS


class Estimator(SavedInFolders, CoefficientsMixin, EvidenceMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifiers and regressors of all objectives.

    Parameters
    ----------
    environment : str or None, default=None
        Name of the DataFrame column that holds the environment of each row, in place of `groups`
        in `fit`. The column is not a feature, and `predict` does not need it.
    preset : str, default="table"
        Preset that supplies every setting left at None. "table" has the defaults for tables.
    hidden : tuple of int or None, default=None
        Widths of the hidden layers, for instance `(32, 16)`; `()` makes a linear predictor. The
        preset "table" uses linear predictors, except for CORAL, which aligns hidden layers.
        Linear predictors performed best at new sites of a few thousand rows.
    standardise : bool or None, default=None
        Whether to standardise the inputs, and the target of a regression, with the mean and the
        standard deviation of the training rows.
    steps : int or None, default=None
        Number of training steps. Schedules are made for this number.
    stop_after : int or None, default=None
        Step at which training stops, if it is before `steps`.
    penalty_weight : float, "auto" or None, default="auto"
        λ, the weight of the penalty beside the risk. "auto" chooses among multiples of the
        preset's value, including 0 (ERM), by the loss on each training environment left out in
        turn. This needs at least three environments; with fewer the preset's value is used. None
        takes the preset's value. Objectives without a penalty ignore it.
    learning_rate : float or None, default=None
        Step size of Adam; the preset's value when None.
    weight_decay : float or None, default=None
        Weight decay of Adam; the preset's value when None.
    batch_size : int or None, default=None
        Rows per environment and step; the preset's value when None. An environment with at most
        `batch_size` rows is used completely in every step.
    hyper : dict or None, default=None
        Other hyper-parameters of the objective by name (`anneal_steps`, `eta`, …).
    options : dict or None, default=None
        Options of the objective, for WRI for instance
        `{"weighting": "density", "density": Mixture()}`.
    candidates : list of dict or None, default=None
        Settings to choose from. The keys are hyper-parameters, options of the objective, or
        `hidden`. The choice uses the loss on each training environment left out in turn, which
        needs at least three environments. With `penalty_weight="auto"` each candidate is tried
        with each λ, unless it names its own.
    choose : {"average", "worst", "insured", "affordable"}, default="affordable"
        Rule of the choice. "average": the smallest mean loss over the environments left out.
        "worst": the smallest loss at the worst of them. "insured": the largest λ whose mean loss
        is within one standard error of the smallest. "affordable": the largest λ whose mean loss
        is within 1 % of the smallest. A larger λ relies less on relations that change between
        environments.
    early_stopping : bool, default=False
        Whether to stop where the loss on left-out environments (with fewer than three, on
        held-out rows) is smallest. Steps before the penalty has its full weight do not count.
        The step size does not decay then.
    validation_fraction : float, default=0.2
        Share of each environment's rows that is not used for training but sets the thresholds of
        `verdict` and the step of early stopping. In an environment with fewer than 25 rows all
        rows are used for training and also set the thresholds.
    evidence_on : {"outputs", "phi", "x"}, default="outputs"
        What the evidence sees of a row. "outputs": the log-odds, or the predicted number; rare
        rows are those with extreme predictions. "phi": the last hidden layer. "x": the
        standardised inputs. "phi" and "x" also find unusual combinations of columns that have
        ordinary predictions, including combinations that do not matter for the prediction.
    rare : float, default=0.05
        Share of the training environments' rows that `verdict` calls rare or outside.
    outside : float, default=0.005
        Share of the training environments' rows that `verdict` calls outside.
    site_spread : bool, default=True
        Whether to train also without each environment in turn (in five groups if there are more
        than five environments). The interval of `score_new_site` needs it. It takes up to five
        times as long as the rest of `fit`.
    random_state : int, RandomState or None, default=0
        Seed of the initial weights, batches and held-out rows.
    device : str, default="auto"
        PyTorch device. "auto" is CUDA if it is available, otherwise the CPU.
    n_jobs : int or None, default=None
        Number of stacks of candidates trained at the same time on the CPU. None or 1 does not
        change the number of threads of the process, −1 uses all cores.
    verbose : bool, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    environments_ : ndarray of shape (n_environments_,)
        Labels of the training environments.
    n_environments_ : int
        Number of training environments.
    n_features_in_ : int
        Number of columns in `fit`, without the environment column.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, if `X` was a DataFrame with string names.
    spec_ : ModelSpec
        What was trained: objective, hidden layers, units, hyper-parameters, steps.
    hyper_ : Mapping of str to float
        Hyper-parameters of the predictor.
    n_steps_ : int
        Number of training steps taken.
    selection_ : str
        How the hyper-parameters were chosen, with the cost and the benefit of the penalty.
    candidate_losses_ : ndarray of shape (n_candidates, n_environments_) or None
        Loss on each environment when it was left out; None if none was.
    penalty_weights_ : ndarray of shape (n_candidates,) or None
        λ of each candidate; None if no environment was left out.
    evidence_ : Evidence
        Densities of the training environments with the thresholds of `verdict`.
    evidence_on_ : str
        What the evidence sees of a row.
    known_ : HeldOutRows
        Predictions and losses of the held-out rows.
    left_out_ : LeftOutSites or None
        Loss of each environment when it was left out; None if none was.
    ranges_ : ColumnRanges
        Range of each column in training.
    n_held_out_ : int
        Number of rows that were not used for training.
    coef_ : ndarray
        Coefficients of a linear predictor per unit of each column.
    intercept_ : ndarray or float
        Intercept of a linear predictor.
    network_ : Network
        Architecture of the predictor.
    parameters_ : ndarray of shape (n_parameters,)
        Weights and biases of the predictor.
    state_ : object
        State of the objective, for instance the densities of WRI.
    input_scaling_ : Scaling
        Mean and standard deviation of each column.
    target_scaling_ : Scaling
        Mean and standard deviation of the target.
    """

    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": True}
    _objective: ClassVar[str]
    _loss: ClassVar[Loss]

    def __init__(
        self,
        *,
        environment: str | None = None,
        preset: str = PRESET,
        hidden: tuple[int, ...] | None = None,
        standardise: bool | None = None,
        steps: int | None = None,
        stop_after: int | None = None,
        penalty_weight: PenaltyWeight = AUTO,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        choose: Rule = DEFAULT_RULE,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        evidence_on: Seen = "outputs",
        rare: float = 0.05,
        outside: float = 0.005,
        site_spread: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.environment = environment
        self.preset = preset
        self.hidden = hidden
        self.standardise = standardise
        self.steps = steps
        self.stop_after = stop_after
        self.penalty_weight = penalty_weight
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.hyper = hyper
        self.options = options
        self.candidates = candidates
        self.choose = choose
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.evidence_on = evidence_on
        self.rare = rare
        self.outside = outside
        self.site_spread = site_spread
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

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
            Numbers without missing values. A DataFrame may hold the environment column.
        y : array-like of shape (n_rows,)
            Targets.
        groups : iterable of shape (n_rows,) or None, default=None
            Environment of each row, any hashable labels. Without `groups` and without
            `environment` there is one environment, and plain ERM is trained.
        sample_weight : array-like of shape (n_rows,) or None, default=None
            How often each row counts: weight 2 counts a row twice, weight 0 drops it. All
            environments count the same, whatever the weights of their rows. Large environments,
            Mixup and WRI's classifier of environments draw rows by their weights, so for them
            this holds on average.

        Returns
        -------
        self : Estimator
            The fitted estimator.

        Raises
        ------
        InputError
            If a parameter, a row or an environment cannot be used. The message names it.
        """
        check_parameters(self)
        check_option("evidence_on", self.evidence_on, get_args(Seen))
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
        seed, contents = read_seed(self.random_state), np.column_stack([X, targets])
        rows = hold_out(environments.rows, contents, weights, self.validation_fraction, seed)
        bank = Bank(X, targets, loss=self._loss, classes=self._n_outputs, weights=weights)
        problem = Problem(bank=bank, rows=rows, seed=seed, device=self.device, n_jobs=self.n_jobs)
        specs = self._specs(problem.can_leave_one_out)
        self._train(problem, [problem.complete(spec) for spec in specs])
        self._fit_evidence(X, targets, weights, rows)
        self._leave_sites_out(problem)
        return self

    def _read(
        self, X: Any, y: Any, groups: Iterable[Any] | None, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, Environments, np.ndarray | None]:
        """Return checked arrays and environments of the rows with positive weight."""
        table, X = X, without_column(X, self.environment)
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=FEWEST_ROWS,
            y_numeric=self._loss is SQUARED,
        )
        refuse_gaps(X, getattr(self, "feature_names_in_", None))
        environments = read_environments(table, len(X), groups, self.environment)
        if sample_weight is None:
            return X, y, environments, None
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        warn_of_small_weights(weights, stacklevel=3)
        present = weights > 0
        return X[present], y[present], environments.take(present), weights[present]

    @classmethod
    def from_spec(cls, spec: ModelSpec, **parameters: Any) -> Self:
        """Make an estimator that trains a given specification.

        Parameters
        ----------
        spec : ModelSpec
            What is trained. Its objective must be the objective of the class.
        **parameters : Any
            Other parameters of the constructor.

        Returns
        -------
        estimator : Estimator
            The unfitted estimator.

        Raises
        ------
        InputError
            If the specification is for another objective.
        """
        if spec.objective.name != cls._objective:
            raise InputError(f"{cls.__name__} trains {cls._objective}, not {spec.objective.name}")
        return cls(**constructor_parameters(spec), **parameters)

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes; None for a regression."""
        return None

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Encode targets for the loss."""

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """Make one specification per candidate."""
        asked = make_specs(self)
        if len(asked) > 1 and not can_choose:
            asked = [make_spec(self)]
        if self.n_environments_ < asked[0].objective.least_environments:
            return [plain_erm(asked[0])]
        return asked

    @property
    def hyper_(self) -> Mapping[str, float]:
        """Hyper-parameters of the predictor."""
        return self.spec_.hyper

    @property
    def n_steps_(self) -> int:
        """Number of training steps taken."""
        return self.spec_.last_step

    def _train(self, problem: Problem, specs: Sequence[ModelSpec]) -> None:
        """Choose a candidate, train it on all environments and keep it."""
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

    def _take(self, run: Run, record: Record) -> None:
        """Keep the predictor that a run has trained."""
        self.spec_ = run.spec
        self.input_scaling_, self.target_scaling_ = run.units
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

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
        """Warn if most pairs hardly overlap: WRI compares environments where they overlap."""
        if self.spec_.objective.name == "wri":
            features = problem.bank.features
            seen = [self.input_scaling_.apply(features[rows]) for rows in problem.rows.fitted]
            warn_of_little_overlap(overlap_by_means(seen), self.environments_, stacklevel=4)

    def _standardised(self, X: Any) -> np.ndarray:
        """Return the checked table in the units of the network."""
        check_is_fitted(self, "evidence_")
        X = without_column(X, self.environment)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        refuse_gaps(X, getattr(self, "feature_names_in_", None))
        return self.input_scaling_.apply(X)

    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        """Return the loss per row in the units of the target."""
        targets = targets if self._loss.classes else self.target_scaling_.apply(targets)
        losses = self._loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets))
        return losses.numpy() * float(self.target_scaling_.scale) ** 2

    def _outputs(self, standardised: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs of the network in float64."""
        rows = torch.as_tensor(standardised)[None]
        return self.network_.outputs(torch.as_tensor(self.parameters_)[None], rows)[0].numpy()
