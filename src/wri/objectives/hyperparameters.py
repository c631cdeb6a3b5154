"""The one place that says what a hyper-parameter is: its range, defaults and distributions.

Each objective lists its own; `COMMON` belongs to every run. A preset is a setting with a name:

    domainbed    appendix E.5 of the paper, on DomainBed's pretrained features
    cmnist       the ColoredMNIST family as the paper prints it
    published    the same numbers; WRI's weights as the paper's code ran them
    simulation   the multi-dimensional simulation
    wri          ours for the ColoredMNIST family, for all objectives alike

Where a preset is silent the first one speaks. What a preset changes beyond numbers is in each
objective's `presets`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log10
from typing import Protocol

import numpy as np

from wri.errors import InputError

PRESETS = ("domainbed", "cmnist", "published", "simulation", "wri")
SAME_NUMBERS = {"published": "cmnist"}


class Distribution(Protocol):
    def __call__(self, random: np.random.RandomState) -> float: ...


@dataclass(frozen=True)
class Uniform:
    low: float
    high: float

    def __call__(self, random: np.random.RandomState) -> float:
        return float(random.uniform(self.low, self.high))


@dataclass(frozen=True)
class LogUniform:
    low: float
    high: float
    whole: bool = False

    def __call__(self, random: np.random.RandomState) -> float:
        value = 10 ** random.uniform(log10(self.low), log10(self.high))
        return int(value) if self.whole else float(value)


@dataclass(frozen=True)
class Choice:
    values: tuple[float, ...]

    def __call__(self, random: np.random.RandomState) -> float:
        return self.values[random.choice(len(self.values))]


@dataclass(frozen=True)
class Setting:
    """A preset's default and what it draws from; without a distribution it is fixed."""

    default: float
    distribution: Distribution | None = None


@dataclass(frozen=True)
class HyperParameter:
    name: str
    meaning: str
    domainbed: Setting
    cmnist: Setting | None = None
    simulation: Setting | None = None
    wri: Setting | None = None
    low: float = 0.0
    high: float = inf
    whole: bool = False

    def setting(self, preset: str) -> Setting:
        if preset not in PRESETS:
            raise InputError(f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}")
        return getattr(self, SAME_NUMBERS.get(preset, preset)) or self.domainbed

    def check(self, value: float) -> float:
        """The value, or an error that names the parameter and its range."""
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not number or np.isnan(value):
            raise InputError(f"hyper-parameter {self.name} must be a number, not {value!r}")
        if not self.low <= value <= self.high:
            raise InputError(
                f"hyper-parameter {self.name} = {value:g} lies outside its range "
                f"[{self.low:g}, {self.high:g}]"
            )
        if self.whole and not float(value).is_integer():
            raise InputError(f"hyper-parameter {self.name} = {value:g} must be a whole number")
        if np.isinf(value) and not np.isinf(self.domainbed.default):
            raise InputError(f"hyper-parameter {self.name} must be finite")
        return value


COMMON = (
    HyperParameter(
        "learning_rate",
        "step size of Adam",
        domainbed=Setting(1e-2, LogUniform(5e-3, 1e-1)),
        simulation=Setting(0.04),
        wri=Setting(1e-2, LogUniform(5e-3, 3e-2)),
        low=1e-12,
    ),
    HyperParameter(
        "final_rate",
        "share of the step size that is left at the end, along half a cosine; 1 keeps it",
        domainbed=Setting(1.0),
        wri=Setting(0.0),
        high=1.0,
    ),
    HyperParameter(
        "weight_decay",
        "added to the gradient, times the parameters",
        domainbed=Setting(0.0, LogUniform(1e-6, 1e-2)),
        cmnist=Setting(0.0),
        simulation=Setting(1e-5),
        wri=Setting(0.0),
    ),
    HyperParameter(
        "batch_size",
        "rows of each environment in a step; an environment with no more rows is used whole",
        domainbed=Setting(256, LogUniform(2**6, 2**11, whole=True)),
        simulation=Setting(2048),
        wri=Setting(2048, Choice((1024, 2048, 4096))),
        low=2,
        whole=True,
    ),
    HyperParameter(
        "clip_norm",
        "largest norm of a run's gradient",
        domainbed=Setting(inf),
        simulation=Setting(10.0),
        low=1e-12,
    ),
)


def annealing(domainbed: Setting, cmnist: Setting) -> tuple[HyperParameter, HyperParameter]:
    """When a penalty comes into force: at once at a step, or along a ramp from there."""
    return (
        HyperParameter(
            "anneal_steps",
            "steps before the penalty has its full weight",
            domainbed=domainbed,
            cmnist=cmnist,
            simulation=Setting(0),
            wri=Setting(100, Choice((0, 50, 100))),
            whole=True,
        ),
        HyperParameter(
            "ramp_steps",
            "steps over which the weight then grows from its early value; 0 switches it on",
            domainbed=Setting(0),
            wri=Setting(100, Choice((0, 100, 200))),
            whole=True,
        ),
    )


def complete(
    declared: Iterable[HyperParameter], given: Mapping[str, float], preset: str = "domainbed"
) -> dict[str, float]:
    """`given` checked, and filled up with the preset's defaults."""
    known = {parameter.name: parameter for parameter in declared}
    for name in given:
        if name not in known:
            raise InputError(
                f"unknown hyper-parameter {name!r}; this objective knows {', '.join(sorted(known))}"
            )
    return {
        name: parameter.check(given.get(name, parameter.setting(preset).default))
        for name, parameter in known.items()
    }
