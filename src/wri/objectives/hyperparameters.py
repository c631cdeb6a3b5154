"""Hyper-parameters: ranges, defaults and distributions.

Each objective lists its own; `COMMON` belongs to every run. Each preset (`wri.presets`) sets a
value as a number or as a rule on the size of the fit; unset values fall back to `domainbed`.
Changes of a preset beyond numbers are in each objective's `presets`.

Numbers of the preset `table` that depend on the size of a fit were chosen on simulated hospitals
(`studies/estimator_defaults.py`), not on real data. Adam uses small environments completely, with a
step size along half a cosine. Penalties start after a quarter of the steps and grow over another
quarter. Weight decay acts like k pseudo-rows with target
zero, so small tables are regularised more than large ones. The step size of linear predictors is
large enough to converge. Losses are not divided by λ, because then weight decay would be λ times as
strong beside the risk.

WRI takes overlap weights from a classifier of environments. For a linear predictor it is a logistic
regression that sees the label, and only the part of the shift that does not depend on the label
enters the weights (`studies/table_weights.py`). With hidden layers the classifier sees only Φ(x)
and is fitted again as Φ changes: Φ of an invariant predictor holds nothing spurious, so neither do
the weights. Both are fitted for few steps or with strong weight decay, because sharper weights
leave fewer effective rows.
Pairs of environments count by the square of their overlap, so that pairs without overlap, whose gap
is noise, do not count (`docs/results/insurance.md`).
IRM and WRI square the mean over a whole batch. The product of two half-batches is an unbiased
estimate: the square minus its variance. When the same rows return at every step, a predictor learns
to make that variance large (R² below 0 on simulated sites of 100 rows). WRI's squared gap is
divided by the loss, not by its square, and so has the unit of the risk to which it is added,
however small.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, log10
from typing import NamedTuple

import numpy as np

from wri.errors import InputError, check_size
from wri.presets import FALLBACK, find_preset

WHOLE = 2048  # rows up to which environments are used completely
BATCH = 1024  # otherwise, rows per environment and step
MOST_DECAY = 0.1


class FitSize(NamedTuple):
    """Size of a fit, on which the rules of a preset may depend."""

    weight: float  # training rows of all environments, as many as they weigh
    largest: int  # training rows of the largest environment
    hidden: tuple[int, ...]
    steps: int


def _table_learning_rate(size: FitSize) -> float:
    return 0.01 if size.hidden else 0.1


def _table_weight_decay(size: FitSize) -> float:
    pseudo_rows = 30.0 if size.hidden else 3.0
    return min(pseudo_rows / size.weight, MOST_DECAY)


def _table_batch_size(size: FitSize) -> float:
    return WHOLE if size.largest <= WHOLE else BATCH


def _quarter_of_steps(size: FitSize) -> float:
    return size.steps // 4


Rule = Callable[[FitSize], float]


Distribution = Callable[[np.random.RandomState, float], float]
"""A random draw, given the default."""


@dataclass(frozen=True)
class Uniform:
    """Uniform distribution between two numbers."""

    low: float
    high: float
    whole: bool = False

    def __call__(self, random: np.random.RandomState, default: float) -> float:
        value = random.uniform(self.low, self.high)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class LogUniform:
    """Uniform distribution of the logarithm."""

    low: float
    high: float
    whole: bool = False

    def __call__(self, random: np.random.RandomState, default: float) -> float:
        value = 10 ** random.uniform(log10(self.low), log10(self.high))
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class OneOf:
    """Uniform choice of one of several values."""

    values: tuple[float, ...]

    def __call__(self, random: np.random.RandomState, default: float) -> float:
        return self.values[random.choice(len(self.values))]


@dataclass(frozen=True)
class AroundDefault:
    """Log-uniform distribution from default / factor to default · factor."""

    factor: float

    def __call__(self, random: np.random.RandomState, default: float) -> float:
        return float(default * self.factor ** random.uniform(-1, 1))


@dataclass(frozen=True)
class Setting:
    """Default of a preset and its distribution; without a distribution the value is fixed."""

    default: float | Rule
    distribution: Distribution | None = None

    def resolve(self, size: FitSize | None) -> float:
        """Return the default as a number."""
        if not callable(self.default):
            return self.default
        if size is None:
            raise TypeError("this default depends on the size of the fit")
        return self.default(size)


@dataclass(frozen=True, kw_only=True)
class HyperParameter:
    """Number that may differ between runs of one stack."""

    name: str
    meaning: str
    settings: Mapping[str, Setting]  # by preset
    low: float = 0.0
    high: float = inf
    whole: bool = False
    of_steps: bool = False  # no effect on a predictor that is solved

    def setting(self, preset: str) -> Setting:
        """Return the setting of a preset, or of its fallback."""
        numbers = find_preset(preset).numbers_of or preset
        return self.settings.get(numbers, self.settings[FALLBACK])

    def check(self, value: float) -> float:
        """Return the value, or raise an error that names the parameter and its range."""
        check_size(f"hyper-parameter {self.name}", value)
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or np.isnan(float(value)):
            raise InputError(f"hyper-parameter {self.name} must be a number, not {value!r}")
        if not self.low <= value <= self.high:
            raise InputError(
                f"hyper-parameter {self.name} = {value:g} lies outside its range "
                f"[{self.low:g}, {self.high:g}]"
            )
        if self.whole and not float(value).is_integer():
            raise InputError(f"hyper-parameter {self.name} = {value:g} must be a whole number")
        if np.isinf(value) and self.settings[FALLBACK].default != inf:
            raise InputError(f"hyper-parameter {self.name} must be finite")
        return value


Declared = float | Rule | tuple[float | Rule, Distribution]
"""Default of a preset, or default and distribution."""


def hyperparameter(
    name: str,
    meaning: str,
    *,
    low: float = 0.0,
    high: float = inf,
    whole: bool = False,
    of_steps: bool = False,
    **settings: Declared,  # by preset
) -> HyperParameter:
    """Make a hyper-parameter with one setting per preset."""
    made = {
        preset: Setting(*each) if isinstance(each, tuple) else Setting(each)
        for preset, each in settings.items()
    }
    return HyperParameter(
        name=name,
        meaning=meaning,
        settings=made,
        low=low,
        high=high,
        whole=whole,
        of_steps=of_steps,
    )


penalty_weight = partial(hyperparameter, "penalty_weight")
"""Declaration of λ, by its meaning and settings."""

step_parameter = partial(hyperparameter, of_steps=True)
"""Declaration of a hyper-parameter without effect on a predictor that is solved."""

COMMON = (
    step_parameter(
        "learning_rate",
        "step size of Adam",
        domainbed=(1e-2, LogUniform(5e-3, 1e-1)),
        simulation=0.04,
        coloured=(1e-2, LogUniform(5e-3, 3e-2)),
        table=(_table_learning_rate, AroundDefault(3.0)),
        low=1e-12,
    ),
    step_parameter(
        "final_rate",
        "share of the step size at the end, along half a cosine; 1 keeps it constant",
        domainbed=1.0,
        coloured=0.0,
        table=0.0,
        high=1.0,
    ),
    hyperparameter(
        "weight_decay",
        "added to the gradient, times the parameters",
        domainbed=(0.0, LogUniform(1e-6, 1e-2)),
        cmnist=0.0,
        simulation=1e-5,
        coloured=0.0,
        table=(_table_weight_decay, LogUniform(1e-4, 1e-1)),
    ),
    step_parameter(
        "batch_size",
        "rows per environment and step; a smaller environment is used completely",
        domainbed=(256, LogUniform(2**6, 2**11, whole=True)),
        simulation=2048,
        coloured=(2048, OneOf((1024, 2048, 4096))),
        table=_table_batch_size,
        low=2,
        whole=True,
    ),
    step_parameter(
        "clip_norm",
        "largest norm of a run's gradient",
        domainbed=inf,
        simulation=10.0,
        low=1e-12,
    ),
)


CMNIST_ANNEALING = (500, LogUniform(1, 1e4, whole=True))


def annealing(
    domainbed: Declared, cmnist: Declared = CMNIST_ANNEALING
) -> tuple[HyperParameter, HyperParameter]:
    """Make the hyper-parameters of when a penalty starts: at one step, or along a ramp."""
    return (
        step_parameter(
            "anneal_steps",
            "steps before the weight of the penalty starts to grow",
            domainbed=domainbed,
            cmnist=cmnist,
            simulation=0,
            coloured=(100, OneOf((0, 50, 100))),
            table=_quarter_of_steps,
            whole=True,
        ),
        step_parameter(
            "ramp_steps",
            "steps over which the weight grows from its early value; 0 is a jump",
            domainbed=0,
            coloured=(100, OneOf((0, 100, 200))),
            table=_quarter_of_steps,
            whole=True,
        ),
    )


def complete(
    declared: Iterable[HyperParameter],
    given: Mapping[str, float],
    preset: str = FALLBACK,
    size: FitSize | None = None,
) -> dict[str, float]:
    """Check `given` and fill it up with the preset's defaults."""
    known = {parameter.name: parameter for parameter in declared}
    check_names(known, given)
    return {
        name: parameter.check(
            given[name] if name in given else parameter.setting(preset).resolve(size)
        )
        for name, parameter in known.items()
    }


def check_names(known: Iterable[str], given: Iterable[str]) -> None:
    """Refuse hyper-parameters that an objective does not have."""
    names = sorted(known)
    for name in given:
        if name not in names:
            raise InputError(
                f"unknown hyper-parameter {name!r}; this objective has {', '.join(names)}"
            )
