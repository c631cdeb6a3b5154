"""Environment of each row, from `groups=` or from a column of the table.

The column reaches `fit` everywhere: through cross-validation and, with `wri.make_pipeline`, through
preprocessing. `predict` takes tables with and without it.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from wri.errors import InputError, shorten
from wri.rows import Environments, number_environments


def without_column(X: Any, column: str | None) -> Any:
    """Return the table without its environment column, if it has one."""
    if column is not None and isinstance(X, pd.DataFrame) and column in X.columns:
        return X.drop(columns=column)
    return X


def read_environments(
    X: Any, n_rows: int, groups: Iterable[Any] | None, column: str | None
) -> Environments:
    """Read the environments from `groups` or from a column of X; without either there is one.

    Parameters
    ----------
    X : DataFrame or array-like
        Table given to `fit`; it must be a DataFrame if a column is named.
    n_rows : int
        Number of rows.
    groups : iterable or None
        One label per row, of any hashable type.
    column : str or None
        Name of the column that holds the labels. If X has no such column, `groups` is used.
    """
    there = isinstance(X, pd.DataFrame) and column in X.columns
    if column is not None and not there and groups is None:
        if not isinstance(X, pd.DataFrame):
            raise InputError(
                f"environment={shorten(repr(column))} names a column, but X is a "
                f"{type(X).__name__}; give a DataFrame, or the environments as groups=. With "
                "preprocessing use wri.make_pipeline, which reads the column before it"
            )
        raise InputError(f"X has no column {shorten(repr(column))}, which environment= names")
    if column is not None and there:
        found = number_environments(X[column], f"column {column!r}", n_rows)
        # with metadata routing on, cross-validation passes groups as well
        if groups is not None and not found.same_as(number_environments(groups, "groups", n_rows)):
            raise InputError(
                f"groups and the column {column!r} name different environments; give one of them"
            )
        return found
    if groups is None:
        return Environments(np.array(["all"], dtype=object), np.zeros(n_rows, int))
    return number_environments(groups, "groups", n_rows)
