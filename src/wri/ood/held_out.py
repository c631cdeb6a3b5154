"""What is kept of training to judge a new site: losses, ranges of columns, known kinds of cells.

Expected loss of rows by their predictions, from rows with known losses:

    m(f) = Σ_{j near f} s_j l_j / Σ_{j near f} s_j

near f: the k rows whose predictions are next to f in sorted order, and all rows tied with it;
s_j: the share of the row, all environments with the same weight. Predictions are sorted by one
number: the predicted number, the probability of the second of two classes, and for more classes the
loss expected by the model's own probabilities, −Σ_c p_c log p_c. Sorting and cumulated sums take
O((n + n_known) log n_known) time and a few numbers per row.

Ranges of columns in the training environments:

    beyond: x_d < q_d(α/2)  or  x_d > q_d(1 − α/2),   α = 1 %

with quantiles of the rows of all training environments, which have the same weight. Evidence on the
predictor's outputs cannot see an unusual row with an ordinary prediction; ranges find it, column by
column.

Unseen cells are of a kind that training never had: unknown categories, and gaps in columns without
gaps. A model encodes an unknown category as none of the known ones, and fills a gap with the
median, so its prediction can look ordinary. Rows with such cells are not supported, and the reason
names the column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.special import entr

from wri.errors import shorten
from wri.ood.evidence import ROUNDING, equal_shares

NEIGHBOURS = 10  # smallest k; the square root of the known rows if that is larger
USUAL_BEYOND = 0.01  # α
MOST_EXAMPLES = 3  # unknown categories that are named
Window = tuple[np.ndarray, np.ndarray]
"""Start and end of the near rows among the sorted known rows, both `[n]`."""


class HeldOutRows(NamedTuple):
    """Held-out rows of the training environments with predictions and losses."""

    predictions: np.ndarray  # [n, C], class probabilities, or [n, 1] numbers
    losses: np.ndarray  # [n]
    environment: np.ndarray  # [n]
    shares: np.ndarray  # [n], sum to one, every environment counted alike

    @classmethod
    def of(cls, predictions: np.ndarray, losses: np.ndarray, weights: Sequence[np.ndarray]) -> Self:
        """Make the record of rows in the order of environments, with the weights of each."""
        environment = np.repeat(np.arange(len(weights)), [len(own) for own in weights])
        return cls(predictions, losses, environment, np.concatenate(equal_shares(weights)))


class LeftOutSites(NamedTuple):
    """Losses of training sites, each left out of training once."""

    losses: np.ndarray  # [E], mean loss there
    expected: np.ndarray  # [E], expected loss there, by the other sites


def sorting_number(predictions: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
    """Return the number by which predictions are sorted."""
    classes = predictions.shape[1]
    if classes == 1:
        return predictions[:, 0]
    return predictions[:, 1] if classes == 2 else entr(predictions).sum(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpectedLoss:
    """Expected loss m(f) from known rows, sorted by their predictions."""

    numbers: np.ndarray  # [n_known], ascending
    losses: np.ndarray  # [n_known]
    shares: np.ndarray  # [n_known]
    order: np.ndarray  # [n_known], places of these rows in what was given
    k: int

    @classmethod
    def of(cls, known: HeldOutRows) -> Self:
        """Make the curve from rows with known losses; at least one."""
        numbers = sorting_number(known.predictions)
        order = numbers.argsort(kind="stable")
        return cls(
            numbers=numbers[order],
            losses=known.losses[order],
            shares=known.shares[order],
            order=order,
            k=min(len(order), max(NEIGHBOURS, round(len(order) ** 0.5))),
        )

    def near(self, predictions: np.ndarray) -> Window:  # [n, C]
        """Return the near rows of each prediction."""
        at = sorting_number(predictions)
        first, last = (np.searchsorted(self.numbers, at, side) for side in ("left", "right"))
        start = ((first + last) // 2 - self.k // 2).clip(0, len(self.numbers) - self.k)
        return np.minimum(start, first), np.maximum(start + self.k, last)

    def mean(self, window: Window, values: np.ndarray) -> np.ndarray:  # [n], [n_known] -> [n]
        """Return means of the near rows' values, weighted by their shares."""
        return _sums(self.shares * values, window) / _sums(self.shares, window)

    def weights(self, window: Window) -> np.ndarray:  # [n_known]
        """Return W_j, the weight of each known row in the mean of m over the rows."""
        each, ends = 1 / _sums(self.shares, window), len(self.shares) + 1
        steps = np.bincount(window[0], each, ends) - np.bincount(window[1], each, ends)
        return self.shares * steps.cumsum()[:-1].clip(0) / len(each)


