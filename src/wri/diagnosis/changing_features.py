"""Which features' relation to y changes between environments, given the other features.

    β_e: slopes of y on all features in environment e,   τ_k: spread of β_ek between environments

Slopes are log-odds for classes and least squares for numbers; several classes are each compared
with the most frequent one. How slopes and their errors are found is told in `environment_slopes`,
and how chance is told from change in `slope_bootstrap`: P-values hold for skewed features, unequal
noise, unequal sizes and, with `blocks`, for dependent rows, and are corrected for the number of
features. The null is that the best linear slope of a feature is the same everywhere.

What a change says of causes: where causes c bring about y and y its markers m, p_e(y | c, m) ∝
p(y | c) p_e(m | y), so log-odds of causes stay and those of markers change. Slopes of least squares
do not part them: a stronger marker takes weight off the causes beside it, and both change. With
numbers a change says that what these columns tell of y together is not the same everywhere.

What this cannot see: changes that are no change of a linear slope. What it can mistake: a cause
that is unmeasured or not linear makes features look changing where the features' distribution
shifts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wri.diagnosis.blocks import MOST_CELLS, make_cells, number_blocks
from wri.diagnosis.changing_plot import ChangingPlot
from wri.diagnosis.environment_slopes import ContrastSlopes, contrast_slopes, number_slopes
from wri.diagnosis.inputs import (
    holds_classes,
    listed,
    numbers,
    read_target,
    refuse_weights,
    standardised,
)
from wri.diagnosis.left_out import LeftOutLosses, drop_columns, losses_left_out, plain_model
from wri.diagnosis.slope_bootstrap import compare_slopes
from wri.errors import InputError
from wri.rows import Environments, NumericTable, read_sites

LEVEL = 0.05
"""Features with a corrected p-value below this are flagged."""
_SUMS = 5_000_000  # numbers in the cells' sums of one environment


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ChangingFeatures(ChangingPlot):
    """Slopes of every environment, how far they spread, and whether chance explains it."""

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
    without: (
        LeftOutLosses | None
    )  # losses at sites left out with all columns and without the flagged

    @property
    def change(self) -> np.ndarray:  # [D]
        """τ: the standard deviation of slopes between environments, chance taken off."""
        return np.sqrt(np.square(self.spreads).mean(0))

    @property
    def order(self) -> np.ndarray:  # [D]
        """Columns from the largest change down."""
        return np.lexsort([self.p, -self.change])

    @property
    def is_flagged(self) -> np.ndarray:  # [D]
        return self.p <= LEVEL

    @property
    def flagged(self) -> tuple[str, ...]:
        """Features whose slope changes by more than chance, the largest change first."""
        return tuple(self.names[k] for k in self.order if self.is_flagged[k])

    @property
    def meaning(self) -> str:
        """What was found and, where it was measured, what to do, in plain words."""
        number, flagged = len(self.environments), self.flagged
        left = ", ".join(str(label) for label in self.left_out)
        without = f" Left out for want of different values of y, or of blocks: {left}."
        without = without if left else ""
        if not flagged:
            return (
                f"No column's relation to y changes between the {number} environments by more than "
                "chance (5 % level). Changes that are not linear, or small beside the errors of "
                f"the slopes, would not be seen.{without}"
            )
        first = next(k for k in self.order if self.is_flagged[k])
        slopes = self.slopes[self.widest()[first], :, first]
        found = (
            f"Given the other columns, {listed(flagged)} {'relate' if flagged[1:] else 'relates'} "
            f"to y in other ways in some of the {number} environments than in others (5 % level): "
            f"the slope of {flagged[0]} goes from {np.nanmin(slopes):.2g} to "
            f"{np.nanmax(slopes):.2g} {self.unit}."
        )
        if self.unit.startswith("SD"):
            found += (
                " In least squares a changing column also moves the slopes of columns that go "
                "with it: not every flagged column need be the one that changes."
            )
        if len(flagged) == len(self.names) > 1:
            found += (
                " That is every column: a cause of y may be missing, or y itself be measured in "
                "different ways; look there first."
            )
        return f"{found}{self._advice()}{without}"

    def _advice(self) -> str:
        """What leaving the flagged columns out did at environments left out."""
        one = "them" if self.flagged[1:] else "it"
        if self.without is None:
            return ""
        if self.without.pays:
            lead = f"Leave {one} out"
        elif self.without.costs:
            lead = f"Leaving {one} out costs: keep {one}"
        else:
            lead = f"Leaving {one} out makes no clear difference"
        return f" {lead}: without {one} {self.without.sentence}."

    def __repr__(self) -> str:
        return self.meaning

    def ranking(self) -> pd.DataFrame:
        """Features from the largest change down.

        Returns
        -------
        DataFrame
            `feature`, `change` (τ) and the average `slope`, both in `unit`, and the corrected `p`.
            With several classes the slope is that of the contrast that changes most, and
            `contrast` names it.
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


