"""Features whose relation to y changes between environments, given the other features.

    β_e: slopes of y on all features in environment e,   τ_k: spread of β_ek between environments

Slopes are log-odds for classes and least squares for numbers; several classes are each compared
with the most frequent one. `environment_slopes` estimates slopes and their errors and tests whether
they differ by more than chance. P-values hold for skewed features, unequal noise, unequal sizes
and, with `blocks`, for dependent rows, and are corrected for the number of features. The null
hypothesis is that the best linear slope of a feature is the same everywhere.

Causes: if causes c lead to y and y leads to markers m, then p_e(y | c, m) ∝ p(y | c) p_e(m | y), so
the log-odds of causes stay and those of markers change. For numbers the same holds of the natural
parameter

    θ_e = β_e / σ_e²,   σ_e² the residual variance in environment e,

and not of β_e: a stronger marker lowers σ², and the slopes of all causes with it. Unequal noise
alone changes θ_e and not β_e. So a column of numbers is flagged only if both β_ek and θ_ek differ;
its P-value is the larger of the two (intersection-union test, Berger 1982), and its level is at
most that of each.

Limits: changes that do not change a linear slope are not found, nor those of a slope in proportion
to σ². If a cause is unmeasured or not linear, features may be flagged only because their
distribution shifts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wri.diagnosis.environment_slopes import (
    ContrastSlopes,
    SlopeSpread,
    compare_slopes,
    contrast_slopes,
    number_slopes,
)
from wri.diagnosis.inputs import (
    MOST_CELLS,
    Diagnosis,
    NumericTable,
    drop_columns,
    holds_classes,
    listed,
    make_cells,
    number_blocks,
    numbers,
    read_sites,
    read_target,
    short,
    short_labels,
    standardised,
)
from wri.diagnosis.losses import LeftOutLosses, advise, compare_left_out, plain_model
from wri.errors import InputError
from wri.number_text import write_number
from wri.report import style
from wri.rows import Environments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEVEL = 0.05
"""Features with a corrected p-value below this are flagged."""
DRAWS = 999
"""Draws of the bootstrap."""
_SUMS = 5_000_000  # numbers in the cells' sums of one environment
FLAGGING_ROWS = 4096  # per site that `flagged_columns` compares: slopes apart by 0.1 are found


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ChangingFeatures(Diagnosis):
    """Result of `changing_features`: slopes per environment, their spread and its P-values.

    Attributes
    ----------
    names : tuple of str
        Names of the D features.
    environments : ndarray of shape (E,)
        Labels of the environments.
    left_out : tuple
        Labels of environments without enough different values of y or enough blocks.
    contrasts : tuple of str
        What is compared: one contrast, or one per class but the most frequent.
    unit : str
        Unit of the slopes.
    slopes : ndarray of shape (C, E, D)
        Slopes; NaN if an environment lacks a class.
    errors : ndarray of shape (C, E, D)
        Standard errors of the slopes.
    average : ndarray of shape (C, D)
        Average slopes.
    spreads : ndarray of shape (C, D)
        Standard deviation τ of the slopes between environments, without chance.
    q : ndarray of shape (C, D)
        Cochran's Q.
    p : ndarray of shape (D,)
        Corrected P-values; for numbers, the larger one of slopes and of slopes divided by the
        residual variance.
    measure : callable
        Returns `without`.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import changing_features
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat([0, 1], 100)
    >>> X = random.normal(size=(200, 2))
    >>> y = X[:, 0] + np.where(site == 0, 1.0, -1.0) * X[:, 1] + random.normal(size=200)
    >>> found = changing_features(X, y, site, draws=99)
    >>> found.is_flagged
    array([False,  True])
    """

    names: tuple[str, ...]  # [D]
    environments: np.ndarray  # [E], labels
    left_out: tuple[Any, ...]  # labels of environments with too few values of y or blocks
    contrasts: tuple[str, ...]  # [C], what is compared: one but for several classes
    unit: str  # of slopes
    slopes: np.ndarray  # [C, E, D], NaN where an environment lacks a class
    errors: np.ndarray  # [C, E, D], standard errors
    average: np.ndarray  # [C, D]
    spreads: np.ndarray  # [C, D], τ of each contrast
    q: np.ndarray  # [C, D], Cochran's
    p: np.ndarray  # [D], corrected
    measure: Callable[[], LeftOutLosses | None]  # fits models, so only when it is asked for

    @cached_property
    def without(self) -> LeftOutLosses | None:
        """Losses at environments left out, with all columns and without the flagged ones."""
        return self.measure()

    @property
    def change(self) -> np.ndarray:  # [D]
        """Standard deviation τ of the slopes between environments, without chance."""
        return np.sqrt(np.square(self.spreads).mean(0))

    @property
    def order(self) -> np.ndarray:  # [D]
        """Numbers of the features, the largest change first."""
        return np.lexsort([self.p, -self.change])

    @property
    def is_flagged(self) -> np.ndarray:  # [D]
        """Whether the slope of each feature changes by more than chance."""
        return self.p <= LEVEL

    @property
    def flagged(self) -> tuple[str, ...]:
        """Names of the features whose slope changes by more than chance, the largest first."""
        return tuple(self.names[k] for k in self.order if self.is_flagged[k])

    @property
    def meaning(self) -> str:
        """The result and, where it was measured, what to do, in plain words."""
        number, flagged = len(self.environments), self.flagged
        left = ", ".join(str(label) for label in self.left_out)
        omitted = (
            f" Not tested: {left}, because the target has only one value there or there are too "
            "few blocks."
        )
        omitted = omitted if left else ""
        if not flagged:
            return (
                f"No column's relation to the target changes between the {number} sites by more "
                "than chance (5 % level). Changes that are not linear, or that are small compared "
                f"with the errors of the slopes, would not be seen.{omitted}"
            )
        first = self.names.index(flagged[0])
        slopes = self.slopes[self.widest()[first], :, first]
        found = (
            f"Given the other columns, the relation of {listed(flagged)} to the target differs "
            f"between the {number} sites (5 % level): the slope of {flagged[0]} goes from "
            f"{write_number(np.nanmin(slopes), 2)} to {write_number(np.nanmax(slopes), 2)} "
            f"{self.unit}."
        )
        if len(flagged) == len(self.names) > 1:
            found += (
                " That is every column. A cause of the target may be missing, or the sites may "
                "measure the target in different ways. Check this first."
            )
        if self.without is not None:
            it = "them" if flagged[1:] else "it"
            leads = (f"Leave {it} out", f"Keep {it}", f"Leaving {it} out makes no clear difference")
            found += f" {advise(self.without, *(f'{lead}: without {it}' for lead in leads))}"
        return f"{found}{omitted}"

    def widest(self) -> np.ndarray:  # [D]
        """Return the contrast in which each feature changes most.

        Returns
        -------
        contrast : ndarray of shape (D,)
            Numbers of contrasts.
        """
        return np.lexsort([self.q, self.spreads], axis=0)[-1]

    def ranking(self) -> pd.DataFrame:
        """Return a table of the features, the largest change first.

        Returns
        -------
        ranking : DataFrame
            Columns `feature`, `change` (τ), average `slope` and corrected `p`; τ and slope are in
            `unit`. With several classes the slope is that of the contrast that changes most, named
            in the column `contrast`.
        """
        widest, columns = self.widest(), np.arange(len(self.names))
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

    def plot(self, most: int = 20, ax: "Axes | None" = None) -> "Figure":
        """Draw the slopes per environment ± two standard errors, the largest change on top.

        Beyond six environments a band shows the middle half of the slopes, and each environment is
        a dot without its error.

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
        return style.figure_of(axes)

    def _draw(self, axes: "Axes", shown: np.ndarray) -> None:
        number = len(self.environments)
        known = number <= len(style.ENVIRONMENT_COLOURS)  # more colours look alike
        axes.axvline(0, color=style.GREY, linewidth=0.6)
        for line in range(0, len(shown), 2):
            axes.axhspan(line - 0.5, line + 0.5, color="black", alpha=0.04, linewidth=0)
        (self._draw_each if known else self._draw_all)(axes, shown)
        widest = self.widest()
        style.name_lines(axes, [self._label(k, widest[k]) for k in shown])
        for text, k in zip(axes.get_yticklabels(), shown, strict=True):
            text.set_color(style.VERMILLION if self.is_flagged[k] else style.BLACK)
        bars = "\n(± 2 standard errors)" if known else ""
        axes.set_xlabel(f"slope, {self.unit}{bars}")
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
        """Draw one dot per environment, sorted per feature, and a band of the middle half."""
        for line, k in enumerate(shown):
            slopes = np.sort(self.slopes[self.widest()[k], :, k])
            slopes = slopes[np.isfinite(slopes)]
            heights = line + np.linspace(-0.32, 0.32, len(slopes))
            low, high = np.quantile(slopes, [0.25, 0.75])
            axes.fill_betweenx([line - 0.4, line + 0.4], low, high, color=style.SKY, alpha=0.35)
            colour = style.VERMILLION if self.is_flagged[k] else style.BLACK
            axes.scatter(slopes, heights, 5, colour, linewidths=0, zorder=3)

    def _label(self, column: int, contrast: int) -> str:
        among = f"\n({short(self.contrasts[contrast])})" if len(self.contrasts) > 1 else ""
        return f"{'★ ' if self.is_flagged[column] else ''}{short(self.names[column], 30)}{among}"


