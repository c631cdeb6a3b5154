"""Objectives of training: ERM, IRM, VREx, GroupDRO, Mixup, MLDG, CORAL and WRI.

`from wri.objectives import WRI` imports a class by its label.
"""

from dataclasses import fields
from typing import Any

from wri.errors import InputError, check_option, check_size
from wri.objectives.base import Objective
from wri.presets import FALLBACK, PRESETS
from wri.registry import OBJECTIVES as ENTRIES

OBJECTIVES: dict[str, type[Objective]] = {name: entry.objective for name, entry in ENTRIES.items()}
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


__all__ = ["OBJECTIVES", "Objective", "make_objective"]
