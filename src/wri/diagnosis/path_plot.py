"""Picture of coefficients along the path of λ, as known from the lasso."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wri.errors import shorten
from wri.report import style

COLOURS = (
    style.BLUE,
    style.VERMILLION,
    style.GREEN,
    style.ORANGE,
    style.PURPLE,
    style.SKY,
    style.YELLOW,
    style.BLACK,
)
MOST_NAMED = len(COLOURS)  # columns with a label; the others are grey


def draw_path(
    ax: Any,
    penalty_weights: np.ndarray,  # [L]
    coefficients: np.ndarray,  # [L, D]
    names: Sequence[str],
    chosen: float,
) -> Any:
    """Draw one line per column; the columns that change most are named."""
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.figure(figsize=(6.4, 3.6), layout="constrained").subplots()
    change = np.ptp(coefficients, axis=0) + np.abs(coefficients).max(0)
    named = change.argsort(kind="stable")[::-1][:MOST_NAMED]
    at = np.arange(len(penalty_weights))
    for d in set(range(len(names))) - set(named.tolist()):
        ax.plot(at, coefficients[:, d], color=style.GREY, lw=0.8, zorder=1)
    for colour, d in zip(COLOURS, named, strict=False):
        ax.plot(at, coefficients[:, d], color=colour, marker="o", ms=3, label=shorten(names[d]))
    ax.axhline(0, color=style.BLACK, lw=0.6)
    own = int(np.abs(penalty_weights - chosen).argmin())
    ax.axvline(own, color=style.BLACK, lw=0.8, ls=":", zorder=0)
    ax.set_xticks(at, ["0\n(ERM)" if w == 0 else f"{w:g}" for w in penalty_weights])
    ax.set(xlabel="penalty weight λ (dotted: this model)", ylabel="coefficient per SD")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0)
    return ax
