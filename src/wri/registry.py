"""Registry of the objectives: name, label, colour and class.

Estimators, help texts, figures and benchmarks are derived from this table. It imports nothing, so
the command line can name the objectives without delay. A new objective needs its file in
`objectives/` and one line here.
"""

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
