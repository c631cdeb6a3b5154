"""Objectives and densities from outside the package.

    register(MyObjective)                    in Python
    [project.entry-points."wri.objectives"]  in an installed distribution
    WRI_PLUGINS=mine.py, --plugin mine.py    for the command line and the processes that it starts

A registered objective has a name like those of the package: sweeps, estimators and saved models
find it.
"""

import os
import re
import sys
import warnings
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from inspect import getdoc, isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from wri.densities import DENSITIES, Density
from wri.errors import InputError, shorten
from wri.objectives.base import Objective
from wri.registry import GREEN, OBJECTIVES, ObjectiveEntry, add_objective

GROUP = "wri.objectives"
VARIABLE = "WRI_PLUGINS"
"""Environment variable with modules or files, separated like the folders of PATH."""

Kind = TypeVar("Kind", bound=type)


def register(kind: Kind, *, label: str | None = None, colour: str = GREEN) -> Kind:
    """Make an objective or a density known by its name, as if it were in the package.

    Parameters
    ----------
    kind : type
        Frozen dataclass that derives from `wri.objectives.Objective` or `wri.densities.Density`.
        The first line of its docstring completes the help of its estimators.
    label : str or None, default=None
        Label of an objective in tables and estimators. None: the name of the class.
    colour : str, default="#009E73"
        Colour of an objective in figures, such as "#009E73".

    Returns
    -------
    kind : type
        The same class, so that `register` can be used as a decorator.

    Raises
    ------
    InputError
        If the class does not follow the contract, or another one has its name.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import wri
    >>> from wri.densities import Gaussian
    >>> @wri.register
    ... @dataclass(frozen=True)
    ... class NarrowGaussian(Gaussian):
    ...     width: float = 0.5
    >>> from wri.densities import DENSITIES
    >>> DENSITIES.pop("NarrowGaussian") is NarrowGaussian  # and forget it
    True
    """
    if not isinstance(kind, type) or not issubclass(kind, Objective | Density):
        raise InputError(f"register takes a class of objectives or densities, not {kind!r:.60}")
    dataclass_options = getattr(kind, "__dataclass_params__", None)
    if dataclass_options is None or not dataclass_options.frozen:
        raise InputError(f"{kind.__name__} must be a frozen dataclass: @dataclass(frozen=True)")
    if isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise InputError(f"{kind.__name__} lacks {missing}")
    if issubclass(kind, Density):
        _check_free(kind, DENSITIES.get(kind.__name__), f"density {kind.__name__}")
        DENSITIES[kind.__name__] = kind
        return kind
    name = kind.__dict__.get("name")
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise InputError(
            f"{kind.__name__} needs a class attribute name of its own, in small letters, such as "
            f"name = {kind.__name__.lower()!r}"
        )
    label = label or kind.__name__
    entry = OBJECTIVES.get(name)
    if entry is not None and entry.objective is kind:
        return kind  # one of the package, or registered before
    _check_free(kind, None if entry is None else entry.objective, f"objective {name!r}")
    taken = [each.name for each in OBJECTIVES.values() if each.label == label and each.name != name]
    if taken:
        raise InputError(f"the objective {taken[0]!r} has the label {label!r}; give another one")
    about = (getdoc(kind) or kind.__name__).partition("\n")[0].rstrip(".")
    add_objective(ObjectiveEntry(name, label, colour, about, kind=kind), kind.penalises_losses)
    return kind


def _check_free(kind: type, known: type | None, what: str) -> None:
    """Refuse a name that another class has; a class that was defined again replaces the old one."""
    if known is not None and _place(known) != _place(kind):
        raise InputError(f"there is another {what}, {'.'.join(_place(known))}; choose a new name")


def _place(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def load_plugin(name: str) -> None:
    """Import a module by its name or file, and register what it defines and did not register."""
    module = _import(name)
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, Objective | Density)
        and each.__module__ == module.__name__
        and not isabstract(each)
    ]
    if not found:
        raise InputError(f"plugin {shorten(name)} defines no objective and no density")
    for kind in found:
        if kind not in (*DENSITIES.values(), *(entry.kind for entry in OBJECTIVES.values())):
            register(kind)
    # processes that this one starts load it too
    loaded = [each for each in os.environ.get(VARIABLE, "").split(os.pathsep) if each]
    where = str(Path(name).resolve()) if name.endswith(".py") else name
    if where not in loaded:
        os.environ[VARIABLE] = os.pathsep.join([*loaded, where])


def _import(name: str) -> ModuleType:
    """Import a file or a module; modules may lie in the current folder."""
    folder = str(Path(name).resolve().parent if name.endswith(".py") else Path.cwd())
    if folder not in sys.path:  # processes that this one starts look there too
        sys.path.append(folder)
    try:
        if not name.endswith(".py"):
            return import_module(name)
        stem = Path(name).stem
        known: Any = sys.modules.get(stem)
        if known is not None and Path(known.__file__ or "").resolve() == Path(name).resolve():
            return known
        if known is not None:
            raise InputError(f"plugin {shorten(name)} has the name of a module; rename the file")
        spec = spec_from_file_location(stem, name)
        if spec is None or spec.loader is None:
            raise InputError(f"plugin {shorten(name)} cannot be imported")
        module = module_from_spec(spec)
        sys.modules[stem] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[stem]
            raise
        return module
    except InputError:
        raise
    except Exception as error:  # whatever the user's module raises
        message = f"plugin {shorten(name)} cannot be imported: {type(error).__name__}: {error}"
        raise InputError(message) from error


def load_installed() -> None:
    """Register the objectives of installed distributions, and load the plugins of `WRI_PLUGINS`."""
    for point in entry_points(group=GROUP):
        try:
            register(point.load())
        except Exception as error:  # somebody else's package must not break this one
            warnings.warn(
                f"the objective {point.name!r} of {point.value} cannot be used: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
    for name in os.environ.get(VARIABLE, "").split(os.pathsep):
        if name:
            load_plugin(name)
