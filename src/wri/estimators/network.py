"""Estimators whose predictor is a network, linear by default.

    predict:  X ─► the model's units ─► head(Φ(x)), in float64

What is learned is kept as plain arrays in attributes with a trailing underscore.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from wri.errors import InputError
from wri.estimators.base import EnvironmentEstimator
from wri.estimators.choice import (
    AUTO,
    PRESET,
    CandidateLosses,
    has_penalty_weight,
    preset_penalty_weight,
    split_candidate,
)
from wri.estimators.inputs import RowSplit
from wri.estimators.problem import Problem
from wri.objectives import OBJECTIVES, make_objective
from wri.registry import OBJECTIVES as ENTRIES
from wri.training import Bank, ModelSpec, Record, Run
from wri.training.spec import Solver

OWN_PARAMETERS = ("penalty_weight", "learning_rate", "weight_decay", "batch_size")
"""Hyper-parameters that are also parameters of the constructor."""
LADDER = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""λ that "auto" chooses from, as multiples of the preset's value; 0 is ERM."""
MOST_PATH_COLUMNS = 256  # of a table whose coefficients along λ are kept


def constructor_parameters(spec: ModelSpec) -> dict[str, Any]:
    """Return the constructor's arguments for a specification, without defaults."""
    given = spec.differences()
    parameters: dict[str, Any] = {} if spec.preset == PRESET else {"preset": spec.preset}
    own = ("hidden", "standardise", "solver", "steps", "stop_after")
    parameters |= {name: getattr(spec, name) for name in own if name in given}
    if has_penalty_weight(spec.objective.name):
        parameters["penalty_weight"] = None  # the preset's, or that of hyper: nothing is chosen
    if "hyper" in given:
        parameters["hyper"] = {name: spec.hyper[name] for name in given["hyper"]}
    if "options" in given:
        parameters["options"] = {name: getattr(spec.objective, name) for name in given["options"]}
    return parameters


def python_line(spec: ModelSpec, kind: str) -> str:
    """Return the line of Python that makes the estimator; `kind` is "Classifier" or "Regressor"."""
    label = ENTRIES[spec.objective.name].label
    arguments = [f"{name}={value!r}" for name, value in constructor_parameters(spec).items()]
    return f"{label}{kind}({', '.join(arguments)})"


