"""Ranges of columns in the training environments.

    beyond: x_d < q_d(α/2)  or  x_d > q_d(1 − α/2),   α = 1 %

with quantiles of the rows of all training environments, which have the same weight. Evidence on the
predictor's outputs cannot see an unusual row with an ordinary prediction; ranges find it, column by
column.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wri.ood.evidence import equal_shares

USUAL_BEYOND = 0.01  # α


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
