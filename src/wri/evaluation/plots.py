"""Figures of a fit: the insurance curve, scores at sites held out, and risk by coverage."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.evaluation.candidates import CONSTANT, WITHOUT, FitCandidate
from wri.evaluation.changes import SiteWord
from wri.evaluation.held_out import HeldOutScores
from wri.evaluation.verdict import name_candidate, when
from wri.futures import LIKE, REVERSED, UNRELATED
from wri.ood.measures import risk_coverage
from wri.report import style

MOST_SITES = 30  # largest number of sites in a figure, the worst first
LONGEST = 24  # characters of a site's name


def draw_insurance(
    held: HeldOutScores, kept: str, word: SiteWord, axes: Axes | None = None
) -> Axes:
    """Draw the loss if the flagged columns broke against the loss at sites like these.

    Models with a penalty are joined with ERM, from which they start at λ = 0.
    """
    if axes is None:
        with style.figure(style.NARROW, 3.4) as drawn:
            axes = drawn.subplots()
    shown = [c for c in held.candidates if c.is_asked or c.is_plain]
    path = sorted(shown, key=lambda each: each.penalty_weight or 0.0)
    single = [c for c in held.candidates if c.name in (WITHOUT, CONSTANT)]
    x = {c.name: held.losses(c.name, LIKE).mean() for c in held.candidates}
    for future, colour, mark in ((REVERSED, style.VERMILLION, "^"), (UNRELATED, style.BLUE, "o")):
        y = {c.name: held.losses(c.name, future).mean() for c in held.candidates}
        label = when(future, held.columns, word)
        axes.plot([x[c.name] for c in path], [y[c.name] for c in path], color=colour, lw=1)
        every = [*path, *single]
        xs, ys = [x[c.name] for c in every], [y[c.name] for c in every]
        axes.plot(xs, ys, mark, color=colour, ms=5, label=label)
        axes.plot(x[kept], y[kept], mark, color=colour, ms=11, mfc="none")
        if future == REVERSED:
            for c in every:
                text = _short(c, held.columns, c.name == kept)
                place = (x[c.name], y[c.name])
                axes.annotate(text, place, xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.margins(x=0.18, y=0.12)
    axes.set_xlabel(f"{held.loss_name} at {when(LIKE, held.columns, word)}")
    axes.set_ylabel(f"{held.loss_name} otherwise")
    # above the axes, where it hides no name of a point
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, frameon=False)
    return axes


def _short(candidate: FitCandidate, columns: tuple[str, ...], kept: bool) -> str:
    """Return the text beside a point."""
    text = name_candidate(candidate, columns, True)
    if candidate.penalty_weight is not None:
        text = f"λ = {candidate.penalty_weight:g}"
    return f"{text} (kept)" if kept else text


def plot_scores(held: HeldOutScores, models: dict[str, str], kept: str) -> Figure:
    """Draw the score of some models (labels by name) at each site held out.

    Sites are ordered by the score of the kept model, the worst on top.
    """
    order = np.argsort([each.score for each in held.of(kept)])[:MOST_SITES]
    names = [held.environments[k] for k in order]
    height = 1.1 + 0.28 * len(order) * max(1.0, 0.5 * len(models))
    with style.figure(style.NARROW, height) as drawn:
        axes = drawn.subplots()
        for place, name in enumerate(models):
            offset = (place - (len(models) - 1) / 2) * 0.5 / len(models)
            found = [held.of(name)[k] for k in order]
            y, colour = np.arange(len(found)) + offset, colour_of(name)
            axes.hlines(y, [e.low for e in found], [e.high for e in found], color=colour, lw=1.2)
            axes.plot([e.score for e in found], y, "o", color=colour, ms=4, label=models[name])
            axes.axvline(held.mean(name).value, color=colour, lw=0.8, ls="--")
        short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
        style.name_lines(axes, short)
        axes.set_xlabel(f"{held.measure} (95 % interval; dashed: mean)")
        drawn.legend(loc="outside upper left", ncols=2)
    return drawn


def colour_of(model: str) -> str:
    """Return the colour of a model's algorithm."""
    return style.ALGORITHM_COLOURS.get(model.split()[0], style.GREEN)


def plot_risk_coverage(held: HeldOutScores, models: dict[str, str]) -> Figure:
    """Draw the mean loss of the kept rows when the rarest are set aside, at sites held out."""
    with style.figure(style.NARROW, 2.9) as drawn:
        axes = drawn.subplots()
        for name in models:
            rows = held.rows[name]
            curve = risk_coverage(rows.typicality, risk_of(held, name))
            shown = curve.coverage > 0.05  # fewer rows are too noisy
            places = np.unique(np.linspace(0, shown.sum() - 1, 400).astype(int))
            axes.plot(
                100 * curve.coverage[shown][places],
                curve.risk[shown][places],
                color=colour_of(name),
                label=models[name],
            )
        axes.set_xlabel("rows predicted, the most common first (%)")
        axes.set_ylabel("share of errors" if held.classes else "mean squared error")
        axes.set_ylim(bottom=0)
        drawn.legend(loc="outside upper left", ncols=2)
    return drawn


def risk_of(held: HeldOutScores, name: str) -> np.ndarray:  # [n]
    """Return the cost of predicting each row: 1 for a wrong class, or the squared error."""
    rows = held.rows[name]
    return 1 - rows.right if held.classes else rows.losses
