"""Registry of the objectives: name, label, colour and class.

Estimators, help texts, figures and benchmarks are derived from this table. It imports nothing, so
the command line can name the objectives without delay. A new objective needs its file in
`objectives/` and one line here; objectives outside the package are added by `wri.register`.
"""

from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wri.objectives.base import Objective

# Okabe and Ito's colour-blind-safe palette
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#8C8C8C"
# further colours, at least as far from these and from each other as sky from blue with trees
INDIGO, WINE, OLIVE, TEAL, ROSE = "#3B1F8C", "#7A1440", "#8A8A1E", "#5FD3BC", "#FF4D6D"
SAND, BROWN, LILAC, LIME = "#E0CDA9", "#6B3E1B", "#B9A3FF", "#9BE22D"


@dataclass(frozen=True)
class ObjectiveEntry:
    """Entry of one objective; `objectives/<name>.py` holds a class with the name of the label."""

    name: str
    label: str
    colour: str
    about: str  # completes the first line of an estimator's help
    _: KW_ONLY
    kind: "type[Objective] | None" = None  # class of an objective outside the package

    @property
    def objective(self) -> "type[Objective]":
        """Class of the objective. Imports PyTorch."""
        if self.kind is not None:
            return self.kind
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
        ObjectiveEntry("sd", "SD", SAND, "spectral decoupling"),
        ObjectiveEntry("eqrm", "EQRM", TEAL, "empirical quantile risk minimisation"),
        ObjectiveEntry("iga", "IGA", INDIGO, "inter-environmental gradient alignment"),
        ObjectiveEntry("iberm", "IBERM", LILAC, "information bottleneck ERM"),
        ObjectiveEntry("ibirm", "IBIRM", BROWN, "information bottleneck IRM"),
        ObjectiveEntry("fishr", "Fishr", LIME, "invariant variances of gradients"),
        ObjectiveEntry("mmd", "MMD", OLIVE, "maximum mean discrepancy of Φ(x)"),
        ObjectiveEntry("clove", "CLOvE", ROSE, "calibration loss over environments"),
        ObjectiveEntry("anchor", "Anchor", WINE, "anchor regression on environments"),
        ObjectiveEntry("wri", "WRI", VERMILLION, "weighted risk invariance"),
    )
}

PAPER = ("erm", "irm", "vrex", "groupdro", "mixup", "mldg", "coral", "wri")
"""Objectives that the paper compares; `wri sweep` trains them unless told otherwise."""

BOOSTED = ("erm", "irm", "vrex", "groupdro", "eqrm", "wri")
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


ALGORITHMS: dict[str, AlgorithmEntry] = {}
"""Algorithms by name: networks of all objectives, then trees."""


def _add_algorithm(entry: ObjectiveEntry, boosted: bool = False) -> None:
    """Add the networks of an objective, or its boosted trees."""
    name = f"{entry.name}-boosting" if boosted else entry.name
    ALGORITHMS[name] = AlgorithmEntry(
        name=name,
        label=f"{entry.label} boosting" if boosted else entry.label,
        colour=_darker(entry.colour) if boosted else entry.colour,
        objective=entry.name,
        estimator=f"{entry.label}Boosting" if boosted else entry.label,
    )


def add_objective(entry: ObjectiveEntry, boosted: bool) -> None:
    """Add an objective, for networks and, if asked for, for boosted trees."""
    OBJECTIVES[entry.name] = entry
    _add_algorithm(entry)
    if boosted:
        _add_algorithm(entry, boosted)


for _entry in OBJECTIVES.values():
    _add_algorithm(_entry)
for _name in BOOSTED:
    _add_algorithm(OBJECTIVES[_name], boosted=True)