class PenaltyPath(NamedTuple):
    """Coefficients of a solved linear predictor along λ.

    Attributes
    ----------
    penalty_weights : ndarray of shape (L,)
        λ, ascending; 0 is ERM.
    coefficients : ndarray of shape (L, ...)
        `coef_` for each λ, in the units of the columns.
    intercepts : ndarray of shape (L, ...)
        `intercept_` for each λ.
    left_out : CandidateLosses or None
        Losses at environments left out, by candidate and future; None if λ was not chosen.
    """

    penalty_weights: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    left_out: CandidateLosses | None


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(EnvironmentEstimator):
    """Base class of estimators whose predictor is a network.

    Parameters
    ----------
    environment : str or None, default=None
        Name of the DataFrame column that holds the environment of each row, in place of `groups`
        in `fit`. The column is not a feature, and `predict` does not need it.
    penalty_weight : float, "auto" or None, default=None
        λ, the weight of the penalty beside the risk. None takes the preset's value, a moderate
        one. "auto" chooses among multiples of it, including 0 (ERM), by the rule `choose`. This
        needs at least three environments; with fewer the preset's value is used. Objectives
        without a penalty ignore it.
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
    choose : {"regret", "average"}, default="regret"
        Rule by which candidates and `penalty_weight="auto"` are chosen, at each training
        environment left out in turn. "regret": the least worst relative regret over `futures`.
        "average": the smallest mean loss at environments like these.
    futures : sequence of {"like", "unrelated", "reversed"} or None, default=None
        Futures that "regret" insures against. "like": an environment like these. "unrelated": the
        columns whose relation to the target changes between environments tell nothing.
        "reversed": they tell the opposite. None: all three.
    early_stopping : bool, default=False
        Whether to stop where the loss on left-out environments (with fewer than three, on
        held-out rows) is smallest. Steps before the penalty has its full weight do not count.
        The step size does not decay then.
    validation_fraction : float, default=0.2
        Share of each environment's rows that sets the thresholds of `verdict` and the step of early
        stopping. A predictor that is trained in steps does not learn from them. One that is solved
        learns from all rows; the thresholds are set by one that is solved without them. In an
        environment with fewer than 25 rows all rows are used for both.
    evidence_on : {"outputs", "phi", "x"}, default="outputs"
        What distance from training is measured on. "outputs": the log-odds, or the predicted
        number; far rows are those with extreme predictions. "phi": the last hidden layer. "x": the
        standardised inputs. "phi" and "x" also find unusual combinations of columns that have
        ordinary predictions, including combinations that do not matter for the prediction.
    rare : float, default=0.05
        Share of the training environments' rows that `verdict` calls rare or outside.
    outside : float, default=0.005
        Share of the training environments' rows that `verdict` calls outside; of a classifier's
        rows fewer are, because those that it is unsure of are rare.
    site_spread : bool, default=True
        Whether to train also without each environment in turn (in five groups if there are more
        than five environments). The interval of `score_new_site` needs it. It takes up to five
        times as long as the rest of `fit`. Without it, and without a choice among candidates, no
        `penalty_path_` is kept either.
    random_state : int, RandomState or None, default=0
        Seed of the initial weights, batches and held-out rows. A solved predictor does not depend
        on it.
    n_jobs : int or None, default=None
        Number of stacks of candidates trained at the same time on the CPU. None or 1 does not
        change the number of threads of the process, −1 uses all cores.
    verbose : bool, default=False
        Whether to show a progress bar.
    preset : str, default="table"
        Preset that supplies every setting left at None. "table" has the defaults for tables.
    hidden : tuple of int or None, default=None
        Widths of the hidden layers, for instance `(32, 16)`; `()` makes a linear predictor. The
        preset "table" uses linear predictors, except for CORAL, which aligns hidden layers.
        Linear predictors performed best at new sites of a few thousand rows.
    standardise : bool or None, default=None
        Whether to standardise the inputs, and the target of a regression, with the mean and the
        standard deviation of the training rows.
    solver : {"lbfgs", "adam"} or None, default=None
        "lbfgs" minimises the objective of a linear predictor on all rows, without a seed or a step
        size; it is possible for ERM, IRM, VREx, SD, IGA, Fishr, Anchor and WRI. "adam" trains in
        steps. None: "lbfgs" where it is possible, unless `steps`, `stop_after`, `learning_rate`,
        `batch_size` or `early_stopping` asks for steps.
    steps : int or None, default=None
        Number of training steps. Schedules are made for this number.
    stop_after : int or None, default=None
        Step at which training stops, if it is before `steps`.
    learning_rate : float or None, default=None
        Step size of Adam; the preset's value when None.
    weight_decay : float or None, default=None
        Weight decay of Adam; the preset's value when None.
    batch_size : int or None, default=None
        Rows per environment and step; the preset's value when None. An environment with at most
        `batch_size` rows is used completely in every step.
    device : str, default="auto"
        PyTorch device. "auto" is CUDA if it is available, otherwise the CPU.

    Attributes
    ----------
    environments_ : ndarray of shape (n_environments,)
        Labels of the training environments.
    n_environments_ : int
        Number of training environments.
    n_features_in_ : int
        Number of columns in `fit`, without the environment column.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of these columns, if `X` was a DataFrame with string names.
    spec_ : ModelSpec
        What was trained: objective, hidden layers, units, hyper-parameters, steps.
    hyper_ : Mapping of str to float
        Hyper-parameters of the predictor.
    n_steps_ : int
        Number of training steps taken; 0 for a solved predictor.
    selection_ : str
        How the hyper-parameters were chosen, with the cost and the benefit of the penalty.
    candidate_losses_ : ndarray of shape (n_candidates, n_environments) or None
        Loss on each environment when it was left out; None if none was.
    penalty_weights_ : ndarray of shape (n_candidates,) or None
        λ of each candidate; None if no environment was left out.
    penalty_path_ : PenaltyPath or None
        Coefficients of a solved predictor for several λ, and its losses at environments left out
        if λ was chosen; None for others and for a loaded model.
    evidence_ : Evidence
        Densities of the training environments with the thresholds of `verdict`.
    evidence_on_ : str
        What the evidence sees of a row.
    held_out_ : HeldOutRows
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

    _ladder: ClassVar[tuple[float, ...]] = LADDER

    preset: str = PRESET
    hidden: tuple[int, ...] | None = None
    standardise: bool | None = None
    solver: Solver | None = None
    steps: int | None = None
    stop_after: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    device: str = "auto"

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

    def _problem(self, bank: Bank, rows: RowSplit, seed: int) -> Problem:
        return Problem(bank=bank, rows=rows, seed=seed, device=self.device, n_jobs=self.n_jobs)

    def _spec(self, candidate: Mapping[str, Any]) -> ModelSpec:
        declared = OBJECTIVES[self._objective].hyperparameters()
        given = {name: getattr(self, name) for name in OWN_PARAMETERS}
        given = {name: value for name, value in given.items() if value not in (None, AUTO)}
        own, hyper, options = split_candidate(
            self, candidate, {"hidden": self.hidden}, given, declared
        )
        if self.early_stopping:  # any step may be the last, so the step size must not decay
            hyper.setdefault("final_rate", 1.0)
        spec = ModelSpec.of(
            self._objective,
            preset=self.preset,
            hidden=None if own["hidden"] is None else tuple(own["hidden"]),
            standardise=self.standardise,
            steps=self.steps,
            stop_after=self.stop_after,
            solver=self.solver,
            hyper=hyper,
            options=options,
        )
        in_steps = self.early_stopping or self.steps is not None or self.stop_after is not None
        in_steps |= any(parameter.of_steps and parameter.name in hyper for parameter in declared)
        return spec.in_steps() if self.solver is None and in_steps else spec

    def _plain_erm(self, spec: ModelSpec) -> ModelSpec:
        erm = make_objective("erm")
        known = {parameter.name for parameter in erm.hyperparameters()}
        hyper = {name: value for name, value in spec.hyper.items() if name in known}
        return replace(spec, objective=erm, hyper=hyper)

    def _default_penalty_weight(self) -> float | None:
        return preset_penalty_weight(self._objective, self.preset)

    def _path_specs(self, spec: ModelSpec) -> list[ModelSpec]:
        centre = preset_penalty_weight(spec.objective.name, spec.preset)
        if centre is None or not spec.is_solved or self.n_features_in_ > MOST_PATH_COLUMNS:
            return []
        weights = {centre * factor for factor in LADDER} - {spec.hyper["penalty_weight"]}
        return [
            replace(spec, hyper={**spec.hyper, "penalty_weight": weight})
            for weight in sorted(weights)
        ]

    def _keep_path(
        self, runs: Sequence[Run], records: Sequence[Record], found: CandidateLosses | None
    ) -> None:
        self.penalty_path_ = None
        if len(runs) < 2:
            return
        solved = []
        for run, record in zip(runs, records, strict=True):
            along = copy(self)  # on the same rows, and so in the same units
            along.parameters_ = record.parameters.astype(np.float64)
            solved.append((float(run.hyper["penalty_weight"]), *along._in_user_units()))
        solved.sort(key=lambda each: each[0])
        weights, coefficients, intercepts = zip(*solved, strict=True)
        self.penalty_path_ = PenaltyPath(
            np.array(weights), np.stack(coefficients), np.stack(intercepts), found
        )

    def _take(self, run: Run, record: Record) -> None:
        """Keep the predictor that a run has trained."""
        self.spec_ = run.spec
        self.input_scaling_, self.target_scaling_ = run.units
        self.network_ = record.network
        self.parameters_ = record.parameters.astype(np.float64)
        self.state_ = record.state

    def _prepare(self, features: np.ndarray) -> np.ndarray:
        return self.input_scaling_.apply(features)

    def _outputs(self, prepared: np.ndarray) -> np.ndarray:  # [n, D] -> [n, C]
        """Return the outputs of the network in float64."""
        rows = torch.as_tensor(prepared)[None]
        return self.network_.outputs(torch.as_tensor(self.parameters_)[None], rows)[0].numpy()

    def _represent(self, prepared: np.ndarray, outputs: np.ndarray | None = None) -> np.ndarray:
        if self.evidence_on_ == "outputs":
            return super()._represent(prepared, outputs)
        flat, rows = torch.as_tensor(self.parameters_)[None], torch.as_tensor(prepared)[None]
        return self.network_.views(flat, rows).view(self.evidence_on_)[0].numpy()

    @property
    def coef_(self) -> np.ndarray:
        """Change of the prediction per unit of each column.

        Shapes are those of scikit-learn's linear models. Classifiers have log-odds: `[1, D]` for
        two classes, else `[C, D]`, each class against the mean of all. Regressors have `[D]`.
        """
        return self._in_user_units()[0]

    @property
    def intercept_(self) -> Any:
        """Prediction where all columns are zero: `[1]`, `[C]`, or a number."""
        return self._in_user_units()[1]

    def _in_user_units(self) -> tuple[np.ndarray, Any]:
        """Return coefficients and intercept in the units of the columns."""
        check_is_fitted(self, "network_")
        if hidden := self.network_.widths[1:-1]:
            raise AttributeError(
                f"coef_ and intercept_ exist for linear predictors only; this one has hidden "
                f"layers of {', '.join(map(str, hidden))} units: fit with hidden=()"
            )
        row = torch.as_tensor(self.parameters_)[None]
        standard, bias = (part.numpy()[0, 0] for part in self.network_.packing.views(row))
        weight = standard / self.input_scaling_.scale  # [C, D]
        return self._shape_coefficients(weight, bias[:, 0] - weight @ self.input_scaling_.mean)

    def coef_path(self, ax: Any = None) -> Any:
        """Draw the coefficients of a solved predictor against λ.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on. None: new ones.

        Returns
        -------
        ax : matplotlib Axes
            The axes. Coefficients are per standard deviation of their columns, so that they can be
            compared; with several classes those of the last class are drawn.
        """
        from wri.report.style import draw_path

        check_is_fitted(self, "evidence_")
        path = getattr(self, "penalty_path_", None)
        if path is None:
            raise AttributeError(
                "there is no path of λ: it exists after fit for linear predictors that are solved "
                "with a penalty, such as WRIClassifier()"
            )
        coefficients = path.coefficients.reshape(len(path.penalty_weights), -1)
        coefficients = coefficients[:, -len(self.input_scaling_.scale) :]  # of the last class
        chosen = float(self.hyper_["penalty_weight"])
        standard = coefficients * self.input_scaling_.scale
        return draw_path(ax, path.penalty_weights, standard, self._column_names(), chosen)

    @abstractmethod
    def _shape_coefficients(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, Any]:
        """Turn coefficients of the outputs, `[C, D]` and `[C]`, into those of the prediction."""
