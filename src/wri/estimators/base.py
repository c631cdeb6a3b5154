"""One estimator behind all: environments, standardising, candidates, evidence.

    fit:      rows ─► environments ─► held-out rows aside ─► candidates ─► the chosen one on all
              ─► densities of the representation, thresholds on the held-out rows
    predict:  X ─► standardised ─► head(Φ(x)), in float64

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

from wri.errors import InputError, check_option
from wri.estimators.bar import progress_bar
from wri.estimators.defaults import Task, tabular_hidden, tabular_hyper, tabular_objective
from wri.estimators.environments import read_environments, without_column
from wri.estimators.search import Problem, choose, hold_out
from wri.estimators.verdicts import EvidenceMixin, EvidenceOn
from wri.objectives import Objective
from wri.objectives.hyperparameters import complete
from wri.rows import Environments, refuse_gaps
from wri.stacked import SQUARED, Loss
from wri.training.runs import FEWEST_ROWS

SMALL = 0.1  # mean weight below which weights were hardly meant as counts


class Estimator(EvidenceMixin, BaseEstimator):  # type: ignore[misc]
    """What classifiers and regressors of all objectives share.

    Parameters
    ----------
    environment
        Name of the DataFrame column that says where a row comes from. It is not a feature, and
        `predict` does not need it. In place of `groups` in `fit`.
    hidden
        Widths of the hidden layers, `(32, 16)` for instance. None is a linear predictor, which held
        best at new sites of a few thousand rows; for CORAL, which aligns hidden layers, a network.
    steps
        Steps of training.
    penalty_weight, learning_rate, weight_decay, batch_size
        Hyper-parameters; the objective's default for tables when None. An environment with at
        most `batch_size` rows is used whole at every step.
    hyper
        Further hyper-parameters of the objective by name (`anneal_steps`, `eta`, …).
    options
        Options of the objective (`{"weighting": "density", "density": Mixture()}` for WRI, …).
    candidates
        Hyper-parameters to choose from, a list of dicts like `hyper`: by the loss on each training
        environment left out in turn, which takes three environments or more.
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
        Seed of initial weights, batches and held-out rows.
    device
        "auto" is CUDA where there is one, else the CPU.
    verbose
        Whether to show a progress bar.

    Attributes
    ----------
    environments_, n_environments_
        Labels of the training environments and how many there were.
    hyper_, n_steps_
        Hyper-parameters and steps of the predictor.
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
    objective_, network_, parameters_, state_, input_scaling_, target_scaling_
        What was minimised, the trained network, what the objective kept (WRI's densities), and
        the units of inputs and target.
    """

    __metadata_request__fit: ClassVar[Mapping[str, bool]] = {"groups": True}
    _objective: ClassVar[str]
    _loss: ClassVar[Loss]

    def __init__(
        self,
        *,
        environment: str | None = None,
        hidden: tuple[int, ...] | None = None,
        steps: int = 400,
        penalty_weight: float | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, float]] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.2,
        evidence_on: EvidenceOn = "outputs",
        rare: float = 0.05,
        outside: float = 0.005,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.environment = environment
        self.hidden = hidden
        self.steps = steps
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
        check_option("evidence_on", self.evidence_on, get_args(EvidenceOn))
        if not 0 <= self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must be in [0, 1), not {self.validation_fraction:g}"
            )
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
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            _warn_of_small(weights)
            present = weights > 0
            X, y, weights = X[present], y[present], weights[present]
            environments = environments.take(present)
        targets = self._encode(y)
        self._look_at(environments, targets)
        self.environments_ = environments.labels
        self.n_environments_ = len(environments.labels)

        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        contents = np.column_stack([X, targets])
        rows = hold_out(environments.rows, contents, weights, self.validation_fraction, seed)
        hidden = tabular_hidden(self._objective, self.hidden)
        objective = tabular_objective(self._objective, self.options, hidden)
        given = self._given(objective)
        if self.n_environments_ < objective.least_environments:
            objective = tabular_objective("erm", None, hidden)
        largest = max(len(own) for own in rows.fitted)
        learned = np.concatenate(rows.fitted)
        n_rows = float(len(learned) if weights is None else weights[learned].sum())
        task = Task(largest, n_rows, hidden, self.steps, not self.early_stopping)
        candidates = [tabular_hyper(objective, hyper, task) for hyper in given]
        problem = Problem(
            X,
            targets,
            self._loss,
            self._n_outputs,
            weights,
            rows,
            objective,
            hidden,
            self.steps,
            seed,
            self.device,
        )
        self._train(problem, candidates)
        self._fit_evidence(X, targets, weights, rows)
        return self

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

    def _look_at(self, environments: Environments, targets: np.ndarray) -> None:
        """Refuse environments that are too small, warn of those that say little."""
        name = type(self).__name__
        for label, rows in zip(environments.labels, environments.rows, strict=True):
            if len(rows) < FEWEST_ROWS:
                raise InputError(
                    f"environment {str(label)!r} has {len(rows)} row; at least {FEWEST_ROWS} are "
                    "needed: drop or merge it"
                )
            if self._loss is not SQUARED and len(np.unique(targets[rows])) == 1:
                warnings.warn(
                    f"environment {str(label)!r} holds a single class; its risk says little about "
                    "the others",
                    stacklevel=3,
                )
        if len(environments.labels) == 1 and self._objective != "erm":
            warnings.warn(
                f"{name} compares environments and was given one: it trains plain ERM. Give fit "
                "groups=, or the constructor environment='column'",
                stacklevel=3,
            )

    def _given(self, objective: Objective) -> list[dict[str, float]]:
        """What the constructor says about hyper-parameters, for each candidate."""
        named = {
            "penalty_weight": self.penalty_weight,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
            "batch_size": self.batch_size,
        }
        fixed = {name: value for name, value in named.items() if value is not None}
        fixed |= dict(self.hyper or {})
        if self.candidates is not None and not len(self.candidates):
            raise InputError("candidates is empty; leave it out for the defaults")
        candidates = self.candidates
        if candidates is None or not (self._across or len(candidates) == 1):
            candidates = [{}]
        given = [{**fixed, **candidate} for candidate in candidates]
        for hyper in [*given, *(self.candidates or [])]:
            complete(objective.hyperparameters(), hyper)
        return given

    @property
    def _across(self) -> bool:
        """Whether an environment can be left out and two still be compared."""
        return self.n_environments_ > 2

    def _train(self, problem: Problem, candidates: Sequence[Mapping[str, float]]) -> None:
        several = len(candidates) > 1 or self.early_stopping
        with progress_bar("Choosing", self.verbose and several) as progress:
            chosen = choose(problem, candidates, self.early_stopping, progress)
        self.candidate_losses_ = chosen.losses
        self.selection_ = self._how(chosen.losses is not None)
        everyone = range(self.n_environments_)
        prepared = problem.prepare(everyone)
        run = problem.run(prepared.bank, everyone, chosen.hyper, {})
        with progress_bar("Training", self.verbose) as progress:
            (record,) = problem.train([run], chosen.steps, chosen.steps, progress)
        if record.diverged_at is not None:
            raise InputError(f"training diverged at step {record.diverged_at}; lower learning_rate")
        self.objective_ = problem.objective
        self.hyper_ = dict(run.hyper)
        self.n_steps_ = chosen.steps
        self.input_scaling_, self.target_scaling_ = prepared.inputs, prepared.target
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

    def _how(self, left_out: bool) -> str:
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
