"""Which environment every row comes from: `groups=`, or a column of the table.

The column is what reaches `fit` everywhere, through cross-validation and, with `wri.make_pipeline`,
through preprocessing too; `predict` takes tables with and without it.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from wri.errors import InputError, shorten
from wri.rows import Environments, number_environments


def without_column(X: Any, column: str | None) -> Any:
    """The table without its environment column, if it has one."""
    if column is not None and isinstance(X, pd.DataFrame) and column in X.columns:
        return X.drop(columns=column)
    return X


def read_environments(
    X: Any, n_rows: int, groups: Iterable[Any] | None, column: str | None
) -> Environments:
    """Environments from `groups` or from a column of X; one for all rows without either.

    Parameters
    ----------
    X
        What `fit` was given; it must be a DataFrame where a column is named.
    groups
        One label a row, of any hashable type.
    column
        Name of the column that holds the labels. Where X has no such column, `groups` tells.
    """
    there = isinstance(X, pd.DataFrame) and column in X.columns
    if column is not None and not there and groups is None:
        if not isinstance(X, pd.DataFrame):
            raise InputError(
                f"environment={shorten(repr(column))} names a column, but X is a "
                f"{type(X).__name__}; give a DataFrame, or the environments as groups=. Behind "
                "preprocessing use wri.make_pipeline, which takes the column before"
            )
        raise InputError(f"X has no column {shorten(repr(column))}, which environment= names")
    if column is not None and there:
        found = number_environments(X[column], f"column {column!r}", n_rows)
        # with metadata routing on, cross-validation hands over groups as well
        if groups is not None and not found.same_as(number_environments(groups, "groups", n_rows)):
            raise InputError(
                f"groups and the column {column!r} tell different environments; leave one out"
            )
        return found
    if groups is None:
        return Environments(np.array(["all"], dtype=object), np.zeros(n_rows, int))
    return number_environments(groups, "groups", n_rows)
