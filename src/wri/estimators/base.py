"""Estimators whose predictor is a network, linear by default.

    predict:  X ─► the model's units ─► head(Φ(x)), in float64

What is learned is kept as plain arrays in attributes with a trailing underscore.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch

from wri.errors import InputError
from wri.estimators.choice import Rule
from wri.estimators.common import EnvironmentEstimator
from wri.estimators.linear import CoefficientsMixin
from wri.estimators.search import Problem, RowSplit
from wri.estimators.specs import (
    PRESET,
    PenaltyWeight,
    constructor_parameters,
    make_spec,
    make_specs,
    plain_erm,
)
from wri.rows import Scaling, refuse_gaps
from wri.stacked import Network, Seen
from wri.training import Bank, ModelSpec, Record, Run


class Estimator(CoefficientsMixin, EnvironmentEstimator):
    """What classifiers and regressors of all objectives share, with a network as predictor.

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
        λ, how much the penalty counts beside the risk: a number, the preset's when None, or "auto":
        chosen from a ladder of values around the preset's, 0 (ERM) among them, by the loss on each
        training environment left out in turn. That takes three environments or more; with fewer
        the preset's is kept.
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
        "affordable": the largest λ whose mean loss is within 1 % of the least.
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

    network_: Network
    parameters_: np.ndarray
    input_scaling_: Scaling

    def __init__(
        self,
        *,
        environment: str | None = None,
        preset: str = PRESET,
        hidden: tuple[int, ...] | None = None,
        standardise: bool | None = None,
        steps: int | None = None,
        stop_after: int | None = None,
        penalty_weight: PenaltyWeight = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        batch_size: int | None = None,
        hyper: Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        candidates: Sequence[Mapping[str, Any]] | None = None,
        choose: Rule = "average",
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

    def _check_cells(self, X: np.ndarray) -> None:
        refuse_gaps(X, getattr(self, "feature_names_in_", None))

    def _problem(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weights: np.ndarray | None,
        rows: RowSplit,
        seed: int,
    ) -> Problem:
        bank = Bank(X, targets, loss=self._loss, classes=self._n_outputs, weights=weights)
        return Problem(bank=bank, rows=rows, seed=seed, device=self.device, n_jobs=self.n_jobs)

    def _specs(self, can_choose: bool) -> list[ModelSpec]:
        asked = make_specs(self)
        if len(asked) > 1 and not can_choose:
            asked = [make_spec(self)]
        if self.n_environments_ < asked[0].objective.least_environments:
            return [plain_erm(asked[0])]
        return asked

    def _take(self, run: Run, record: Record) -> None:
        self.spec_ = run.spec
        self.input_scaling_, self.target_scaling_ = run.units
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

    def _prepare(self, features: np.ndarray) -> np.ndarray:
        return self.input_scaling_.apply(features)

    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        rows = torch.as_tensor(prepared)[None]
        return self.network_.outputs(torch.as_tensor(self.parameters_)[None], rows)[0].numpy()

    def _view(self, prepared: np.ndarray) -> np.ndarray:
        return prepared

    def _represent(self, prepared: np.ndarray, outputs: np.ndarray | None = None) -> np.ndarray:
        if self.evidence_on_ == "outputs":
            return super()._represent(prepared, outputs)
        flat, rows = torch.as_tensor(self.parameters_)[None], torch.as_tensor(prepared)[None]
        return self.network_.views(flat, rows).seen(self.evidence_on_)[0].numpy()
