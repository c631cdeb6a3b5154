"""Overlap of environments: the share of cases that they have in common.

    ρ_ij = ∫ 2 p_i p_j / (p_i + p_j) = E_i[2 w_ij] = E_j[2 w_ji],   w_ij = p_j / (p_i + p_j)

ρ is 1 for equal distributions and 0 for disjoint ones. Weights come from a classifier of
environments that has not seen the row it weights (`weights`). The mean of both sides is right for
equal distributions, whatever the fit.

Two statements are tests. "Little in common" has the null ρ_ij ≥ 0.3, and is stated if ρ_ij + z·SE
lies below it, with Bonferroni's z over pairs. SE² is twice the variance of the cells' mean weights:
the weights are fitted to as many rows, whose chance adds about as much.

"The environments differ" has the null that all are identical; its error rate there is 5 %:

    S = Σ_e n_e |φ̄_e − φ̄|²,   φ: terms of the columns, uncorrelated (`weights.SmoothTerms`)

S of the first-order terms (normal scores of the columns) and S of all terms are each compared with
their values under permutations, and the smaller P-value of the two with those of the permutations.
Cells change their environment as a whole. Between identical environments all orders are equally
likely, so the level is exact for any distribution, size and dependence within blocks. Cells of a
block that lies in several environments are permuted only among themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix

from wri.diagnosis.inputs import (
    BlockCells,
    Diagnosis,
    listed,
    make_cells,
    number_blocks,
    read_sites,
    short_labels,
)
from wri.diagnosis.weights import SmoothTerms, environment_logs, overlap_logs, pair_overlap
from wri.number_text import write_number
from wri.report import style
from wri.rows import Environments

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GOOD_OVERLAP = 0.3
"""Overlap from which weights are good for training and for tests."""

LEAST_OVERLAP = 0.1
"""Below this the estimate saturates: it is 0.1 for a true 0.07 and 0.01 for a true 0."""

LEVEL = 0.05
"""Largest error rate of "the environments differ" and "little in common"."""

UNITS = 5000
"""Largest number of permuted units, all environments together; more rows are merged at random."""

FEW_ROWS = 30
"""Effective rows below which weighted means are unreliable."""

_ANNOTATED = 16  # most environments with a number in each cell
_NAMED = 34  # most names on an axis
_CHUNK = 2_000_000  # largest number of permuted cells held in memory at once


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Overlap(Diagnosis):
    """Result of `environment_overlap`: what each pair of environments has in common.

    Attributes
    ----------
    labels : ndarray of shape (E,)
        Labels of the environments.
    overlap : ndarray of shape (E, E)
        Overlap ρ_ij.
    effective_rows : ndarray of shape (E, E)
        Effective number of rows of i weighted towards j; without meaning at an overlap below 0.1.
    rows : ndarray of shape (E,)
        Number of rows.
    errors : ndarray of shape (E, E)
        Standard errors of ρ_ij.
    p : float
        P-value of identical environments.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import environment_overlap
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat(["a", "b"], 100)
    >>> X = random.normal(size=(200, 1)) + 4 * (site == "b")[:, None]
    >>> found = environment_overlap(X, site, permutations=49)
    >>> found.differ, bool(found.little_in_common[0, 1])
    (True, True)
    """

    labels: np.ndarray  # [E]
    overlap: np.ndarray  # [E, E], ρ_ij
    effective_rows: np.ndarray  # [E, E], of i's towards j; means nothing below LEAST_OVERLAP
    rows: np.ndarray  # [E]
    errors: np.ndarray  # [E, E], standard errors of ρ_ij
    p: float  # of identical environments

    @property
    def differ(self) -> bool:
        """Whether the environments differ by more than chance."""
        return self.p <= LEVEL

    @property
    def little_in_common(self) -> np.ndarray:  # [E, E]
        """Pairs whose overlap is below 0.3 by more than chance."""
        pairs = len(self.labels) * (len(self.labels) - 1) / 2
        quantile = NormalDist().inv_cdf(1 - LEVEL / pairs)
        return np.asarray(self.overlap + quantile * self.errors < GOOD_OVERLAP)

    @property
    def meaning(self) -> str:
        """The result and what to do, in plain words."""
        i, j = np.triu_indices(len(self.labels), 1)
        names = np.array([f"{first} and {other}" for first, other in self.labels[np.c_[i, j]]])
        shared, little = self.overlap[i, j], self.little_in_common[i, j]  # [P]
        worth = np.minimum(self.effective_rows[i, j], self.effective_rows[j, i])
        few, p = (worth < FEW_ROWS) & ~little, write_number(self.p, 2)
        smallest = f"Smallest overlap: {names[shared.argmin()]}, {shared.min():.2f}."
        rely = f" After weighting, every comparison rests on at least {worth.min():.0f} rows."
        if few.any():
            rely = (
                f" {few.sum()} of {len(names)} pairs leave fewer than {FEW_ROWS} effective rows on "
                f"a side: {_listed_pairs(names[few])}."
            )
        if little.any():
            return (
                f"{little.sum()} of {len(names)} pairs of sites have little in common "
                f"(overlap below {GOOD_OVERLAP}, 5 % level): {_listed_pairs(names[little])}. "
                f"{smallest} Their comparison rests on few cases. Rows that lie between such "
                f"sites, or fewer columns, would help.{rely if few.any() else ''}"
            )
        if not self.differ:
            return (
                "These columns do not show a difference between the sites: identical sites differ "
                f"as much by chance (p = {p}). Sites that do not differ say nothing about "
                "invariance."
                f"{rely if few.any() else ''}"
            )
        return f"The sites differ (p = {p}). All pairs overlap enough to compare. {smallest}{rely}"

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw a heat map of the overlap.

        Environments are sorted by their mean overlap with the others, the smallest first.

        Parameters
        ----------
        ax : Axes or None, default=None
            Axes to draw on. None makes a new figure, at most 9 inches high.

        Returns
        -------
        figure : Figure
            Figure of the axes.
        """
        order = np.argsort(self.overlap.sum(1), kind="stable")
        labels, values = short_labels(self.labels, 20), self.overlap[np.ix_(order, order)]
        names = [labels[k] for k in order]
        count, longest = len(names), max(map(len, names))
        few = count <= _ANNOTATED
        size = min(max(2.2, (0.42 if few else 0.13) * count), 5.5) + 0.08 * longest
        with style.figure(size + 1.3, size + 0.9) as drawn:
            axes = drawn.subplots() if ax is None else ax
            image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1)
            indices = np.arange(0, count, -(-count // _NAMED))
            ticks = [names[k] for k in indices]
            font: Any = {"fontsize": 9 if few else 7}
            axes.set_xticks(indices, ticks, rotation=90 if longest > 4 or not few else 0, **font)
            axes.set_yticks(indices, ticks, **font)
            axes.set_title("overlap")
            for (i, j), value in np.ndenumerate(values) if few else ():
                colour = "white" if value > 0.6 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
            if ax is None:
                drawn.colorbar(image, ax=axes, shrink=0.8)
        return style.figure_of(axes)


def _listed_pairs(names: np.ndarray) -> str:
    return listed(tuple(f"({name})" for name in names), 4)


def environment_overlap(
    X: Any,
    groups: Iterable[Any],
    seed: int = 0,
    blocks: Iterable[Any] | None = None,
    permutations: int = 499,
) -> Overlap:
    """Estimate the overlap of each pair of environments.

    Identical environments are said to differ in 5 % of the cases, whatever their distribution and
    sizes. Dependent rows need `blocks`. All rows count the same.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_rows, n_features)
        Numbers without missing values: the columns that the weights see. More columns overlap less.
    groups : iterable of shape (n_rows,)
        Environment of each row, any hashable labels.
    seed : int, default=0
        Seed of the split into folds and of the permutations.
    blocks : iterable of shape (n_rows,) or None, default=None
        Block of each row, any labels: week, patient, ward. Rows of one block may depend on each
        other, rows of different blocks may not, and blocks have similar sizes in all environments.
        None: each row is its own block.
    permutations : int, default=499
        Number of permutations of blocks between environments.

    Returns
    -------
    result : Overlap
        Result with `meaning` and `plot()`.

    Raises
    ------
    InputError
        If there are fewer than two environments, or one cannot be split.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import environment_overlap
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> found = environment_overlap(X, np.repeat(["a", "b"], 100), permutations=49)
    >>> found.differ, bool(found.overlap[0, 1] > 0.9)
    (False, True)
    """
    x, _, environments = read_sites(X, groups)
    block = number_blocks(blocks, len(x))
    logs = environment_logs(x, environments, seed=seed, block=block)
    logs = overlap_logs(logs, environments.number)
    cells = make_cells(environments, block, max(UNITS // len(environments.labels), 50), seed)
    shared, worth = pair_overlap(logs, environments)
    return Overlap(
        labels=environments.labels,
        overlap=shared,
        effective_rows=worth,
        rows=np.array([len(rows) for rows in environments.rows]),
        errors=_overlap_errors(logs, environments, cells),
        p=identical_p(x, cells, permutations, np.random.default_rng(seed)),
    )


def _overlap_errors(logs: np.ndarray, environments: Environments, cells: BlockCells) -> np.ndarray:
    """Return standard errors of ρ_ij, `[E, E]`: of two means of weights."""
    squares = np.zeros((len(environments.labels),) * 2)
    for e, rows in enumerate(environments.rows):
        within = cells.take(rows)
        weights = 2 * np.exp(logs[rows])  # [n_i, E]
        parts = within.sum(weights - weights.mean(0)) / len(rows)
        squares[e] = np.square(parts).sum(0) * len(parts) / max(len(parts) - 1, 1)
    return np.asarray(np.sqrt((squares + squares.T) / 2))  # twice (a + b)/4: the fit's chance too


def identical_p(
    x: np.ndarray, cells: BlockCells, permutations: int, random: np.random.Generator
) -> float:
    """Return the P-value of identical environments."""
    terms = SmoothTerms(x, random)
    sums = _cell_sums(x, terms, cells)  # [m, 1 + q]
    first = _cell_sums(x, SmoothTerms(x, random, order=1), cells)
    sums = np.concatenate([sums, first[:, 1:]], 1)
    edge = 1 + terms.width
    crossing = np.bincount(cells.block)[cells.block] > 1
    stratum = np.where(crossing, cells.block + 1, 0)
    starts = np.searchsorted(cells.environment, np.arange(cells.environment[-1] + 1))
    found = [_spread(sums, np.arange(len(sums))[None], starts, edge)]
    step = max(1, _CHUNK // len(sums))
    for start in range(0, permutations, step):
        orders = _permuted(stratum, min(step, permutations - start), random)
        found.append(_spread(sums, orders, starts, edge))
    return _smaller_p(np.concatenate(found))


def _permuted(
    stratum: np.ndarray, times: int, random: np.random.Generator
) -> np.ndarray:  # [m] -> [times, m]
    """Return random orders of the cells, permuted within strata."""
    if not stratum.any():
        return np.stack([random.permutation(len(stratum)) for _ in range(times)])
    orders, indices = np.empty((times, len(stratum)), int), np.argsort(stratum, kind="stable")
    for order in orders:
        order[indices] = np.lexsort([random.random(len(indices)), stratum])
    return orders


def _smaller_p(values: np.ndarray) -> float:  # [1 + R, 2]
    """Return the P-value of the first row among all, by the smaller of its two P-values."""
    # values that differ by rounding only count as equal
    values = np.where(values > 0, np.round(np.log(np.maximum(values, 1e-300)), 9), -np.inf)
    ranks = np.stack([(own[:, None] <= own).sum(1) for own in values.T])  # [2, 1 + R]
    smaller = ranks.min(0)
    return float((smaller <= smaller[0]).mean())


def _cell_sums(x: np.ndarray, terms: SmoothTerms, cells: BlockCells) -> np.ndarray:
    """Return the number of rows and the sums of terms per cell, computed in chunks of rows."""
    total = np.zeros((len(cells.block), 1 + terms.width))
    for start in range(0, len(x), 50_000):
        own = cells.of_row[start : start + 50_000]
        values = terms.apply(x[start : start + 50_000])
        order = np.argsort(own, kind="stable")
        present, starts = np.unique(own[order], return_index=True)
        values = np.concatenate([np.ones((len(own), 1)), values], 1)[order]
        total[present] += np.add.reduceat(values, starts, 0)
    return total


def _spread(
    sums: np.ndarray, orders: np.ndarray, starts: np.ndarray, edge: int
) -> np.ndarray:  # [R, m] -> [R, 2]
    """Return S of all terms and of first-order terms; environments begin at `starts`."""
    draws, cells = orders.shape
    ends = np.append((cells * np.arange(draws)[:, None] + starts).ravel(), orders.size)
    members = csr_matrix((np.ones(orders.size), orders.ravel(), ends), (len(ends) - 1, cells))
    each = (members @ sums).reshape(draws, len(starts), -1)  # [R, E, 1 + q]
    rows, total = each[:, :, :1], sums.sum(0)
    distance = each[:, :, 1:] / rows - total[1:] / total[0]
    squares = (rows * np.square(distance)).sum(1)  # [R, q]
    return np.stack([squares[:, : edge - 1].sum(1), squares[:, edge - 1 :].sum(1)], 1)
