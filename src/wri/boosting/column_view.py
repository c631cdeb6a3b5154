"""View of a table for densities: standardised numbers, categories as columns, no missing values.

    number      (x − mean) / scale; 0 where it is missing
    category    one standardised column per common code

Trees themselves split on the original table.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from wri.rows import Scaling

MOST_CODES = 30  # largest number of columns for one column of categories


def fill_gaps(X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
    """Replace missing numbers by the mean of their column, or by 0 if all are missing.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Numbers; missing ones are NaN.

    Returns
    -------
    filled : ndarray of shape (n_rows, n_features)
        Numbers without missing values.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import fill_gaps
    >>> fill_gaps(np.array([[1.0], [np.nan], [3.0]])).ravel().tolist()
    [1.0, 2.0, 3.0]
    """
    lost = np.isnan(X)
    if not lost.any():
        return X
    there = (~lost).sum(0)
    mean = np.where(lost, 0.0, X).sum(0) / np.maximum(there, 1)
    return np.where(lost, mean, X)


class ColumnView(NamedTuple):
    """View of a table for densities, standardised with the training rows.

    Parameters
    ----------
    numbers : ndarray of int of shape (N,)
        Columns that hold numbers.
    codes : ndarray of shape (K, 2)
        Column and code of each category that is seen.
    scaling : Scaling
        Mean and standard deviation of all N + K columns.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import ColumnView
    >>> X = np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 1.0]])
    >>> view = ColumnView.of(X, None, categorical=[1])
    >>> view.width, view.apply(X).shape
    (3, (3, 3))
    """

    numbers: np.ndarray  # [N], columns that hold numbers
    codes: np.ndarray  # [K, 2], column and code of each category that is seen
    scaling: Scaling  # of all N + K

    @classmethod
    def of(cls, X: np.ndarray, weights: np.ndarray | None, categorical: Sequence[int]) -> Self:
        """Make the view of these rows.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Training rows.
        weights : ndarray of shape (n_rows,) or None
            Weights of the rows.
        categorical : sequence of int
            Columns that hold categories.

        Returns
        -------
        view : ColumnView
            View, standardised with these rows.
        """
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
        """Number of columns of the view."""
        return len(self.numbers) + len(self.codes)

    def apply(self, X: np.ndarray) -> np.ndarray:  # [n, D] -> [n, N + K]
        """Return the view of rows.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        seen : ndarray of shape (n_rows, width)
            Standardised columns without missing values.
        """
        seen = self.scaling.apply(_spread(X, self.numbers, self.codes))
        return np.nan_to_num(seen, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _spread(X: np.ndarray, numbers: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the numbers, then one column of 0 and 1 per code."""
    if not len(codes):
        return X[:, numbers]
    own = X[:, codes[:, 0].astype(int)] == codes[:, 1]
    return np.column_stack([X[:, numbers], own.astype(float)])
