"""Tasks for experiments, and the options that an experiment declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from wri.errors import InputError, check_option
from wri.progress import Progress, silent


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of an experiment, for the command line and for `ExperimentTask`."""

    name: str
    kind: Any  # bool, int, str, or a Literal of the allowed values
    help: str
    default: Any = None  # None: the experiment chooses
    least: int | None = None  # smallest number
    flags: str = ""  # on the command line, where it is not --name

    @property
    def values(self) -> tuple[str, ...]:
        """The allowed values of a Literal; empty for other kinds."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def flag(self) -> str:
        return self.flags or f"--{self.name}"

    def check(self, value: Any) -> None:
        """Refuse a value that is not allowed. None is the default's place and always allowed."""
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
    """One experiment by its name, at one of two sizes, and which of its outputs are wanted."""

    name: str
    folder: Path  # for figures
    outputs: tuple[str, ...] = ()  # tables and figures by name; all of the experiment's if empty
    full: bool = False  # the paper's size, or a quick look
    seed: int = 0
    progress: Progress = silent
    options: Mapping[str, Any] = field(default_factory=dict)  # those that the experiment declares
