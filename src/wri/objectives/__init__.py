"""Objectives of training: WRI and its baselines, by the table in `wri.registry`.

`from wri.objectives import WRI` imports a class by its label.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from wri.errors import InputError, check_option, check_size
from wri.objectives.base import Objective
from wri.objectives.plugins import load_installed, register
from wri.presets import FALLBACK, PRESETS
from wri.registry import OBJECTIVES as ENTRIES


class _Classes(Mapping[str, type[Objective]]):
    """Classes of the registry's entries, also of those that are registered later."""

    def __getitem__(self, name: str) -> type[Objective]:
        return ENTRIES[name].objective

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


OBJECTIVES: Mapping[str, type[Objective]] = _Classes()
"""Classes of the objectives by name."""


def make_objective(
    name: str, preset: str = FALLBACK, hidden: tuple[int, ...] | None = None, **options: Any
) -> Objective:
    """Make an objective by name, with the options of a preset and further options.

    Parameters
    ----------
    name : str
        Name in the registry, for instance "wri".
    preset : str, default="domainbed"
        Preset that supplies the options not given.
    hidden : tuple of int or None, default=None
        Hidden layers of the network; options of a preset may depend on them.
    **options : Any
        Fields of the objective.

    Returns
    -------
    objective : Objective
        The objective.

    Raises
    ------
    InputError
        If the name, the preset or an option is unknown.

    Examples
    --------
    >>> from wri.objectives import make_objective
    >>> make_objective("irm", form="square")
    IRM(form='square', early_weight=1.0, divided=False)
    """
    check_option("preset", preset, tuple(PRESETS))
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}; choose one of {', '.join(OBJECTIVES)}")
    kind = OBJECTIVES[name]
    known = sorted(field.name for field in fields(kind))  # type: ignore[arg-type]
    for option, value in options.items():
        check_size(option, value)
        if option not in known:
            raise InputError(
                f"{name} has no option {option!r}; it has {', '.join(known) or 'none'}"
            )
    return kind(**{**kind.preset_options(preset, hidden), **options})


def __getattr__(label: str) -> Any:
    for entry in ENTRIES.values():
        if entry.label == label:
            return entry.objective
    raise AttributeError(f"module 'wri.objectives' has no attribute {label!r}")


__all__ = ["OBJECTIVES", "Objective", "make_objective", "register"]
load_installed()
