"""Registry of the objectives: name, label, colour and class.

Estimators, help texts, figures and benchmarks are derived from this table. It imports nothing, so
the command line can name the objectives without delay. A new objective needs its file in
`objectives/` and one line here.
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
    """Entry of one objective; `objectives/<name>.py` holds a class with the name of the label."""

    name: str
    label: str
    colour: str
    about: str  # completes the first line of an estimator's help

    @property
    def objective(self) -> "type[Objective]":
        """Class of the objective. Imports PyTorch."""
        found: type[Objective] = getattr(import_module(f"wri.objectives.{self.name}"), self.label)
        return found


OBJECTIVES = {
    entry.name: entry
    for entry in (
        ObjectiveEntry("erm", "ERM", GREY, "empirical risk minimisation over all environments"),
        ObjectiveEntry("irm", "IRM", ORANGE, "invariant risk minimisation"),
        ObjectiveEntry("vrex", "VREx", SKY, "variance risk extrapolation"),
        ObjectiveEntry("groupdro", "GroupDRO", PURPLE, "distributionally robust optimisation"),
        ObjectiveEntry("mixup", "Mixup", YELLOW, "interpolation between environments"),
        ObjectiveEntry("mldg", "MLDG", BLACK, "meta-learning for domain generalisation"),
        ObjectiveEntry("coral", "CORAL", BLUE, "alignment of means and covariances of Φ(x)"),
        ObjectiveEntry("wri", "WRI", VERMILLION, "weighted risk invariance"),
    )
}

BOOSTED = ("erm", "irm", "vrex", "groupdro", "wri")
"""Objectives of boosted trees: those whose penalty depends on the losses only."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmEntry:
    """Algorithm that `wri fit` compares: an objective with a predictor."""

    name: str
    label: str
    colour: str
    objective: str
    estimator: str  # name of its estimators without Classifier or Regressor

    @property
    def boosted(self) -> bool:
        """Whether the predictor is boosted trees."""
        return self.name != self.objective


def _darker(colour: str) -> str:
    """Return the colour of an objective's trees."""
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
"""Algorithms by name: networks of all objectives, then trees."""
