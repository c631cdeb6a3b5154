"""Columns of categories for trees: pandas categories, or codes.

LightGBM takes a category as a whole number from 0. In a pandas column of the type `category` each
label is replaced by its place among the categories of `fit`; a new category counts as missing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wri.errors import InputError, shorten

FROM_DTYPE = "from_dtype"
LARGEST_CODE = 2**16 - 1
"""Largest code of a category: LightGBM keeps a bit for each number up to the largest."""


def find_categories(X: Any) -> dict[str, np.ndarray]:
    """Return the categories of a DataFrame's columns of the type `category`, by name."""
    if not isinstance(X, pd.DataFrame):
        return {}
    found = {}
    for name, dtype in X.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            labels = dtype.categories.to_numpy()
            if len(labels) > LARGEST_CODE + 1:
                raise InputError(
                    f"column {shorten(name)!r} has {len(labels)} categories; at most "
                    f"{LARGEST_CODE + 1} are taken: join rare ones, or leave it out"
                )
            found[str(name)] = labels
    return found


def encode_categories(X: Any, categories: Mapping[str, np.ndarray]) -> Any:
    """Replace labels by their places among the known categories; new labels become NaN."""
    if not categories or not isinstance(X, pd.DataFrame):
        return X
    X = X.copy(deep=False)
    for name, labels in categories.items():
        if name in X.columns:
            place = pd.Index(labels).get_indexer(pd.Index(X[name].to_numpy(dtype=object)))
            X[name] = np.where(place < 0, np.nan, place.astype(float))
    return X


def find_columns(
    asked: Any, names: np.ndarray | None, width: int, categories: Mapping[str, np.ndarray]
) -> tuple[int, ...]:
    """Return the numbers of the columns that hold categories.

    Parameters
    ----------
    asked : str or sequence of str or int
        "from_dtype", or names or numbers of columns in addition to those of the type `category`.
    names : ndarray of shape (width,) or None
        Names of the columns.
    width : int
        Number of columns.
    categories : mapping of str to ndarray
        Labels of the columns of the type `category`.
    """
    places = {} if names is None else {str(name): place for place, name in enumerate(names)}
    found = {places[name] for name in categories}
    given: Sequence[Any] = () if isinstance(asked, str) and asked == FROM_DTYPE else asked
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InputError(
            f"categorical must be {FROM_DTYPE!r}, or a list of names or numbers of columns, not "
            f"{shorten(repr(asked))}"
        )
    for each in given:
        place: Any = places.get(each) if isinstance(each, str) else each
        whole = isinstance(place, int | np.integer) and not isinstance(place, bool)
        if not whole or not 0 <= int(place) < width:
            raise InputError(f"categorical names {shorten(repr(each))}, which is no column of X")
        found.add(int(place))
    return tuple(sorted(found))


def check_codes(X: np.ndarray, columns: Sequence[int], names: np.ndarray | None) -> None:
    """Refuse codes that LightGBM cannot take: they are whole numbers from 0."""
    for column in columns:
        own = X[:, column]
        wrong = np.flatnonzero(
            ~np.isnan(own) & ((own != np.floor(own)) | (own < 0) | (own > LARGEST_CODE))
        )
        if len(wrong):
            name = f"column {column}" if names is None else f"column {shorten(names[column])!r}"
            raise InputError(
                f"{name} is categorical and holds {own[wrong[0]]:g} in row {wrong[0]}; codes are "
                f"whole numbers from 0 to {LARGEST_CODE}: make it a pandas column of the type "
                "'category'"
            )


def forget_unknown(X: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """Replace impossible codes by NaN."""
    if not columns:
        return X
    X = X.copy()
    for column in columns:
        own = X[:, column]
        own[(own != np.floor(own)) | (own < 0) | (own > LARGEST_CODE)] = np.nan
    return X
