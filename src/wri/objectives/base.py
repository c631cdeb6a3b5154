"""The contract of an objective: one loss per run, written in the paper's terms.

    loss(model, batch, state, context) -> ([R], state)

An objective is a frozen set of options. Numbers that may differ between runs are hyper-parameters,
tensors `[R]` in `context.hyper`. `state` is any value that it carries from step to step. Risks are
means over the last axis, `batch.mean`, so that shorter environments are weighted correctly.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.errors import InputError
from wri.objectives.hyperparameters import COMMON, HyperParameter
from wri.rows import in_proportion
from wri.stacked import AnyNetwork, Loss, Streams, View, Views
from wri.stacked.linear import Combine


class Batch(NamedTuple):
    """Rows of all environments of all runs; `weight` is None if no row is padding."""

    x: Tensor  # [R, E, B, D]
    y: Tensor  # [R, E, B]
    weight: Tensor | None = None  # [R, E, B], sums to one over B; zero on padding
    indices: Tensor | None = (
        None  # [R, E, B], numbers among a run's training rows, if they are some
    )

    def mean(self, values: Tensor) -> Tensor:  # [R, E, B] -> [R, E]
        """Return means over the rows, without padding."""
        return weighted_mean(values, self.weight)


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:  # [..., B] -> [...]
    """Return the mean over the last axis, with weights that sum to one, or without."""
    return values.mean(-1) if weight is None else (values * weight).sum(-1)


class Model(NamedTuple):
    """Networks of a stack at their current parameters."""

    network: AnyNetwork
    flat: Tensor  # [R, P]
    loss: Loss

    def represent(self, x: Tensor) -> Tensor:
        return self.network.represent(self.flat, x)

    def head(self, phi: Tensor) -> Tensor:
        return self.network.head(self.flat, phi)

    def outputs(self, x: Tensor) -> Tensor:
        return self.network.outputs(self.flat, x)

    def views(self, x: Tensor) -> Views:
        return self.network.views(self.flat, x)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss.per_example(self.outputs(x), y)


class StepContext(NamedTuple):
    """One step of a stack: its number, counted from 0, and the hyper-parameters of the runs."""

    step: int
    hyper: HyperValues
    random: Streams


@dataclass(frozen=True, kw_only=True)
class Start:
    """Facts that an objective knows before the first step."""

    seeds: Sequence[int]
    environments: int
    network: AnyNetwork
    dtype: torch.dtype
    device: str
    draws: "Draws"


class DrawnRows(NamedTuple):
    """Rows of n runs, of one step or of several."""

    rows: Tensor  # [n, (S,) E, B], numbers for `Draws.batch`
    indices: Tensor  # [n, (S,) E, B], numbers among a run's training rows
    weight: Tensor | None  # [n, E, B], as in a batch


Cached = Callable[[Hashable, Callable[[], np.ndarray]], np.ndarray]
"""Function from a key and a computation to its result, which may be kept."""


class Draws(ABC):
    """Rows of a stack's runs, for steps beside the predictor's."""

    @property
    @abstractmethod
    def rows_per_step(self) -> int:
        """Number of rows per density step, all environments together."""

    @abstractmethod
    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        """Yield new rows for `steps[k]` density steps of run `runs[k]`; `steps` descends.

        Each part holds some steps of the first n runs, which still have steps to make.
        """

    @abstractmethod
    def batch(self, rows: Tensor) -> Batch:
        """Return features and targets of rows `[n, …]` by their numbers."""

    def features(self, rows: Tensor) -> Tensor:
        """Return the features of rows."""
        return self.batch(rows).x

    @abstractmethod
    def n_learned(self, run: int) -> int:
        """Return the number of a run's training rows."""

    @abstractmethod
    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        """Yield the numbers of all training rows of some runs in parts `[n, …]`, padded."""

    def training_rows(self, run: int) -> "TrainingRows":
        """Return all training rows of a run."""
        raise TypeError("a training loop gives minibatches, not whole environments")

    @abstractmethod
    def split(self, run: int) -> Hashable:
        """Return a key that is equal for runs with the same training rows."""

    def cached(self, run: int, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the result of `make` for a run's rows; it may be kept for other stacks."""
        return make()


class TrainingRows(NamedTuple):
    """All training rows of one run, environment by environment, in the units of the run."""

    all_x: np.ndarray  # [n, D]
    all_y: np.ndarray  # [n], class numbers or floats
    all_weight: np.ndarray  # [n], how often each row counts
    counts: list[int]  # [E], n_e

    @property
    def x(self) -> list[np.ndarray]:  # E of [n_e, D]
        """Features of each environment."""
        return self._split(self.all_x)

    @property
    def y(self) -> list[np.ndarray]:  # E of [n_e]
        """Targets of each environment."""
        return self._split(self.all_y)

    @property
    def weight(self) -> list[np.ndarray]:  # E of [n_e]
        """Weights of each environment."""
        return self._split(self.all_weight)

    def repeated(self) -> "TrainingRows":
        """Return rows repeated by their weights, with weight one."""
        if (self.all_weight == 1).all():
            return self
        parts = [in_proportion(weight) for weight in self.weight]
        starts = np.cumsum([0, *self.counts])
        rows = np.concatenate([own + start for own, start in zip(parts, starts, strict=False)])
        counts = [*map(len, parts)]
        return TrainingRows(self.all_x[rows], self.all_y[rows], np.ones(len(rows)), counts)

    def _split(self, values: np.ndarray) -> list[np.ndarray]:
        return np.split(values, np.cumsum(self.counts)[:-1])


WeighRows = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Weights `[n, K − 1]` of rows `[n, D]`, each with the number `[n]` of its environment."""


class RowForm(NamedTuple):
    """Objective as a function of sums over rows, mean_e R_e + λ · penalty, for the solver."""

    penalty: Combine | None = None  # of the sums, with its slopes; None for ERM
    weigh: WeighRows | None = None  # further weights of rows, times their shares
    scale: bool = False  # whether the penalty depends on the scale of the outputs
    state: Any = None  # what the objective keeps, for one run


Stepped = tuple[Tensor, Any]
"""Loss of each run, `[R]`, and the state of the objective after the step."""


class SideSteps(NamedTuple):
    """Steps of something else than the predictor."""

    rows: int = 1  # per environment and step
    steps: int = 0  # steps at a time
    every: int = 1  # predictor steps between them


class Objective(ABC):
    """Base class of objectives: the loss that a run minimises.

    Subclasses are frozen dataclasses; their fields are the options. They implement `loss` and, if
    needed, the hooks `initial`, `resets_at`, `after_step` and `state_of`.

    Attributes
    ----------
    name : str
        Name in the registry.
    own_hyperparameters : tuple of HyperParameter
        Hyper-parameters besides the common ones.
    least_environments : int
        Smallest number of environments.
    needs_hidden : bool
        Whether a predictor without hidden layers makes no sense.
    presets : mapping of str to mapping
        Options that a preset sets, where they differ from the defaults of the class.
    penalises_losses : bool
        Whether the penalty depends on losses only, so that boosted trees can minimise it.
    tree_penalty_weight : float or None
        Default λ of boosted trees, where it differs from the preset's.
    density : Density or None
        Model of the environments' densities, if there is one.
    density_on : {"x", "phi", "outputs"}
        What the densities see of a row.
    divided : bool
        Whether the loss is divided by max(1, λ).

    Examples
    --------
    >>> from wri.objectives import OBJECTIVES, Objective
    >>> vrex = OBJECTIVES["vrex"]()
    >>> isinstance(vrex, Objective), vrex.name
    (True, 'vrex')
    >>> [parameter.name for parameter in vrex.hyperparameters()][:2]
    ['learning_rate', 'final_rate']
    """

    name: ClassVar[str]
    own_hyperparameters: ClassVar[tuple[HyperParameter, ...]] = ()
    least_environments: ClassVar[int] = 2
    needs_hidden: ClassVar[bool] = False
    """Whether a predictor without hidden layers makes no sense."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options that a preset sets, where they are not the class's defaults."""

    penalises_losses: ClassVar[bool] = False
    """Whether the penalty depends on losses only, so that boosted trees can minimise it."""

    tree_penalty_weight: ClassVar[float | None] = None
    """Default λ of boosted trees, where it differs from the preset's."""

    rows_form: ClassVar[RowForm | None] = None
    """The objective as a function of sums over rows, where it does not depend on the rows."""

    # options with a meaning for others; an objective that has them declares them as fields
    density: Density | None = None
    density_on: View = "x"
    divided: bool = False

    @classmethod
    def preset_options(cls, preset: str, hidden: tuple[int, ...] | None) -> Mapping[str, Any]:
        """Return the options of a preset for a network with these hidden layers.

        Parameters
        ----------
        preset : str
            Name of the preset.
        hidden : tuple of int or None
            Hidden layers; None if they are not known yet.

        Returns
        -------
        options : mapping of str to Any
            Options that differ from the defaults of the class.
        """
        return cls.presets.get(preset, {})

    @property
    def full_batch(self) -> Literal["whole", "shuffled", "resampled"]:
        """How an environment that fits into one batch is used.

        "whole": each row once, in order. "shuffled": each row once, in random order, for objectives
        in which neighbouring rows matter. "resampled": drawn with replacement like a larger
        environment, for objectives whose two halves must be independent.
        """
        return "whole"

    @property
    def is_smooth(self) -> bool:
        """Whether the loss of all rows is smooth and has no draws, so that it can be solved."""
        return False

    def row_form(self, rows: TrainingRows, cached: Cached) -> RowForm | None:
        """Return the objective as a function of sums over rows, by default `rows_form`.

        Parameters
        ----------
        rows : TrainingRows
            All training rows of one run.
        cached : callable
            Takes a key and a function without arguments; returns the function's result, kept for
            runs with the same rows.

        Returns
        -------
        form : RowForm or None
            None: the solver differentiates `loss` automatically.
        """
        return self.rows_form

    @property
    def overhead(self) -> float:
        """Fixed cost per step, in steps of ERM; the runs of a stack share it."""
        return 1.0

    def side_steps(self, hyper: Mapping[str, float]) -> SideSteps:
        """Return the steps between the predictor's steps, for the forecast of the cost.

        Parameters
        ----------
        hyper : mapping of str to float
            Hyper-parameters of a run.

        Returns
        -------
        steps : SideSteps
            Number and size of the steps.
        """
        return SideSteps()

    @classmethod
    def hyperparameters(cls) -> tuple[HyperParameter, ...]:
        """Return all hyper-parameters, the common ones first.

        Returns
        -------
        parameters : tuple of HyperParameter
            Hyper-parameters of the objective.
        """
        return COMMON + cls.own_hyperparameters

    def check(self, values: Mapping[str, float]) -> None:
        """Refuse hyper-parameters that contradict each other.

        Parameters
        ----------
        values : mapping of str to float
            Hyper-parameters of a run.

        Raises
        ------
        InputError
            If values contradict each other.
        """

    def initial(self, start: Start) -> Any:
        """Return the state before the first step.

        Parameters
        ----------
        start : Start
            Seeds, environments, network and rows of the stack.

        Returns
        -------
        state : Any
            State of all runs; None by default.
        """
        return None

    @abstractmethod
    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        """Compute the loss of each run.

        Parameters
        ----------
        model : Model
            Networks of the stack at their current parameters.
        batch : Batch
            Rows of all environments, `[R, E, B, D]`.
        state : Any
            State after the last step.
        context : StepContext
            Number of the step and hyper-parameters.

        Returns
        -------
        losses : Tensor of shape (R,)
            Loss per run.
        state : Any
            State after this step.
        """

    def freeze_weights(self, batch: Batch, state: Any) -> Any:
        """Prepare for steps whose batches all hold the same rows, such as rounds of trees.

        Parameters
        ----------
        batch : Batch
            The rows of every step.
        state : Any
            State before the first step.

        Returns
        -------
        state : Any
            The state with everything that is computed once; by default the same state.
        """
        return state

    def resets_at(self, hyper: HyperValues) -> Tensor | None:  # [R]
        """Return the step before which a run's Adam starts again.

        Parameters
        ----------
        hyper : mapping of str to Tensor
            Hyper-parameters of the runs.

        Returns
        -------
        steps : Tensor of shape (R,) or None
            Step per run, by default the annealing step; None for no reset.
        """
        return hyper.get("anneal_steps")

    def after_step(self, model: Model, state: Any, context: StepContext, draws: Draws) -> Any:
        """Do what happens between the predictor's steps, such as density steps.

        Parameters
        ----------
        model : Model
            Networks of the stack at their current parameters.
        state : Any
            State after the predictor's step.
        context : StepContext
            Number of the step and hyper-parameters.
        draws : Draws
            Source of rows.

        Returns
        -------
        state : Any
            State afterwards.
        """
        return state

    def state_of(self, state: Any, run: int) -> Any:
        """Return the part of one run's state that is kept after training.

        Parameters
        ----------
        state : Any
            State of all runs.
        run : int
            Number of the run in its stack.

        Returns
        -------
        kept : Any
            State to keep; None by default.
        """
        return None

    def weighted_columns(self, kept: Any, width: int) -> np.ndarray | None:
        """Return the columns by which the objective weights rows of environments that overlap.

        Parameters
        ----------
        kept : Any
            State of one run after training, from `state_of`; None if it is not known.
        width : int
            Number of columns that the weights see.

        Returns
        -------
        columns : ndarray of bool of shape (width,) or None
            None, the default: rows are not weighted, so the environments need not overlap.
        """
        return None


class PenaltyObjective(Objective):
    """Base class of objectives of the form mean_e R_e + λ · penalty."""

    @abstractmethod
    def penalty(self, model: Model, batch: Batch, views: Views) -> Tensor:  # [R]
        """Return the penalty at what the network makes of the rows."""

    def loss(self, model: Model, batch: Batch, state: Any, context: StepContext) -> Stepped:
        views = model.views(batch.x)  # [R, E, B, …] each
        risks = batch.mean(model.loss.per_example(views.outputs, batch.y))  # [R, E]
        penalty = self.penalty(model, batch, views)
        return risks.mean(-1) + scheduled(context, 0.0) * penalty, state


def penalised(risk: Tensor, weight: Tensor, penalty: Tensor, divided: bool) -> Tensor:  # [R]
    """Return risk + λ · penalty; if `divided`, over max(1, λ): a large λ takes small steps."""
    loss = risk + weight * penalty
    return loss / weight.clamp_min(1) if divided else loss


def halves(values: Tensor) -> tuple[Tensor, Tensor]:  # [..., B] -> twice [..., B/2]
    """Return every second example and the others."""
    if values.shape[-1] < 2:
        raise InputError(
            f"form='halves' needs two rows per environment, but the batch size is "
            f"{values.shape[-1]}; use form='square'"
        )
    return values[..., ::2], values[..., 1::2]


def half_weights(weight: Tensor | None) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Return the weights of the two halves, each with sum one."""
    if weight is None:
        return None, None
    first, second = halves(weight)
    sums = first.sum(-1, keepdim=True), second.sum(-1, keepdim=True)  # [..., E, 1]
    empty = (sums[0] == 0) | (sums[1] == 0)
    if empty.any():
        environment = int(empty.nonzero()[0, -2]) if empty.dim() > 1 else 0
        raise InputError(
            f"form='halves' needs rows with weight in both halves of each environment's batch, but "
            f"environment {environment} has too few rows; use form='square'"
        )
    return first / sums[0], second / sums[1]


def scheduled(context: StepContext, before: float) -> Tensor:  # [R]
    """Return λ at this step: `before` until the annealing step, then along the ramp up to λ."""
    hyper = context.hyper
    if "anneal_steps" not in hyper:
        return hyper["penalty_weight"]
    since = context.step - hyper["anneal_steps"]
    grown = ((since + 1) / hyper["ramp_steps"].clamp_min(1)).clamp(0, 1)
    weight = before + grown * (hyper["penalty_weight"] - before)
    return torch.where(since >= 0, weight, before)
