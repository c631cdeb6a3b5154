"""What is minimised: the objectives of the registry on one contract.

`from wri.objectives import WRI` gives a class by its label.
"""

from dataclasses import fields
from typing import Any

from wri.errors import InputError, check_option
from wri.objectives.base import Objective
from wri.presets import FALLBACK, PRESETS
from wri.registry import OBJECTIVES as ENTRIES

OBJECTIVES: dict[str, type[Objective]] = {name: entry.objective for name, entry in ENTRIES.items()}


def make_objective(
    name: str, preset: str = FALLBACK, hidden: tuple[int, ...] | None = None, **options: Any
) -> Objective:
    """The objective of that name as a preset has it, with further options.

    Parameters
    ----------
    name
        A name in the registry.
    preset
        Sets the options that are not given.
    hidden
        Hidden layers of the network, on which a preset's options may depend.
    **options
        Fields of the objective.
    """
    check_option("preset", preset, tuple(PRESETS))
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}; choose one of {', '.join(OBJECTIVES)}")
    kind = OBJECTIVES[name]
    known = sorted(field.name for field in fields(kind))  # type: ignore[arg-type]
    for option in options:
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
