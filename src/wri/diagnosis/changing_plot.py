"""Plot of slopes per environment, for 2 to 100 environments and more."""

from typing import TYPE_CHECKING, Any

import numpy as np

from wri.diagnosis.inputs import short, short_labels
from wri.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ChangingPlot:
    """Plot of a `ChangingFeatures` result."""

    names: tuple[str, ...]
    environments: np.ndarray
    contrasts: tuple[str, ...]
    unit: str
    slopes: np.ndarray
    errors: np.ndarray
    spreads: np.ndarray
    q: np.ndarray
    order: Any
    is_flagged: Any

    def plot(self, most: int = 20, ax: "Axes | None" = None) -> "Figure":
        """Draw the slopes per environment ± two standard errors, the largest change on top.

        Beyond six environments a band shows the middle half of the slopes and each environment is a
        dot; the smallest and the largest have error bars.

        Parameters
        ----------
        most : int, default=20
            Number of features shown, the largest changes first.
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure, at most 9 inches high.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        shown = self.order[:most]
        with style.figure(style.NARROW, min(9, 1.7 + 0.38 * len(shown))) as drawn:
            axes = drawn.subplots() if ax is None else ax
            self._draw(axes, shown)
            if len(self.environments) <= len(style.ENVIRONMENT_COLOURS):
                if ax is None:
                    drawn.legend(loc="outside lower center", ncols=3)
                else:
                    axes.legend(loc="best")
        return drawn if ax is None else axes.get_figure(root=True) or drawn

    def widest(self) -> np.ndarray:  # [D]
        """Return the contrast in which each feature changes most.

        Returns
        -------
        contrast : ndarray of shape (D,)
            Numbers of contrasts.
        """
        return np.lexsort([self.q, self.spreads], axis=0)[-1]

    def _draw(self, axes: "Axes", shown: np.ndarray) -> None:
        number = len(self.environments)
        known = number <= len(style.ENVIRONMENT_COLOURS)  # more colours look alike
        axes.axvline(0, color=style.GREY, linewidth=0.6)
        for place in range(0, len(shown), 2):
            axes.axhspan(place - 0.5, place + 0.5, color="black", alpha=0.04, linewidth=0)
        (self._draw_each if known else self._draw_all)(axes, shown)
        widest = self.widest()
        labels = [self._label(k, widest[k]) for k in shown]
        axes.set_yticks(range(len(shown)), labels, parse_math=False)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        for text, k in zip(axes.get_yticklabels(), shown, strict=True):
            text.set_color(style.VERMILLION if self.is_flagged[k] else style.BLACK)
        axes.set_xlabel(f"slope, {self.unit}\n(± 2 standard errors)")
        hidden = len(self.names) - len(shown)
        title = ["★ changes by more than chance"]
        title += [] if known else [f"one dot per site ({number}), band: middle half"]
        title += [f"{hidden} columns that change less are not shown"] if hidden else []
        axes.set_title("\n".join(title), loc="left")

    def _draw_each(self, axes: "Axes", shown: np.ndarray) -> None:
        """Draw each environment in its own colour."""
        widest, shift = self.widest()[shown], np.linspace(-0.3, 0.3, len(self.environments))
        for e, label in enumerate(short_labels(self.environments)):
            axes.errorbar(
                self.slopes[widest, e, shown],
                np.arange(len(shown)) + shift[e],
                xerr=2 * self.errors[widest, e, shown],
                fmt="o",
                markersize=3.5,
                elinewidth=0.9,
                color=style.ENVIRONMENT_COLOURS[e],
                label=label,
            )

    def _draw_all(self, axes: "Axes", shown: np.ndarray) -> None:
        """Draw dots, sorted per feature; error bars at the extremes end with the axis."""
        seen = self.slopes[self.widest()[shown], :, shown]
        low, high = np.nanmin(seen), np.nanmax(seen)
        margin = 0.25 * max(high - low, 1e-9)
        axes.set_xlim(low - margin, high + margin)
        for place, k in enumerate(shown):
            slopes, errors = (x[self.widest()[k], :, k] for x in (self.slopes, self.errors))
            order = np.argsort(slopes)[: np.isfinite(slopes).sum()]
            heights = place + np.linspace(-0.32, 0.32, len(order))
            low, high = np.nanquantile(slopes, [0.25, 0.75])
            axes.fill_betweenx([place - 0.4, place + 0.4], low, high, color=style.SKY, alpha=0.35)
            colour = style.VERMILLION if self.is_flagged[k] else style.BLACK
            axes.scatter(slopes[order], heights, 5, colour, linewidths=0, zorder=3)
            ends = [0, -1]
            axes.errorbar(
                slopes[order][ends],
                heights[ends],
                xerr=2 * errors[order][ends],
                fmt="none",
                elinewidth=0.7,
                color=colour,
            )

    def _label(self, column: int, contrast: int) -> str:
        among = f"\n({short(self.contrasts[contrast])})" if len(self.contrasts) > 1 else ""
        return f"{'★ ' if self.is_flagged[column] else ''}{short(self.names[column], 30)}{among}"
