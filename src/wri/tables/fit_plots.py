"""Figures of a fit: scores at sites held out, and risk by coverage."""

import numpy as np
from matplotlib.figure import Figure

from wri.ood.measures import risk_coverage
from wri.report import style
from wri.tables.choosing import label_of
from wri.tables.held_out import HeldOutScores

MOST_SITES = 30  # largest number of sites in a figure, the worst first
LONGEST = 24  # characters of a site's name


def plot_scores(held: HeldOutScores, kept: str) -> Figure:
    """Draw the score of each algorithm at each site held out, the kept one's worst site on top.

    Parameters
    ----------
    held
        Scores by site.
    kept
        The algorithm by whose scores sites are ordered.
    """
    order = np.argsort([each.score for each in held.of(kept)])[:MOST_SITES]
    names = [held.environments[k] for k in order]
    height = 1.1 + 0.28 * len(order) * max(1.0, 0.5 * len(held.algorithms))
    with style.figure(6.5, height) as drawn:
        axes = drawn.subplots()
        for place, algorithm in enumerate(held.algorithms):
            offset = (place - (len(held.algorithms) - 1) / 2) * 0.5 / len(held.algorithms)
            found = [held.of(algorithm)[k] for k in order]
            y, colour = np.arange(len(found)) + offset, style.ALGORITHM_COLOURS[algorithm]
            axes.hlines(y, [e.low for e in found], [e.high for e in found], color=colour, lw=1.2)
            axes.plot(
                [e.score for e in found], y, "o", color=colour, ms=4, label=label_of(algorithm)
            )
            axes.axvline(held.mean(algorithm).value, color=colour, lw=0.8, ls="--")
        short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
        axes.set_yticks(range(len(short)), short, parse_math=False)
        axes.set_ylim(len(short) - 0.5, -0.5)
        axes.set_xlabel(
            f"{held.measure} at the site held out (95 % interval; dashed: mean of sites)"
        )
        drawn.legend(loc="outside upper left", ncols=4)
    return drawn


def plot_risk_coverage(held: HeldOutScores) -> Figure:
    """Draw the mean loss of the kept rows when the rarest are set aside, at sites held out."""
    with style.figure(6.5, 2.9) as drawn:
        axes = drawn.subplots()
        for algorithm in held.algorithms:
            rows = held.rows[algorithm]
            curve = risk_coverage(rows.rarity, risk_of(held, algorithm))
            shown = curve.coverage > 0.05  # fewer rows are too noisy
            places = np.unique(np.linspace(0, shown.sum() - 1, 400).astype(int))
            axes.plot(
                100 * curve.coverage[shown][places],
                curve.risk[shown][places],
                color=style.ALGORITHM_COLOURS[algorithm],
                label=label_of(algorithm),
            )
        axes.set_xlabel("rows that are predicted, the most common first (%)")
        axes.set_ylabel("share of errors" if held.classes else "mean squared error")
        axes.set_ylim(bottom=0)
        drawn.legend(loc="outside upper left", ncols=4)
    return drawn


def risk_of(held: HeldOutScores, algorithm: str) -> np.ndarray:  # [n]
    """Return the cost of predicting each row: 1 for a wrong class, or the squared error."""
    rows = held.rows[algorithm]
    return 1 - rows.right if held.classes else rows.losses
