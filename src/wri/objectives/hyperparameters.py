"""Hyper-parameters: ranges, defaults and distributions.

Each objective lists its own; `COMMON` belongs to every run. Each preset (`wri.presets`) sets a
value as a number or as a rule on the size of the fit; unset values fall back to `domainbed`.
Changes of a preset beyond numbers are in each objective's `presets`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import Protocol

import numpy as np

from wri.errors import InputError, check_size
from wri.objectives import table_rules
from wri.objectives.table_rules import FitSize
from wri.presets import FALLBACK, find_preset

Rule = Callable[[FitSize], float]


class Distribution(Protocol):
    """Protocol of a random draw, given the default."""

    def __call__(self, random: np.random.RandomState, default: float) -> float: ...


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


COMMON = (
    HyperParameter(
        name="learning_rate",
        meaning="step size of Adam",
        settings={
            "domainbed": Setting(1e-2, LogUniform(5e-3, 1e-1)),
            "simulation": Setting(0.04),
            "coloured": Setting(1e-2, LogUniform(5e-3, 3e-2)),
            "table": Setting(table_rules.learning_rate, AroundDefault(3.0)),
        },
        low=1e-12,
        of_steps=True,
    ),
    HyperParameter(
        name="final_rate",
        meaning="share of the step size at the end, along half a cosine; 1 keeps it constant",
        settings={"domainbed": Setting(1.0), "coloured": Setting(0.0), "table": Setting(0.0)},
        high=1.0,
        of_steps=True,
    ),
    HyperParameter(
        name="weight_decay",
        meaning="added to the gradient, times the parameters",
        settings={
            "domainbed": Setting(0.0, LogUniform(1e-6, 1e-2)),
            "cmnist": Setting(0.0),
            "simulation": Setting(1e-5),
            "coloured": Setting(0.0),
            "table": Setting(table_rules.weight_decay, LogUniform(1e-4, 1e-1)),
        },
    ),
    HyperParameter(
        name="batch_size",
        meaning="rows per environment and step; a smaller environment is used completely",
        settings={
            "domainbed": Setting(256, LogUniform(2**6, 2**11, whole=True)),
            "simulation": Setting(2048),
            "coloured": Setting(2048, OneOf((1024, 2048, 4096))),
            "table": Setting(table_rules.batch_size),
        },
        low=2,
        whole=True,
        of_steps=True,
    ),
    HyperParameter(
        name="clip_norm",
        meaning="largest norm of a run's gradient",
        settings={"domainbed": Setting(inf), "simulation": Setting(10.0)},
        low=1e-12,
        of_steps=True,
    ),
)


def annealing(domainbed: Setting, cmnist: Setting) -> tuple[HyperParameter, HyperParameter]:
    """Make the hyper-parameters of when a penalty starts: at one step, or along a ramp."""
    return (
        HyperParameter(
            name="anneal_steps",
            meaning="steps before the weight of the penalty starts to grow",
            settings={
                "domainbed": domainbed,
                "cmnist": cmnist,
                "simulation": Setting(0),
                "coloured": Setting(100, OneOf((0, 50, 100))),
                "table": Setting(table_rules.quarter_of_steps),
            },
            whole=True,
            of_steps=True,
        ),
        HyperParameter(
            name="ramp_steps",
            meaning="steps over which the weight grows from its early value; 0 is a jump",
            settings={
                "domainbed": Setting(0),
                "coloured": Setting(100, OneOf((0, 100, 200))),
                "table": Setting(table_rules.quarter_of_steps),
            },
            whole=True,
            of_steps=True,
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
