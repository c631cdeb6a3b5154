"""Loss to expect of rows by their predictions, from rows whose losses are known.

    m(f) = Σ_{j near f} s_j l_j / Σ_{j near f} s_j

near f: the k rows whose predictions stand next to f in sorted order, and all that are tied with it;
s_j: the row's share, every environment counted alike. Predictions are sorted by one number: the
number predicted, the probability of the second of two classes, and for more classes the loss that
the model's own probabilities expect, −Σ_c p_c log p_c. Sorting and cumulated sums take
O((n + n_known) log n_known) time and a few numbers per row.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from scipy.special import entr

from wri.ood.evidence import HeldOutRows

NEIGHBOURS = 10  # k at least; the root of the known rows where that is more


class LeftOutSites(NamedTuple):
    """Training sites, each as a new one: left out of training, then met."""

    losses: np.ndarray  # [E], mean loss there
    expected: np.ndarray  # [E], what its predictions let expect, by the other sites


def sorting_number(predictions: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
    """The one number by which predictions are sorted."""
    classes = predictions.shape[1]
    if classes == 1:
        return predictions[:, 0]
    return predictions[:, 1] if classes == 2 else entr(predictions).sum(1)


class NearRows(NamedTuple):
    """For every row, which of the sorted known rows are near: from `start` up to `end`."""

    start: np.ndarray  # [n]
    end: np.ndarray  # [n]


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpectedLoss:
    """m(f), from known rows in the order of their predictions."""

    numbers: np.ndarray  # [n_known], ascending
    losses: np.ndarray  # [n_known]
    shares: np.ndarray  # [n_known]
    order: np.ndarray  # [n_known], places of these rows in what was given
    k: int

    @classmethod
    def of(cls, known: HeldOutRows) -> Self:
        """From rows whose losses are known; there must be at least one."""
        numbers = sorting_number(known.predictions)
        order = numbers.argsort(kind="stable")
        return cls(
            numbers=numbers[order],
            losses=known.losses[order],
            shares=known.shares[order],
            order=order,
            k=min(len(order), max(NEIGHBOURS, round(len(order) ** 0.5))),
        )

    def near(self, predictions: np.ndarray) -> NearRows:  # [n, C]
        at = sorting_number(predictions)
        first, last = (np.searchsorted(self.numbers, at, side) for side in ("left", "right"))
        start = ((first + last) // 2 - self.k // 2).clip(0, len(self.numbers) - self.k)
        return NearRows(np.minimum(start, first), np.maximum(start + self.k, last))

    def mean(self, window: NearRows, values: np.ndarray) -> np.ndarray:  # [n], [n_known] -> [n]
        """Means of the near rows' values, by their shares."""
        mass, total = (_cumulated(part) for part in (self.shares, self.shares * values))
        return _between(total, window) / _between(mass, window)

    def weights(self, window: NearRows) -> np.ndarray:  # [n_known]
        """W_j, the weight of every known row in the mean of m over the rows."""
        each = 1 / _between(_cumulated(self.shares), window)
        ends = len(self.shares) + 1
        steps = np.bincount(window.start, each, ends) - np.bincount(window.end, each, ends)
        return self.shares * steps.cumsum()[:-1].clip(0) / len(each)


def _cumulated(values: np.ndarray) -> np.ndarray:  # [n] -> [n + 1]
    return np.concatenate([[0.0], values.cumsum()])


def _between(cumulated: np.ndarray, window: NearRows) -> np.ndarray:
    return cumulated[window.end] - cumulated[window.start]