def _sums(values: np.ndarray, window: Window) -> np.ndarray:  # [n_known] -> [n]
    cumulated = np.concatenate([[0.0], values.cumsum()])
    return cumulated[window[1]] - cumulated[window[0]]


def _lower_ends(rows: np.ndarray, shares: np.ndarray, tail: float) -> np.ndarray:
    """Return the value of each column up to which rows have the share `tail`, [n, D] to [D]."""
    # so many rows have it in any case: no others need an order
    most = min(len(rows), int(tail / shares.min()) + 2)
    lowest = rows.argpartition(most - 1, 0)[:most]
    found = np.empty(rows.shape[1])
    for d, places in enumerate(lowest.T):
        places = places[rows[places, d].argsort()]
        end = np.searchsorted(shares[places].cumsum(), tail)
        found[d] = rows[places[min(end, most - 1)], d]
    return found


class ColumnRanges(NamedTuple):
    """Range of nearly all training rows per column."""

    low: np.ndarray  # [D]
    high: np.ndarray  # [D]
    rows: int  # effective number of rows that gave the ranges, 1 / Σ share²

    @classmethod
    def of(cls, environments: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> Self:
        """Compute the ranges from rows `[n, D]` of each environment and their weights."""
        shares = np.concatenate(equal_shares(weights))
        rows = np.concatenate(environments)
        tail = USUAL_BEYOND / 2
        above = tail + ROUNDING  # at most the tail lies above the upper end
        low = _lower_ends(rows, shares, tail - ROUNDING)
        return cls(low, -_lower_ends(-rows, shares, above), round(1 / (shares**2).sum()))

    def beyond(self, rows: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
        """Return which values lie beyond their column's range."""
        found = rows < self.low
        found |= rows > self.high
        return found


@dataclass(frozen=True, kw_only=True)
class UnseenCount:
    """Number of rows with a cell of a kind that training never had, in one column."""

    column: str
    kind: Literal["category", "missing"]
    rows: int
    of: int  # rows in all
    examples: tuple[str, ...]  # the first unknown categories

    @property
    def sentence(self) -> str:
        """The column, the number of rows and what they hold."""
        name = shorten(self.column)
        if self.kind == "category":
            shown = ", ".join(repr(shorten(each)) for each in self.examples)
            rows = f"{self.rows:,} of {self.of:,} rows"
            return f"{name}: {rows} have a category unknown to training, such as {shown}"
        all_rows = self.rows == self.of
        where = f"all {self.of:,} rows" if all_rows else f"{self.rows:,} of {self.of:,} rows"
        return f"{name}: missing in {where}, and never in training"

    def as_dict(self) -> dict[str, object]:
        """Return the count for JSON."""
        return {**asdict(self), "examples": list(self.examples)}

    def add(self, other: "UnseenCount") -> "UnseenCount":
        """Return the count of two parts of a table."""
        examples = tuple(dict.fromkeys((*self.examples, *other.examples)))[:MOST_EXAMPLES]
        rows, of = self.rows + other.rows, self.of + other.of
        return replace(self, rows=rows, of=of, examples=examples)


class UnseenCells(NamedTuple):
    """Cells of one column of a kind that training never had.

    Attributes
    ----------
    column : str
        Name of the column.
    kind : {"category", "missing"}
        Unknown categories, or missing cells in a column that was never missing.
    rows : ndarray of shape (n_rows,)
        Which rows have such a cell.
    examples : tuple of str
        The first unknown categories.
    """

    column: str
    kind: Literal["category", "missing"]
    rows: np.ndarray  # [n], bool
    examples: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Reason of the verdict on such rows."""
        name = shorten(self.column)
        return f"unknown category in {name}" if self.kind == "category" else f"missing {name}"

    @property
    def counted(self) -> UnseenCount:
        """Number of such rows."""
        return UnseenCount(
            column=self.column,
            kind=self.kind,
            rows=int(self.rows.sum()),
            of=len(self.rows),
            examples=self.examples,
        )


def flag_unseen(judged: Any, unseen: Iterable[UnseenCells]) -> Any:
    """Return a record of verdicts and reasons in which no row with unseen cells is supported."""
    verdicts, reasons = judged.verdicts.copy(), judged.reasons.copy()
    for cells in unseen:
        verdicts[cells.rows & (verdicts == "supported")] = "rare"
        told = [f"{each}; {cells.reason}" if each else cells.reason for each in reasons[cells.rows]]
        reasons[cells.rows] = told
    return replace(judged, verdicts=verdicts, reasons=reasons)
