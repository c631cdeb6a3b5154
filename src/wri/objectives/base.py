"""The contract of an objective: a loss for each run, written in the paper's terms.

    loss(model, batch, state, context) -> ([R], state)

An objective is a frozen set of options; numbers that runs may differ in are hyper-parameters,
tensors `[R]` in `context.hyper`. What it carries between steps is `state`, any value it likes.
Risks are means over the last axis, `batch.mean`, so a shorter environment counts right.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import HyperValues
from wri.errors import InputError
from wri.objectives.hyperparameters import COMMON, HyperParameter
from wri.stacked import AnyNetwork, Loss, Streams, Views


class Batch(NamedTuple):
    """Rows of every run's environments; `weight` is None when no row is padding."""

    x: Tensor  # [R, E, B, D]
    y: Tensor  # [R, E, B]
    weight: Tensor | None = None  # [R, E, B], sums to one over B; zero on padding
    places: Tensor | None = None  # [R, E, B], numbers among a run's training rows, if they are some

    def mean(self, values: Tensor) -> Tensor:  # [R, E, B] -> [R, E]
        return weighted_mean(values, self.weight)


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:  # [..., B] -> [...]
    """Mean over the last axis, with weights that sum to one or none."""
    return values.mean(-1) if weight is None else (values * weight).sum(-1)


class Model(NamedTuple):
    """The networks of a stack at their current parameters."""

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
    """One step of a stack: its number, counted from 0, and every run's hyper-parameters."""

    step: int
    hyper: HyperValues
    random: Streams


@dataclass(frozen=True, kw_only=True)
class Start:
    """What an objective may know before the first step."""

    seeds: Sequence[int]
    environments: int
    network: AnyNetwork
    dtype: torch.dtype
    device: str
    draws: "Draws"


class DrawnRows(NamedTuple):
    """Rows of n runs, of one step or of some."""

    rows: Tensor  # [n, (S,) E, B], numbers for `Draws.batch`
    places: Tensor  # [n, (S,) E, B], numbers among a run's training rows
    weight: Tensor | None  # [n, E, B], as in a batch


class Draws(ABC):
    """The rows of a stack's runs, for what happens beside the predictor's steps."""

    @property
    @abstractmethod
    def rows_per_step(self) -> int:
        """Rows that a density step takes from all environments together."""

    @abstractmethod
    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        """Fresh rows for `steps[k]` density steps of run `runs[k]`; `steps` descends.

        Each part holds some steps of the first n runs, those that still have steps to go.
        """

    @abstractmethod
    def batch(self, rows: Tensor) -> Batch:
        """Features and targets of rows `[n, …]` by their numbers."""

    def features(self, rows: Tensor) -> Tensor:
        """The features alone."""
        return self.batch(rows).x

    @abstractmethod
    def n_learned(self, run: int) -> int:
        """Number of a run's training rows."""

    @abstractmethod
    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        """Numbers of all training rows of some runs in pieces, `[n, …]`, padded by the first."""

    @abstractmethod
    def environments(self, run: int) -> list[np.ndarray]:
        """A run's whole training environments, `[n_e, D]` each; rows repeat by their weights."""

    @abstractmethod
    def targets(self, run: int) -> list[np.ndarray]:
        """Targets of the same rows, `[n_e]` each: class numbers (integers) or floats."""

    @abstractmethod
    def split(self, run: int) -> Hashable:
        """Equal for runs with the same training rows."""

    def once(self, run: int, key: Hashable, make: Callable[[], np.ndarray]) -> np.ndarray:
        """What `make` gives for a run's rows; it may be kept for runs of other stacks."""
        return make()


class SideSteps(NamedTuple):
    """Steps of something else than the predictor."""

    rows: int = 1  # of each environment, in one of them
    steps: int = 0  # how many at a time
    every: int = 1  # steps of the predictor


class Objective(ABC):
    """What a run minimises."""

    name: ClassVar[str]
    own_hyperparameters: ClassVar[tuple[HyperParameter, ...]] = ()
    least_environments: ClassVar[int] = 2
    needs_hidden: ClassVar[bool] = False
    """Whether a predictor without hidden layers makes no sense."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Options that a preset sets, where they are not the class's defaults."""

    @classmethod
    def preset_options(cls, preset: str, hidden: tuple[int, ...] | None) -> Mapping[str, Any]:
        """Options of a preset for a network with these hidden layers (None: not known yet)."""
        return cls.presets.get(preset, {})

    @property
    def whole(self) -> Literal["whole", "shuffled", "resampled"]:
        """How an environment that fits into a batch is used.

        Every row once, as it is or shuffled (where it matters which rows stand side by side), or
        drawn from with replacement like a larger one (where halves must be independent).
        """
        return "whole"

    @property
    def overhead(self) -> float:
        """Fixed cost of a step, whatever its rows, in steps of ERM: large stacks share it."""
        return 1.0

    def side_steps(self, hyper: Mapping[str, float]) -> SideSteps:
        """What a run does between the predictor's steps, for the forecast of its cost."""
        return SideSteps()

    @classmethod
    def hyperparameters(cls) -> tuple[HyperParameter, ...]:
        return COMMON + cls.own_hyperparameters

    def check(self, values: Mapping[str, float]) -> None:
        """Refuse hyper-parameters that do not fit together."""

    def initial(self, start: Start) -> Any:
        """The state before the first step."""
        return None

    @abstractmethod
    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        """Every run's loss `[R]` and the state after it."""

    def resets_at(self, hyper: HyperValues) -> Tensor | None:  # [R]
        """The step before which a run's Adam is started anew, if any."""
        return None

    def after_step(self, model: Model, state: Any, context: StepContext, draws: Draws) -> Any:
        """What happens between the predictor's steps; the state after it."""
        return state

    def state_of(self, state: Any, run: int) -> Any:
        """What is worth keeping of one run's state when training ends."""
        return None


def penalised(risk: Tensor, weight: Tensor, penalty: Tensor, divided: bool) -> Tensor:  # [R]
    """Risk + λ · penalty, divided by max(1, λ) on request: a large λ then takes small steps."""
    loss = risk + weight * penalty
    return loss / weight.clamp_min(1) if divided else loss


def halves(values: Tensor) -> tuple[Tensor, Tensor]:  # [..., B] -> twice [..., B/2]
    """Every second example and the others."""
    if values.shape[-1] < 2:
        raise InputError(
            f"form='halves' needs two rows of each environment, and the batch size is "
            f"{values.shape[-1]}; use form='square'"
        )
    return values[..., ::2], values[..., 1::2]


def half_weights(weight: Tensor | None) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """Weights of the two halves, each summing to one."""
    if weight is None:
        return None, None
    first, second = halves(weight)
    sums = first.sum(-1, keepdim=True), second.sum(-1, keepdim=True)  # [..., E, 1]
    empty = (sums[0] == 0) | (sums[1] == 0)
    if empty.any():
        environment = int(empty.nonzero()[0, -2]) if empty.dim() > 1 else 0
        raise InputError(
            f"form='halves' needs rows with weight in both halves of each environment's batch, and "
            f"environment {environment} has too few rows; use form='square'"
        )
    return first / sums[0], second / sums[1]


def scheduled(context: StepContext, before: float) -> Tensor:  # [R]
    """λ at this step: `before` until the annealing step, then along the ramp up to λ."""
    hyper = context.hyper
    since = context.step - hyper["anneal_steps"]
    grown = ((since + 1) / hyper["ramp_steps"].clamp_min(1)).clamp(0, 1)
    weight = before + grown * (hyper["penalty_weight"] - before)
    return torch.where(since >= 0, weight, before)
