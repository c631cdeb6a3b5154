"""Tasks of experiments, and the options that an experiment declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from wri.errors import InputError, check_option
from wri.progress import Progress, silent


@dataclass(frozen=True, kw_only=True)
class Option:
    """Option of an experiment, for the command line and for `ExperimentTask`.

    Parameters
    ----------
    name : str
        Name of the option.
    kind : type or Literal
        bool, int, str, or a Literal of the allowed values.
    help : str
        Help text.
    default : Any, default=None
        Default value; None lets the experiment choose.
    least : int or None, default=None
        Smallest number.
    flags : str, default=""
        Flags on the command line, if not --name.

    Examples
    --------
    >>> from wri.paper.experiments import Option
    >>> Option(name="width", kind=int, help="Number of features.", least=1).flag
    '--width'
    """

    name: str
    kind: Any  # bool, int, str, or a Literal of the allowed values
    help: str
    default: Any = None
    least: int | None = None
    flags: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """Allowed values of a Literal; empty for other kinds."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def flag(self) -> str:
        """Flags on the command line."""
        return self.flags or f"--{self.name}"

    def check(self, value: Any) -> None:
        """Refuse a value that is not allowed; None is always allowed.

        Parameters
        ----------
        value : Any
            Value of the option.

        Raises
        ------
        InputError
            If the value is not allowed.
        """
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
    """Task of running one experiment at one of two sizes.

    Parameters
    ----------
    name : str
        Key of `EXPERIMENTS`.
    folder : Path
        Folder for figures.
    outputs : tuple of str, default=()
        Names of tables and figures; all of the experiment if empty.
    full : bool, default=False
        Whether to run at the paper's size.
    seed : int, default=0
        First seed.
    progress : callable, default=silent
        Called with (done, of).
    options : mapping of str to Any, default={}
        Options that the experiment declares.

    Examples
    --------
    >>> from pathlib import Path
    >>> from wri.paper.experiments import ExperimentTask
    >>> ExperimentTask(name="figure1", folder=Path("results")).full
    False
    """

    name: str
    folder: Path
    outputs: tuple[str, ...] = ()
    full: bool = False
    seed: int = 0
    progress: Progress = silent
    options: Mapping[str, Any] = field(default_factory=dict)
