"""What is kept of training rows to judge a new site: their losses, and the ranges of columns.

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
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.special import entr

from wri.ood.evidence import equal_shares

NEIGHBOURS = 10  # smallest k; the square root of the known rows if that is larger
USUAL_BEYOND = 0.01  # α
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


class ColumnRanges(NamedTuple):
    """Range of nearly all training rows per column."""

    low: np.ndarray  # [D]
    high: np.ndarray  # [D]

    @classmethod
    def of(cls, environments: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> Self:
        """Compute the ranges from rows `[n, D]` of each environment and their weights."""
        shares = np.concatenate(equal_shares(weights))
        rows = np.concatenate(environments)
        low, high = np.empty(rows.shape[1]), np.empty(rows.shape[1])
        for d, column in enumerate(rows.T):
            order = column.argsort()
            cumulated = shares[order].cumsum()
            ends = np.searchsorted(cumulated, [USUAL_BEYOND / 2, 1 - USUAL_BEYOND / 2])
            low[d], high[d] = column[order[ends.clip(max=len(order) - 1)]]
        return cls(low, high)

    def beyond(self, rows: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
        """Return which values lie beyond their column's range."""
        found = rows < self.low
        found |= rows > self.high
        return found