def changing_features(
    X: Any,
    y: Any,
    groups: Any,
    classes: bool | None = None,
    blocks: Iterable[Any] | None = None,
    model: Any = None,
    draws: int = 999,
    seed: int = 0,
    *,
    sample_weight: Any = None,
) -> ChangingFeatures:
    """Which features' relation to y changes between environments, given the other features.

    Tables in which no slope changes have a flag in 5 % of the cases, also with skewed features,
    unequal noise and sizes; dependent rows need `blocks`. Where columns are flagged, the loss at
    environments left out in turn is measured with all columns and without the flagged ones.

    Parameters
    ----------
    X
        Table of numbers without gaps, DataFrame or array.
    y, groups
        Target of every row, classes or numbers, and its environment, any labels.
    classes
        Whether y holds classes. None: unless it has more than two values of floating point.
    blocks
        The block of every row: week, patient, ward. Rows of one block may depend on one another,
        blocks may not. None: every row is its own. An environment needs four blocks or more.
    model
        Estimator that is refitted with and without the flagged columns. None: plain regression.
    draws, seed, sample_weight
        Of the bootstrap. Weights are refused: repeat rows, `blocks` naming the original row.

    Returns
    -------
    ChangingFeatures
        With `meaning`, `ranking()`, `plot()`, and `flagged`, which `design_position` takes.
    """
    refuse_weights(sample_weight)
    if draws < 19:
        raise InputError(f"draws must be at least 19 for a level of 5 %, not {draws}")
    sites = read_sites(X, groups)
    y = read_target(y, len(sites.x))
    as_classes = holds_classes(y, classes)
    block = number_blocks(blocks, len(y))
    parts = _contrasts(sites, y, as_classes, block, seed)
    spread = compare_slopes(list(parts.values()), draws, seed)
    p = spread.p.min(0)
    return ChangingFeatures(
        names=sites.names,
        contrasts=tuple(parts),
        unit="log-odds per SD" if as_classes else "SD of y per SD",
        **_tabulate(list(parts.values()), sites.environments),
        average=spread.average,
        spreads=spread.tau,
        q=spread.q,
        p=p,
        without=_leave_out(X, y, sites, np.flatnonzero(p <= LEVEL), model, as_classes),
    )


def _contrasts(
    sites: NumericTable, y: np.ndarray, classes: bool, block: np.ndarray | None, seed: int
) -> dict[str, ContrastSlopes]:
    """Slopes of every contrast that two environments or more say something of."""
    z = standardised(sites.x)
    most = int(np.clip(_SUMS // (z.shape[1] + 1) ** 2, 100, MOST_CELLS))
    cells = make_cells(sites.environments, block, most, seed)
    if classes:
        parts = contrast_slopes(z, y, sites.environments, cells)
    else:
        parts = {"y": number_slopes(z, numbers(y), sites.environments, cells)}
    parts = {name: part for name, part in parts.items() if len(part.heard) > 1}
    if not parts:
        raise InputError(
            "y has different values within one environment only, or in none, or environments have "
            "fewer than four blocks; at least two are needed to compare: give more rows or smaller "
            "blocks, or join environments in groups"
        )
    return parts


def _tabulate(parts: list[ContrastSlopes], environments: Environments) -> dict[str, Any]:
    """Slopes of all contrasts in one table, without the environments that say nothing."""
    labels, columns = environments.labels, parts[0].slopes.shape[1]
    slopes, errors = np.full((2, len(parts), len(labels), columns), np.nan)
    for c, part in enumerate(parts):
        slopes[c, part.heard], errors[c, part.heard] = part.slopes, part.errors
    heard = ~np.isnan(slopes).all((0, 2))
    return {
        "slopes": slopes[:, heard],
        "errors": errors[:, heard],
        "environments": labels[heard],
        "left_out": tuple(labels[~heard].tolist()),
    }


def _leave_out(
    X: Any, y: np.ndarray, sites: NumericTable, flagged: np.ndarray, model: Any, classes: bool
) -> LeftOutLosses | None:
    """The loss at environments left out with all columns and without the flagged ones."""
    columns = len(sites.names)
    if not len(flagged) or len(flagged) == columns or len(sites.environments.labels) < 3:
        return None
    plain = model is None
    model = plain_model(classes) if plain else model
    name = ("logistic regression" if classes else "ridge regression") if plain else "your model"
    target = y if classes else numbers(y)
    X = sites.x if plain else X
    before = losses_left_out(model, X, target, sites.environments)
    after = losses_left_out(model, drop_columns(X, flagged.tolist()), target, sites.environments)
    return LeftOutLosses(
        labels=sites.environments.labels,
        before=before,
        after=after,
        model=name,
        unit="nats" if classes else "of the variance of y",
    )
