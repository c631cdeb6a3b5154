"""Tasks of experiments, and the options that an experiment declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from wri.errors import InputError, check_option
from wri.progress import Progress, silent


@dataclass(frozen=True, kw_only=True)
class Option:
    """Option of an experiment, for the command line and for `ExperimentTask`."""

    name: str
    kind: Any  # bool, int, str, or a Literal of the allowed values
    help: str
    default: Any = None  # None lets the experiment choose
    least: int | None = None
    flags: str = ""  # on the command line, if not --name

    @property
    def values(self) -> tuple[str, ...]:
        """Allowed values of a Literal; empty for other kinds."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def flag(self) -> str:
        """Flags on the command line."""
        return self.flags or f"--{self.name}"

    def check(self, value: Any) -> None:
        """Refuse a value that is not allowed; None is always allowed."""
        if value is None:
            return
        if self.values:
            check_option(self.name, value, self.values)
        elif not isinstance(value, self.kind):
            raise InputError(f"{self.name} must be of type {self.kind.__name__}, not {value!r}")
        elif self.least is not None and value < self.least:
            raise InputError(f"{self.name} must be at least {self.least}, not {value}")


@dataclass(frozen=True, kw_only=True)
class ExperimentTask:
    """Task of running one experiment at one of two sizes."""

    name: str  # in `EXPERIMENTS`
    folder: Path  # of figures and stores
    outputs: tuple[str, ...] = ()  # tables and figures; all of the experiment if empty
    full: bool = False  # the paper's size
    seed: int = 0  # the first
    progress: Progress = silent
    options: Mapping[str, Any] = field(default_factory=dict)