def changing_features(
    X: Any,
    y: Any,
    groups: Any,
    classes: bool | None = None,
    blocks: Iterable[Any] | None = None,
    model: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> ChangingFeatures:
    """Find features whose relation to y changes between environments, given the other features.

    If no slope changes, the probability of any flag is at most 5 %, also with skewed features,
    unequal noise and unequal sizes. For numbers a flag also needs a change of the slope divided by
    the residual variance: a marker that gets stronger leaves this ratio of the causes as it is.
    Dependent rows need `blocks`. If columns are flagged, the loss at environments left out in turn
    is measured with all columns and without the flagged ones.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_rows, n_features)
        Numbers without missing values.
    y : array-like of shape (n_rows,)
        Target of each row: classes or numbers.
    groups : array-like of shape (n_rows,)
        Environment of each row, any labels.
    classes : bool or None, default=None
        Whether y holds classes. None: y holds classes unless it has more than two different
        floating-point values.
    blocks : iterable of shape (n_rows,) or None, default=None
        Block of each row: week, patient, ward. Rows of one block may depend on each other, rows
        of different blocks may not. None: each row is its own block. An environment needs at
        least four blocks.
    model : estimator or None, default=None
        Estimator that is fitted with and without the flagged columns. None: plain regression.
    draws : int, default=999
        Number of bootstrap draws, at least 19.
    seed : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    result : ChangingFeatures
        Result with `meaning`, `ranking()`, `plot()`, and `flagged` for `design_position`.

    Raises
    ------
    InputError
        If y varies in fewer than two environments, or `draws` is too small.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import changing_features
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat([0, 1], 100)
    >>> X = random.normal(size=(200, 2))
    >>> y = X[:, 0] + np.where(site == 0, 1.0, -1.0) * X[:, 1] + random.normal(size=200)
    >>> changing_features(X, y, site, draws=99).ranking()["feature"].tolist()
    ['column 1', 'column 0']
    """
    if draws < 19:
        raise InputError(f"draws must be at least 19 for a level of 5 %, not {draws}")
    sites = read_sites(X, groups)
    y = read_target(y, len(sites.x))
    as_classes = holds_classes(y, classes)
    block = number_blocks(blocks, len(y))
    target = y if as_classes else numbers(y)
    slopes, natural = _estimate_slopes(sites.x, target, sites.environments, block, as_classes)
    if not slopes:
        raise InputError(
            "changes cannot be tested: at least two environments need different values of y and "
            "four blocks or more. Give more rows or smaller blocks, or join environments in groups"
        )
    parts = list(slopes.values())
    spread = compare_slopes(parts, draws, seed)
    p = _largest_p(spread, natural, draws, seed)
    return ChangingFeatures(
        names=sites.names,
        contrasts=tuple(slopes),
        unit="log-odds per SD" if as_classes else "SD of the target per SD",
        **_tabulate(parts, sites.environments),
        average=spread.average,
        spreads=spread.tau,
        q=spread.q,
        p=p,
        measure=lambda: _leave_out(X, y, sites, np.flatnonzero(p <= LEVEL), model, as_classes),
    )


def flagged_columns(
    x: np.ndarray,  # [n, D], without missing values
    y: np.ndarray,  # [n], codes of classes, or numbers
    site: np.ndarray,  # [n], whole numbers
    classes: bool,
    blocks: Iterable[Any] | None = None,
) -> np.ndarray:
    """Return the indices of flagged columns, whatever the order of rows, sites and columns."""
    labels, number = np.unique(site, return_inverse=True)
    block, sites = number_blocks(blocks, len(y)), Environments(labels, number)
    if block is None and np.bincount(number).max() > FLAGGING_ROWS:
        kept = _sample_evenly(x, sites.rows, FLAGGING_ROWS)
        x, y, sites = x[kept], y[kept], Environments(labels, number[kept])
    slopes, natural = _estimate_slopes(x, y, sites, block, classes)
    if not slopes:
        return np.empty(0, int)
    spread = compare_slopes(list(slopes.values()), DRAWS, 0)
    if not (spread.p <= LEVEL).any():
        return np.empty(0, int)
    return np.flatnonzero(_largest_p(spread, natural, DRAWS, 0) <= LEVEL)


def _estimate_slopes(
    x: np.ndarray,
    y: np.ndarray,
    environments: Environments,
    block: np.ndarray | None,
    classes: bool,
) -> tuple[dict[str, ContrastSlopes], ContrastSlopes | None]:
    """Return the slopes of each contrast that two environments can estimate; for numbers also θ."""
    z = standardised(x)
    if block is None:
        order = _order_by_content(z, y, environments.number)
        z, y = z[order], y[order]
        environments = Environments(environments.labels, environments.number[order])
    most = int(np.clip(_SUMS // (z.shape[1] + 1) ** 2, 100, MOST_CELLS))
    cells = make_cells(environments, block, most)
    if classes:
        return contrast_slopes(z, y, environments, cells), None
    found = number_slopes(z, y, environments, cells)
    return ({}, None) if found is None else ({"y": found[0]}, found[1])


def _order_by_content(z: np.ndarray, y: np.ndarray, number: np.ndarray) -> np.ndarray:  # [n]
    """Return the order for drawing signs: rows of a site together, whatever the order of sites."""
    codes = pd.factorize(y, sort=True)[0]
    content = np.lexsort([codes, _sizes(z)])
    sites, first = np.unique(number[content], return_index=True)
    rank = np.empty(number.max() + 1, int)
    rank[sites] = first
    return content[np.argsort(rank[number[content]], kind="stable")]


def _sizes(z: np.ndarray) -> np.ndarray:  # [n, D] -> [n]
    """Return Σ|z| of each row, exact whatever the order of columns: as sums of whole numbers."""
    return np.asarray(np.rint(1e9 * np.abs(z)).sum(1))


def _sample_evenly(x: np.ndarray, sites: list[np.ndarray], most: int) -> np.ndarray:
    """Return at most so many rows of each site, evenly spaced by their distance from the mean."""
    sizes = _sizes(standardised(x))
    each = [rows[sizes[rows].argsort(kind="stable")] for rows in sites]
    return np.concatenate(
        [r[np.unique(np.linspace(0, len(r) - 1, most).round().astype(int))] for r in each]
    )


def _largest_p(
    spread: SlopeSpread, natural: ContrastSlopes | None, draws: int, seed: int
) -> np.ndarray:  # [D]
    """Return the smallest P-value of all contrasts; for numbers, the larger of both tests."""
    if natural is None:
        return np.asarray(spread.p.min(0))
    return np.maximum(spread.p[0], compare_slopes([natural], draws, seed).p[0])


def _tabulate(parts: list[ContrastSlopes], environments: Environments) -> dict[str, Any]:
    """Put the slopes of all contrasts in one table, without environments that have none."""
    labels, columns = environments.labels, parts[0].slopes.shape[1]
    slopes, errors = np.full((2, len(parts), len(labels), columns), np.nan)
    for c, part in enumerate(parts):
        slopes[c, part.usable], errors[c, part.usable] = part.slopes, part.errors
    usable = ~np.isnan(slopes).all((0, 2))
    return {
        "slopes": slopes[:, usable],
        "errors": errors[:, usable],
        "environments": labels[usable],
        "left_out": tuple(labels[~usable].tolist()),
    }


def _leave_out(
    X: Any, y: np.ndarray, sites: NumericTable, flagged: np.ndarray, model: Any, classes: bool
) -> LeftOutLosses | None:
    """Measure the loss at environments left out with all columns and without the flagged ones."""
    columns = len(sites.names)
    if not len(flagged) or len(flagged) == columns or len(sites.environments.labels) < 3:
        return None
    name = "logistic regression" if classes else "ridge regression"
    before = (plain_model(classes), sites.x) if model is None else (model, X)
    after = (before[0], drop_columns(before[1], flagged.tolist()))
    name = name if model is None else "your model"
    return compare_left_out(before, after, y, sites.environments, name)
