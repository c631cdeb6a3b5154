"""Style of all figures: colour-blind-safe, with one colour per algorithm.

Matplotlib is imported when a figure is drawn: estimators and diagnoses start without it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from warnings import catch_warnings, filterwarnings

import numpy as np

from wri.errors import shorten
from wri.registry import ALGORITHMS
from wri.registry import BLACK as BLACK
from wri.registry import BLUE as BLUE
from wri.registry import GREEN as GREEN
from wri.registry import GREY as GREY
from wri.registry import ORANGE as ORANGE
from wri.registry import PURPLE as PURPLE
from wri.registry import SKY as SKY
from wri.registry import VERMILLION as VERMILLION
from wri.registry import YELLOW as YELLOW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALGORITHM_COLOURS = {name: entry.colour for name, entry in ALGORITHMS.items()}
ALGORITHM_NAMES = {name: entry.label for name, entry in ALGORITHMS.items()}
CLASS_COLOURS = (BLUE, VERMILLION)
CLASS_SHADES = ("#B9D6EA", "#FFFFFF", "#F6D0B3")
ENVIRONMENT_COLOURS = (GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW)
PATH_COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, YELLOW, BLACK)

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 160,
    "pdf.fonttype": 42,
    "svg.hashsalt": "wri",  # ids in SVG files are the same for the same figure
}
NARROW = 4.4
"""Width in inches of figures that a phone shows without scrolling; panels are stacked."""


@contextmanager
def figure(width: float, height: float) -> "Iterator[Figure]":
    """Make an empty figure in the style of the package, `width` by `height` inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def figure_of(axes: "Axes") -> "Figure":
    """Return the figure that axes belong to."""
    return cast("Figure", axes.get_figure(root=True))


def name_lines(axes: "Axes", names: Sequence[str]) -> None:
    """Name lines 0, 1, … of the vertical axis, from top to bottom."""
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def draw_path(
    ax: Any,
    penalty_weights: np.ndarray,  # [L]
    coefficients: np.ndarray,  # [L, D]
    names: Sequence[str],
    chosen: float,
) -> Any:
    """Draw coefficients along the path of λ; the columns that change most are named."""
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.figure(figsize=(6.4, 3.6), layout="constrained").subplots()
    change = np.ptp(coefficients, axis=0) + np.abs(coefficients).max(0)
    order = change.argsort(kind="stable")[::-1]
    at = np.arange(len(penalty_weights))
    for d in order[len(PATH_COLOURS) :]:
        ax.plot(at, coefficients[:, d], color=GREY, lw=0.8, zorder=1)
    for colour, d in zip(PATH_COLOURS, order, strict=False):
        ax.plot(at, coefficients[:, d], color=colour, marker="o", ms=3, label=shorten(names[d]))
    ax.axhline(0, color=BLACK, lw=0.6)
    own = int(np.abs(penalty_weights - chosen).argmin())
    ax.axvline(own, color=BLACK, lw=0.8, ls=":", zorder=0)
    ax.set_xticks(at, ["0\n(ERM)" if w == 0 else f"{w:g}" for w in penalty_weights])
    ax.set(xlabel="penalty weight λ (dotted: this model)", ylabel="coefficient per SD")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0)
    return ax


def save(drawn: "Figure", folder: Path, name: str) -> list[Path]:
    """Write PNG, PDF and SVG and return the paths. Equal figures give equal files."""
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with rc_context(_STYLE):
        for kind, about in metadata.items():
            drawn.savefig(folder / f"{name}.{kind}", metadata=about)
    return [folder / f"{name}.{kind}" for kind in metadata]


def as_svg(drawn: "Figure") -> str:
    """Return the figure as an SVG document for a browser, the same for equal figures.

    Text stays text, so that the reader's fonts draw letters that the figure's font lacks.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = StringIO()
    with rc_context({**_STYLE, "svg.fonttype": "none"}), catch_warnings():
        filterwarnings("ignore", message="Glyph .* missing from")
        # `savefig` would draw it twice
        FigureCanvasSVG(drawn).print_svg(file, metadata={"Date": None})
    return file.getvalue()
