"""Plot of gaps between pairs of environments."""

from typing import TYPE_CHECKING, Any

import numpy as np

from wri.diagnosis.inputs import short_labels
from wri.number_text import write_number
from wri.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PAIRS = 18
"""Largest number of pairs in a figure."""


class GapPlot:
    """Plot of a `RiskGaps` result."""

    labels: np.ndarray
    pairs: np.ndarray
    gaps: np.ndarray
    intervals: np.ndarray
    weighted_gaps: np.ndarray
    weighted_intervals: np.ndarray
    level: float
    unit: str
    judged: Any

    def plot(self, most: int = MOST_PAIRS, ax: "Axes | None" = None) -> "Figure":
        """Draw both gaps of the pairs of environments, the largest on top.

        Parameters
        ----------
        most : int, default=18
            Number of pairs shown. Pairs with the clearest weighted gap come first, then those with
            the clearest plain gap; pairs with too little overlap come last.
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure, at most 9 inches high.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        shown = self._order()[:most]
        labels = short_labels(self.labels, 20)
        names = [f"{labels[i]} − {labels[j]}" for i, j in self.pairs[shown]]
        height = min(9, 1.3 + 0.4 * len(shown))
        with style.figure(max(style.NARROW, 3.6 + 0.07 * max(map(len, names))), height) as drawn:
            axes = drawn.subplots() if ax is None else ax
            self._draw(axes, shown, names)
        return drawn if ax is None else axes.get_figure(root=True) or drawn

    def _order(self) -> np.ndarray:
        """Order pairs by the clearness of their weighted gap; pairs that cannot be judged last."""
        weighted, plain = (
            np.maximum(intervals[:, 0], -intervals[:, 1])
            for intervals in (self.weighted_intervals, self.intervals)
        )
        return np.lexsort([-plain, -np.where(self.judged, weighted, -np.inf)])

    def _draw(self, axes: "Axes", shown: np.ndarray, names: list[str]) -> None:
        judged, factor = self.judged[shown], 1 if self.unit == "nats" else 100
        everywhere = np.ones(len(shown), bool)
        weighted = (0.15, self.weighted_gaps[shown], self.weighted_intervals[shown])
        plain = (-0.15, self.gaps[shown], self.intervals[shown])
        series = (
            ("risks", style.BLUE, style.BLUE, *plain, everywhere),
            ("weighted risks", style.VERMILLION, style.VERMILLION, *weighted, judged),
            ("weighted, too little overlap", style.VERMILLION, "white", *weighted, ~judged),
        )
        axes.axvline(0, color=style.GREY, linewidth=0.8)
        for name, line, face, offset, gaps, intervals, chosen in series:
            places = np.flatnonzero(chosen) + offset
            if len(places):
                axes.hlines(places, *(factor * intervals[chosen]).T, color=line)
                at = factor * gaps[chosen]
                axes.scatter(at, places, 18, face, edgecolors=line, label=name, zorder=3)
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.5, -0.5)
        unit = "nats" if factor == 1 else "% of the variance of the target"
        axes.set_xlabel(f"gap, {unit}\n({write_number(100 * self.level)} % for all pairs together)")
        hidden = len(self.pairs) - len(shown)
        if hidden:
            axes.set_title(f"{hidden} pairs whose gaps are less clear are not shown", loc="left")
        place = (0, 1.06 if hidden else 1.01)
        axes.legend(loc="lower left", bbox_to_anchor=place, ncols=2, borderaxespad=0)
