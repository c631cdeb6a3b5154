"""The objectives by name: label, colour and class.

Estimators, help texts, figures and benchmarks are derived from this table. It imports nothing, so
the command line can name the objectives at once. A new objective is its file in `objectives/` and
one line here.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from wri.objectives.base import Objective

# Okabe and Ito's colour-blind-safe palette
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8C8C8C"


class ObjectiveEntry(NamedTuple):
    """One objective: the module `objectives/<name>.py` holds a class called like the label."""

    name: str
    label: str
    colour: str
    about: str  # completes the first line of an estimator's help

    @property
    def objective(self) -> "type[Objective]":
        """The class. Imports PyTorch."""
        found: type[Objective] = getattr(import_module(f"wri.objectives.{self.name}"), self.label)
        return found


OBJECTIVES = {
    entry.name: entry
    for entry in (
        ObjectiveEntry("erm", "ERM", GREY, "minimise the mean risk of the environments"),
        ObjectiveEntry("irm", "IRM", ORANGE, "no environment wants another scale of the outputs"),
        ObjectiveEntry("vrex", "VREx", SKY, "the risks of the environments agree"),
        ObjectiveEntry("groupdro", "GroupDRO", PURPLE, "the worst environments count most"),
        ObjectiveEntry("mixup", "Mixup", YELLOW, "train between rows of two environments"),
        ObjectiveEntry("mldg", "MLDG", BLACK, "a step on some environments helps the others"),
        ObjectiveEntry("coral", "CORAL", BLUE, "Φ(x) has the same mean and covariance everywhere"),
        ObjectiveEntry("wri", "WRI", VERMILLION, "risks agree where both environments have rows"),
    )
}

BOOSTED = ("erm", "irm", "vrex", "groupdro", "wri")
"""Objectives that boosted trees minimise: those whose penalty is one of losses."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmEntry:
    """What `wri fit` compares: an objective with a predictor."""

    name: str
    label: str
    colour: str
    objective: str
    estimator: str  # the name of its estimators, without Classifier or Regressor

    @property
    def boosted(self) -> bool:
        """Whether it grows trees."""
        return self.name != self.objective


def _darker(colour: str) -> str:
    """The colour of an objective's trees beside its networks."""
    return "#" + "".join(f"{int(colour[k : k + 2], 16) * 6 // 10:02X}" for k in (1, 3, 5))


ALGORITHMS = {
    entry.name: AlgorithmEntry(
        name=entry.name,
        label=entry.label,
        colour=entry.colour,
        objective=entry.name,
        estimator=entry.label,
    )
    for entry in OBJECTIVES.values()
} | {
    f"{name}-boosting": AlgorithmEntry(
        name=f"{name}-boosting",
        label=f"{OBJECTIVES[name].label} boosting",
        colour=_darker(OBJECTIVES[name].colour),
        objective=name,
        estimator=f"{OBJECTIVES[name].label}Boosting",
    )
    for name in BOOSTED
}
"""Networks of all objectives, and trees of those that have them."""
