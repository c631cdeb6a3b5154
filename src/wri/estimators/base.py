"""One estimator behind all: environments, standardising, candidates, evidence.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of the representation, thresholds on the held-out rows
    predict:  X ─► the model's units ─► head(Φ(x)), in float64

What is learned is kept as plain arrays in attributes with a trailing underscore.
"""

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from wri.errors import InputError, check_option, shorten
from wri.estimators.bar import progress_bar
from wri.estimators.environments import read_environments, without_column
from wri.estimators.parameters import check_parameters
from wri.estimators.search import Problem, choose, hold_out
from wri.estimators.specs import PRESET, constructor_parameters, make_spec, plain_erm
from wri.estimators.verdicts import EvidenceMixin
from wri.rows import Environments, refuse_gaps
from wri.stacked import SQUARED, Loss, Seen
from wri.training import Bank, ModelSpec
from wri.training.runs import FEWEST_ROWS

SMALL = 0.1  # mean weight below which weights were hardly meant as counts


class Estimator(EvidenceMixin, BaseEstimator):  # type: ignore[misc]
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
    penalty_weight, learning_rate, weight_decay, batch_size
        Hyper-parameters; the preset's when None. An environment with at most `batch_size` rows is
        used whole at every step.
    hyper
        Further hyper-parameters of the objective by name (`anneal_steps`, `eta`, …).
    options
        Options of the objective (`{"weighting": "density", "density": Mixture()}` for WRI, …).
    candidates
        Settings to choose from, a list of dicts of hyper-parameters, options of the objective, or
        `hidden`: by the loss on each training environment left out in turn, which takes three
        environments or more.
    early_stopping
        Stop where the loss on left-out environments is least (with fewer than three, on held-out
        rows), once penalties have their full weight. The step size does not decay then.
    validation_fraction
        Share of every environment's rows that is not learned from but sets the thresholds of
        `verdict` (and stops early). Environments with fewer than 25 rows spare none; their rows
        set the thresholds themselves.
    evidence_on
        What the evidence sees of a row. The predictor's "outputs" (log-odds, or the number
        predicted): what the predictor ignores makes no row rare, and neither does a strange
        combination of features with an ordinary outcome. Its last hidden layer "phi" and the
        standardised inputs "x" see more, also shifts that do not matter.
    rare, outside
        Shares of the training environments' rows that `verdict` calls at least rare, and outside.
    random_state
        Seed of initial weights, batches and held-out rows. An integer is the seed itself.
    device
        "auto" is CUDA where there is one, else the CPU.
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
        How they were found, a sentence.
    candidate_losses_
        `[candidates, environments]`: loss on each environment when it was left out, or None.
    evidence_, evidence_on_
        Densities and thresholds, and what they see.
    known_
        Held-out rows with their losses, for `score_new_site`.
    n_held_out_
        Rows that were not learned from.
    network_, parameters_, state_, input_scaling_, target_scaling_
        The trained network, what the objective kept (WRI's densities), and the units of inputs and
        target.
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
        penalty_weight: float | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        evidence_on: Seen = "outputs",
        rare: float = 0.05,
        outside: float = 0.005,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "auto",
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
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.evidence_on = evidence_on
        self.rare = rare
        self.outside = outside
        self.random_state = random_state
        self.device = device
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
        if not 0 <= self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must be in [0, 1), not {self.validation_fraction:g}"
            )
        X, y, environments, weights = self._read(X, y, groups, sample_weight)
        targets = self._encode(y)
        self._check_environments(environments, targets)
        self.environments_ = environments.labels
        self.n_environments_ = len(environments.labels)
        seed = _seed(self.random_state)
        contents = np.column_stack([X, targets])
        rows = hold_out(environments.rows, contents, weights, self.validation_fraction, seed)
        bank = Bank(X, targets, loss=self._loss, classes=self._n_outputs, weights=weights)
        problem = Problem(bank, rows, seed, self.device)
        specs = self._specs(problem.can_leave_one_out)
        self._train(problem, [problem.complete(spec) for spec in specs])
        self._fit_evidence(X, targets, weights, rows)
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
        _warn_of_small(weights)
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

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted model to a folder, which holds no code; see `wri.estimators.saving`.

        Parameters
        ----------
        folder
            A new or empty folder, or one with a saved model and nothing else, which is replaced.
        """
        from wri.estimators.saving import save  # it knows all estimators and so comes after them

        save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote, with the same predictions to the last bit.

        Parameters
        ----------
        folder
            From anybody: a damaged or hostile one is an error, and nothing in it is run.
        """
        from wri.estimators.saving import load

        return load(folder, cls)

    @property
    def _n_outputs(self) -> int | None:
        """Number of classes, if there are any."""
        return None

    @abstractmethod
    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Targets as the loss takes them."""

    def _check_environments(self, environments: Environments, targets: np.ndarray) -> None:
        """Refuse environments that are too small, warn of those that say little."""
        name = type(self).__name__
        for label, rows in zip(environments.labels, environments.rows, strict=True):
            if len(rows) < FEWEST_ROWS:
                raise InputError(
                    f"environment {shorten(label)!r} has {len(rows)} row; at least {FEWEST_ROWS} "
                    "are needed: drop or merge it"
                )
            if self._loss is not SQUARED and len(np.unique(targets[rows])) == 1:
                warnings.warn(
                    f"environment {shorten(label)!r} holds a single class; its risk says little "
                    "about the others",
                    stacklevel=3,
                )
        if len(environments.labels) == 1 and self._objective != "erm":
            warnings.warn(
                f"{name} compares environments and was given one: it trains plain ERM. Give fit "
                "groups=, or the constructor environment='column'",
                stacklevel=3,
            )

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        """What the constructor asks for: one specification for each candidate."""
        if self.candidates is not None and not len(self.candidates):
            raise InputError("candidates is empty; leave it out for the defaults")
        asked = [make_spec(self, candidate) for candidate in self.candidates or [{}]]
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
            chosen = choose(problem, specs, self.early_stopping, progress)
        self.candidate_losses_ = chosen.losses
        self.selection_ = self._describe_selection(chosen.losses is not None)
        run = problem.run(chosen.spec, range(self.n_environments_))
        with progress_bar("Training", self.verbose) as progress:
            (record,) = problem.train([run], chosen.spec.last_step, progress)
        if record.diverged_at is not None:
            raise InputError(f"training diverged at step {record.diverged_at}; lower learning_rate")
        self.spec_ = run.spec
        self.input_scaling_, self.target_scaling_ = run.units
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

    def _describe_selection(self, left_out: bool) -> str:
        if left_out:
            return "chosen by the loss on each training environment left out in turn"
        if self.candidates is None or len(self.candidates) == 1:
            stopped = ", stopped where the loss on held-out rows was least"
            return "given or default hyper-parameters" + (stopped if self.early_stopping else "")
        reason = (
            f"candidates need three environments or more to choose from, there are "
            f"{self.n_environments_}: default hyper-parameters are taken"
        )
        warnings.warn(reason, stacklevel=4)
        return reason

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


def _seed(random_state: Any) -> int:
    """An integer is the seed of the run itself; anything else draws one."""
    random = check_random_state(random_state)
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(random.randint(2**31 - 1))


def _warn_of_small(weights: np.ndarray) -> None:
    """Weights that sum to one would let the decay of the predictor's weights win over all rows."""
    total = weights.sum()
    if 0 < total < SMALL * len(weights):
        warnings.warn(
            f"sample_weight sums to {total:.3g} for {len(weights)} rows: weights are how often a "
            "row counts, and so few rows hardly move a predictor; multiply them by "
            f"{len(weights) / total:.3g} to count every row once on average",
            stacklevel=4,
        )
