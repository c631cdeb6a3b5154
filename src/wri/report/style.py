"""One look for all figures: colour-blind-safe, the same colour for the same algorithm."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from wri.registry import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    OBJECTIVES,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
)

__all__ = [
    "ALGORITHM_COLOURS",
    "ALGORITHM_NAMES",
    "BLACK",
    "BLUE",
    "CLASS_COLOURS",
    "CLASS_MAP",
    "ENVIRONMENT_COLOURS",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "SKY",
    "VERMILLION",
    "YELLOW",
    "figure",
    "save",
]

ALGORITHM_COLOURS = {name: entry.colour for name, entry in OBJECTIVES.items()}
ALGORITHM_NAMES = {name: entry.label for name, entry in OBJECTIVES.items()}
CLASS_COLOURS = (BLUE, VERMILLION)
CLASS_MAP = LinearSegmentedColormap.from_list("classes", ["#B9D6EA", "#FFFFFF", "#F6D0B3"])
ENVIRONMENT_COLOURS = (GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
}


@contextmanager
def figure(width: float, height: float) -> Iterator[Figure]:
    """An empty figure in the style of the package, `width` by `height` inches."""
    with mpl.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG, PDF and SVG; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "pdf", "svg")]
    with mpl.rc_context(_STYLE):
        for path in paths:
            drawn.savefig(path)
    return paths
