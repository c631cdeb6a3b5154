"""What densities see of a table for trees: numbers in one unit, categories as columns, no gaps.

    number      (x − mean) / scale; 0 where it is missing
    category    a column for each of its most common codes, in units too

Trees themselves split on the table as it is.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wri.rows import Scaling

MOST_CODES = 30  # columns that one column of categories becomes


def fill_gaps(X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
    """Every missing number replaced by the mean of its column, or by 0 where all are missing."""
    lost = np.isnan(X)
    if not lost.any():
        return X
    there = (~lost).sum(0)
    mean = np.where(lost, 0.0, X).sum(0) / np.maximum(there, 1)
    return np.where(lost, mean, X)


class ColumnView(NamedTuple):
    """How a table is seen, in units of the rows that were learned from."""

    numbers: np.ndarray  # [N], columns that hold numbers
    codes: np.ndarray  # [K, 2], column and code of each category that is seen
    scaling: Scaling  # of all N + K

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray | None, categorical: Sequence[int]) -> Self:
        """The view in units of these rows, `[n, D]`."""
        numbers = np.setdiff1d(np.arange(X.shape[1]), np.asarray(categorical, int))
        codes: list[tuple[int, float]] = []
        for column in categorical:
            own = X[:, column]
            found, count = np.unique(own[~np.isnan(own)], return_counts=True)
            common = np.sort(found[np.argsort(-count, kind="stable")][:MOST_CODES])
            codes += [(int(column), float(code)) for code in common]
        table = np.array(codes, float).reshape(-1, 2)
        return cls(numbers, table, Scaling.of(fill_gaps(_spread(X, numbers, table)), weights))

    @property
    def width(self) -> int:
        """Columns that are seen."""
        return len(self.numbers) + len(self.codes)

    def apply(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, N + K]
        """Rows as they are seen."""
        seen = self.scaling.apply(_spread(X, self.numbers, self.codes))
        return np.nan_to_num(seen, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _spread(X: np.ndarray, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Numbers, then a column of 0 and 1 for each code."""
    if not len(codes):
        return X[:, numbers]
    own = X[:, codes[:, 0].astype(int)] == codes[:, 1]
    return np.column_stack([X[:, numbers], own.astype(float)])
