"""What is minimised: eight objectives on one contract."""

from typing import Any

from wri.errors import InputError, check_option
from wri.objectives.base import Objective
from wri.objectives.coral import CORAL
from wri.objectives.erm import ERM
from wri.objectives.groupdro import GroupDRO
from wri.objectives.hyperparameters import PRESETS
from wri.objectives.irm import IRM
from wri.objectives.mixup import Mixup
from wri.objectives.mldg import MLDG
from wri.objectives.vrex import VREx
from wri.objectives.wri import WRI

OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective for objective in (ERM, IRM, VREx, GroupDRO, Mixup, MLDG, CORAL, WRI)
}


def make_objective(name: str, preset: str = "domainbed", **options: Any) -> Objective:
    """The objective of that name as a preset has it, with further options."""
    check_option("preset", preset, PRESETS)
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}; choose one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name](**{**OBJECTIVES[name].presets.get(preset, {}), **options})


__all__ = [
    "CORAL",
    "ERM",
    "IRM",
    "MLDG",
    "OBJECTIVES",
    "WRI",
    "GroupDRO",
    "Mixup",
    "Objective",
    "VREx",
    "make_objective",
]
