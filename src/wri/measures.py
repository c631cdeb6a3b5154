"""Measures by name: their direction and the tasks they apply to.

A new measure is an entry here, its computation in `training/evaluation.py`, and its value for a
constant prediction in `sweep/data.py` (`constant_measures`). Stores, selections and tables use a
measure by its name and its entry, and need no code. Importable without PyTorch.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from wri.errors import InputError, check_option


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Entry of a measure, for tables and selections."""

    label: str
    about: str
    task: Literal["classes", "two classes", "numbers"]
    higher_is_better: bool = True
    percent: bool = False

    @property
    def factor(self) -> float:
        """Factor from recorded values to those shown in a table."""
        return 100.0 if self.percent else 1.0

    @property
    def sign(self) -> float:
        """Factor that makes larger values better."""
        return 1.0 if self.higher_is_better else -1.0


MEASURES = {
    "accuracy": Measure(
        label="accuracy", about="share of right classes", task="classes", percent=True
    ),
    "loss": Measure(
        label="log-loss", about="mean log-loss", task="classes", higher_is_better=False
    ),
    "auroc": Measure(label="AUROC", about="area under the ROC curve", task="two classes"),
    "squared_error": Measure(
        label="squared error",
        about="mean squared error in the target's unit",
        task="numbers",
        higher_is_better=False,
    ),
    "r2": Measure(label="R²", about="share of the variance explained", task="numbers"),
}


def applicable_measures(classes: int | None) -> tuple[str, ...]:
    """Return the measures for this number of classes; None is for numbers."""
    if classes is None:
        kinds: tuple[str, ...] = ("numbers",)
    else:
        kinds = ("classes", "two classes") if classes == 2 else ("classes",)
    return tuple(name for name, measure in MEASURES.items() if measure.task in kinds)


def check_measure(name: str, recorded: Iterable[str]) -> None:
    """Refuse a measure that does not exist or was not recorded."""
    check_option("measure", name, tuple(MEASURES))
    known = tuple(recorded)
    if name not in known:
        raise InputError(f"{name} was not recorded; there is {', '.join(known) or 'nothing'}")
