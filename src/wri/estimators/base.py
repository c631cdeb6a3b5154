"""One estimator behind all: environments, standardising, candidates, evidence.

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
    """What classifiers and regressors of all objectives share.

    Parameters
    ----------
    environment
        Name of the DataFrame column that says where a row comes from. It is not a feature, and
        `predict` does not need it. In place of `groups` in `fit`.
    preset
        Where every setting that is None comes from; "table" has defaults for tables.
    hidden
        Widths of the hidden layers, `(32, 16)` for instance, or `()` for a linear predictor. By
        the preset "table" predictors are linear, which held best at new sites of a few thousand
        rows, except for CORAL, which aligns hidden layers.
    standardise
        Whether inputs, and the target of a regression, are put in units of the training rows.
    steps
        Steps of training, for which schedules are made.
    stop_after
        Steps after which training stops, if before `steps`.
    penalty_weight
        λ, how much the penalty counts beside the risk: a number, the preset's when None, or "auto"
        (the default): chosen from a ladder of values around the preset's, 0 (ERM) among them, by
        the loss on each training environment left out in turn. That takes three environments or
        more; with fewer the preset's is kept. Objectives without a penalty ignore it.
    learning_rate, weight_decay, batch_size
        Hyper-parameters; the preset's when None. An environment with at most `batch_size` rows is
        used whole at every step.
    hyper
        Further hyper-parameters of the objective by name (`anneal_steps`, `eta`, …).
    options
        Options of the objective (`{"weighting": "density", "density": Mixture()}` for WRI, …).
    candidates
        Settings to choose from, a list of dicts of hyper-parameters, options of the objective, or
        `hidden`: by the loss on each training environment left out in turn, which takes three
        environments or more. With `penalty_weight="auto"` each is tried with every λ of the ladder,
        unless it has its own.
    choose
        By which rule. "average": the least mean loss over left-out environments. "worst": the least
        loss at the worst of them. "insured": the largest λ whose mean loss is within one standard
        error of the least; a larger λ relies less on relations that change between environments.
        "affordable" (the default): the largest λ whose mean loss is within 1 % of the least.
    early_stopping
        Stop where the loss on left-out environments is least (with fewer than three, on held-out
        rows), once penalties have their full weight. The step size does not decay then.
    validation_fraction
        Share of every environment's rows that is not learned from but sets the thresholds of
        `verdict` (and stops early). Environments with fewer than 25 rows spare none; their rows
        set the thresholds themselves.
    evidence_on
        What the evidence sees of a row. The predictor's "outputs" (log-odds, or the number
        predicted): rare rows have extreme predictions, and what the predictor ignores makes no row
        rare. Its last hidden layer "phi" and the standardised inputs "x" see strange combinations
        with ordinary predictions as well, also those that do not matter.
    rare, outside
        Shares of the training environments' rows that `verdict` calls at least rare, and outside.
    site_spread
        Whether to train without each environment in turn as well (in five groups of them where
        there are more), for the interval of `score_new_site`. It costs up to five times the rest.
    random_state
        Seed of initial weights, batches and held-out rows. An integer is the seed itself.
    device
        "auto" is CUDA where there is one, else the CPU.
    n_jobs
        Stacks of candidates that train at a time on the CPU: None or 1 leaves the process's threads
        as they are, −1 takes all cores.
    verbose
        Whether to show a progress bar.

    Attributes
    ----------
    environments_, n_environments_
        Labels of the training environments and how many there were.
    spec_
        What was trained: objective, hidden layers, units, hyper-parameters, steps.
    hyper_, n_steps_
        Its hyper-parameters, and the steps that were taken.
    selection_
        How they were found, what the penalty costs and what it buys, in words.
    candidate_losses_
        `[candidates, environments]`: loss on each environment when it was left out, or None.
    penalty_weights_
        `[candidates]`: λ of each, the ladder of "auto"; None where nothing was left out.
    evidence_, evidence_on_
        Densities and thresholds, and what they see.
    known_, left_out_, ranges_
        What `score_new_site` compares with: held-out rows and their losses, the loss of each
        environment when it was left out (or None), and the range of each column.
    n_held_out_
        Rows that were not learned from.
    coef_, intercept_
        Of a linear predictor, in the units of the columns.
    network_, parameters_, state_, input_scaling_, target_scaling_
        The trained network, what the objective kept (WRI's densities), and units.
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
            weights, so there this holds on average.
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
        """Checked arrays and environments of the rows that count."""
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
        """An estimator that trains a specification.

        Parameters
        ----------
        spec
            What is trained; its objective must be the one of the class.
        **parameters
            Further parameters of the constructor.
        """
        if spec.objective.name != cls._objective:
            raise InputError(f"{cls.__name__} trains {cls._objective}, not {spec.objective.name}")
        return cls(**constructor_parameters(spec), **parameters)

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes, if there are any."""
        return None

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them."""

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """What the constructor asks for: one specification for each candidate."""
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

    def _take(self, run: Run, record: Record) -> None:
        """Become the predictor that a run has trained."""
        self.spec_ = run.spec
        self.input_scaling_, self.target_scaling_ = run.units
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

    def _describe_selection(self) -> str:
        """Where no environment was left out."""
        asked = None
        if self.candidates is not None and len(self.candidates) > 1:
            asked = "candidates need"
        elif chooses_penalty(self) and self.n_environments_ > 1:
            asked = "penalty_weight='auto' needs"
        reason = describe_without_choice(asked, self.n_environments_, self.early_stopping)
        if asked:
            warnings.warn(reason, stacklevel=4)
        return reason

    def _check_overlap(self, problem: Problem) -> None:
        """WRI compares pairs of environments where they overlap."""
        if self.spec_.objective.name == "wri":
            features = problem.bank.features
            seen = [self.input_scaling_.apply(features[rows]) for rows in problem.rows.fitted]
            warn_of_little_overlap(overlap_by_means(seen), self.environments_, stacklevel=4)

    def _standardised(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "evidence_")
        X = without_column(X, self.environment)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        refuse_gaps(X, getattr(self, "feature_names_in_", None))
        return self.input_scaling_.apply(X)

    def _losses(self, outputs: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        targets = targets if self._loss.classes else self.target_scaling_.apply(targets)
        losses = self._loss.per_example(torch.as_tensor(outputs), torch.as_tensor(targets))
        return losses.numpy() * float(self.target_scaling_.scale) ** 2

    def _outputs(self, standardised: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        rows = torch.as_tensor(standardised)[None]
        return self.network_.outputs(torch.as_tensor(self.parameters_)[None], rows)[0].numpy()
