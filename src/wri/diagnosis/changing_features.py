"""Which features' relation to y changes between environments, given the other features.

    β_e: slopes of y on all features in environment e,   τ_k: spread of β_ek between environments

Where causes c bring about y and y its markers m, p_e(y | c, m) ∝ p(y | c) p_e(m | y): causes keep
their slopes and markers change theirs, even where causes or prevalence shift. Slopes are y's
factors in log p (`environment_slopes`): log-odds for classes; for numbers those of least squares
over the variance of the noise, since a stronger marker takes weight off the causes in the former.
Several classes are each compared with the most frequent one. P-values of no change, by Cochran's Q,
are multiplied by the number of such contrasts and corrected by Holm for the number of features.

What this cannot see: changes that are no change of a linear slope. What it can mistake: a cause
that is unmeasured, nearly collinear with others or not linear makes other features look changing;
and noise of y that differs between environments makes all slopes of numbers change by one factor.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from wri.diagnosis.environment_slopes import contrast_slopes, holm, number_slopes, spread
from wri.diagnosis.inputs import holds_classes, listed, numbers, read_target, standardised
from wri.errors import InputError
from wri.report import style
from wri.rows import read_sites

LEVEL = 0.05
"""Features with a corrected p-value below this are flagged."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangingFeatures:
    """Slopes of every environment, how far they spread, and whether chance explains it."""

    names: tuple[str, ...]  # [D]
    environments: np.ndarray  # [E], labels
    left_out: tuple[Any, ...]  # labels of environments in which y does not vary
    contrasts: tuple[str, ...]  # [C], what is compared: one but for several classes
    unit: str  # of slopes
    slopes: np.ndarray  # [C, E, D], NaN where an environment lacks a class
    errors: np.ndarray  # [C, E, D], standard errors
    average: np.ndarray  # [C, D]
    spreads: np.ndarray  # [C, D], τ of each contrast
    q: np.ndarray  # [C, D], Cochran's
    p: np.ndarray  # [D], corrected

    @property
    def change(self) -> np.ndarray:  # [D]
        """τ: the standard deviation of slopes between environments, chance taken off."""
        return np.sqrt(np.square(self.spreads).mean(0))

    @property
    def order(self) -> np.ndarray:  # [D]
        """Columns from the largest change down."""
        return np.lexsort([self.p, -self.change])

    @property
    def flagged(self) -> tuple[str, ...]:
        """Features whose slope changes by more than chance, the largest change first."""
        return tuple(self.names[k] for k in self.order if self.p[k] < LEVEL)

    @property
    def meaning(self) -> str:
        """What was found and what to do, in plain words."""
        number, flagged = len(self.environments), self.flagged
        left = ", ".join(str(label) for label in self.left_out)
        without = f" Left out for want of different values of y: {left}." if left else ""
        if not flagged:
            return (
                f"No column's relation to y changes between the {number} environments by more than "
                "chance: one model for all rows should do as well as an invariant one, unless the "
                f"changes are not linear or the rows too few to show them.{without}"
            )
        first = next(k for k in self.order if self.p[k] < LEVEL)
        slopes = self.slopes[self._widest()[first], :, first]
        found = (
            f"Given the other columns, {listed(flagged)} {'relate' if flagged[1:] else 'relates'} "
            f"to y in other ways in some of the {number} environments than in others: the slope of "
            f"{flagged[0]} goes from {np.nanmin(slopes):.2g} to {np.nanmax(slopes):.2g} "
            f"{self.unit}."
        )
        if len(flagged) == len(self.names) > 1:
            return (
                f"{found} That is every column: a cause of y may be missing, or y itself be "
                f"measured in different ways; look there first.{without}"
            )
        one = "them" if flagged[1:] else "it"
        return (
            f"{found} Hold {one} for spurious: ask design_position whether these environments rule "
            f"{one} out, and train an invariant predictor or leave {one} out.{without}"
        )

    def ranking(self) -> pd.DataFrame:
        """Features from the largest change down.

        Returns
        -------
        DataFrame
            `feature`, `change` (τ) and the average `slope`, both in `unit`, and the corrected `p`.
            With several classes the slope is that of the contrast that changes most, and
            `contrast` names it.
        """
        widest, columns = self._widest(), np.arange(len(self.names))
        table = pd.DataFrame(
            {
                "feature": self.names,
                "change": self.change,
                "slope": self.average[widest, columns],
                "p": self.p,
            }
        )
        if len(self.contrasts) > 1:
            table["contrast"] = [self.contrasts[k] for k in widest]
        return table.iloc[self.order].reset_index(drop=True)

    def plot(self, most: int = 20) -> Figure:
        """Each environment's slope ± two standard errors, the `most` changing features on top."""
        shown, widest = self.order[:most], self._widest()
        number, colours = len(self.environments), style.ENVIRONMENT_COLOURS
        known = number <= len(colours)  # more cannot be told apart
        shift = np.linspace(-0.3, 0.3, number)
        with style.figure(6.2, 1.3 + 0.38 * len(shown)) as drawn:
            axes = drawn.subplots()
            axes.axvline(0, color=style.GREY, linewidth=0.6)
            for e, label in enumerate(self.environments):
                slopes = self.slopes[widest[shown], e, shown]
                axes.errorbar(
                    slopes,
                    np.arange(len(shown)) + shift[e],
                    xerr=2 * self.errors[widest[shown], e, shown],
                    fmt="o",
                    markersize=3.5 if known else 2,
                    elinewidth=0.9 if known else 0.4,
                    color=colours[e] if known else style.GREY,
                    label=str(label) if len(str(label)) < 25 else f"{str(label)[:23]}…",
                )
            for place in range(0, len(shown), 2):
                axes.axhspan(place - 0.5, place + 0.5, color="black", alpha=0.04, linewidth=0)
            labels = [self._label(k, widest[k]) for k in shown]
            axes.set_yticks(range(len(shown)), labels, parse_math=False)
            axes.set_ylim(len(shown) - 0.5, -0.5)
            for text, k in zip(axes.get_yticklabels(), shown, strict=True):
                text.set_color(style.VERMILLION if self.p[k] < LEVEL else style.BLACK)
            axes.set_xlabel(f"slope, {self.unit} (± 2 standard errors)")
            hidden = len(self.names) - len(shown)
            title = ["★ changes by more than chance"]
            title += [] if known else [f"a dot for each of {number} environments"]
            title += [f"{hidden} columns that change less are not shown"] if hidden else []
            axes.set_title("\n".join(title), loc="left")
            if known:
                drawn.legend(loc="outside right upper")
        return drawn

    def _label(self, column: int, contrast: int) -> str:
        name = self.names[column]
        name = name if len(name) < 30 else f"{name[:28]}…"
        among = f"\n({self.contrasts[contrast]})" if len(self.contrasts) > 1 else ""
        return f"{'★ ' if self.p[column] < LEVEL else ''}{name}{among}"

    def _widest(self) -> np.ndarray:  # [D]
        """The contrast in which a feature changes most."""
        return np.lexsort([self.q, self.spreads], axis=0)[-1]


def changing_features(X: Any, y: Any, groups: Any, classes: bool | None = None) -> ChangingFeatures:
    """Which features' relation to y changes between environments, given the other features.

    Causes of y keep their slopes where environments differ; what y brings about in different ways
    does not. Several classes are each compared with the most frequent one.

    Parameters
    ----------
    X
        Table of numbers without gaps, DataFrame or array.
    y
        Target of every row: classes or numbers.
    groups
        The environment of every row, any labels.
    classes
        Whether y holds classes. None: it does unless it is of floating point with more than two
        distinct values.

    Returns
    -------
    ChangingFeatures
        Its `meaning` says what was found, `ranking()` and `plot()` show all features, and `flagged`
        can be passed to `design_position`.
    """
    sites = read_sites(X, groups)
    z = standardised(sites.x)
    y = read_target(y, len(z))
    if holds_classes(y, classes):
        unit, parts = "log-odds per SD", contrast_slopes(z, y, sites.environments)
    else:
        unit, parts = "SD of y per SD", {"y": number_slopes(z, numbers(y), sites.environments)}
    parts = {name: part for name, part in parts.items() if part.heard.sum() > 1}
    if not parts:
        raise InputError(
            "y has different values within one environment only, or in none; at least two are "
            "needed to compare: give more rows, or join environments in groups"
        )
    slopes, errors = (np.stack(values) for values in zip(*parts.values(), strict=True))  # [C, E, D]
    average, tau, q, p = (
        np.stack(values) for values in zip(*(spread(part) for part in parts.values()), strict=True)
    )
    heard, labels = ~np.isnan(slopes).all((0, 2)), sites.environments.labels
    return ChangingFeatures(
        names=sites.names,
        environments=labels[heard],
        left_out=tuple(labels[~heard].tolist()),
        contrasts=tuple(parts),
        unit=unit,
        slopes=slopes[:, heard],
        errors=errors[:, heard],
        average=average,
        spreads=tau,
        q=q,
        p=holm(np.minimum(len(parts) * p.min(0), 1)),
    )
