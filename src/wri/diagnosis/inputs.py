"""Tables, targets and labels as users give them, and lists of names for sentences."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from wri.errors import InputError
from wri.rows import Scaling, find_constant_columns, find_missing

MANY = 20
"""With more different whole numbers than this, the user says whether they are classes."""
REPEAT_ROWS = (
    "repeat every row as often as it weighs, rows = np.repeat(np.arange(len(X)), weights) "
    "(scale and round weights that are not whole numbers)"
)
REPEAT_BLOCKS = f"{REPEAT_ROWS}, and let blocks name the original row, blocks=rows"


def standardised(x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, D]
    """Return columns with mean 0 and SD 1; constant columns are exactly zero."""
    return np.where(find_constant_columns(x), 0, Scaling.of(x).apply(x))


def read_target(y: Any, n: int) -> np.ndarray:  # [n]
    """Check the target: one value per row, none missing, not all the same."""
    y = np.asarray(y)
    if y.shape != (n,):
        raise InputError(f"y must hold one value per row, [{n}], not the shape {y.shape}")
    gap = find_missing(y)
    if gap is not None:
        raise InputError(
            f"y has no finite value in row {gap.row} ({gap.count} such rows); drop them"
        )
    if len(pd.unique(y)) < 2:
        raise InputError(f"y is {y[0]!r} in every row; give rows with different values")
    return y


def holds_classes(y: np.ndarray, classes: bool | None) -> bool:
    """Return whether y holds classes; None decides by the values of y."""
    distinct = len(pd.unique(y))
    if classes is None and y.dtype.kind in "iu" and distinct > MANY:
        raise InputError(
            f"y holds {distinct} different whole numbers; give classes=False if they are numbers, "
            "classes=True if they are classes"
        )
    return bool(distinct == 2 or y.dtype.kind != "f") if classes is None else classes


def numbers(y: np.ndarray, why: str = "with classes=False") -> np.ndarray:
    """Return y as floating-point numbers."""
    try:
        return y.astype(float)
    except (TypeError, ValueError) as error:
        raise InputError(f"y must hold numbers {why} ({error})") from error


def refuse_weights(sample_weight: Any, remedy: str = REPEAT_BLOCKS) -> None:
    """Raise an error for weights of rows that names the remedy."""
    if sample_weight is not None:
        raise InputError(f"sample_weight is not supported here: {remedy}")


def find_column(asked: Any, labels: Sequence[Any]) -> list[int]:
    """Return where a column stands: by its label, by its label as text, or else by its number.

    The text of a column without a label is "column 3", as results name it.
    """
    for names in (labels, [str(label) for label in labels]):
        found = [k for k, name in enumerate(names) if name == asked]
        if found:
            return found
    number = isinstance(asked, int | np.integer) and 0 <= asked < len(labels)
    return [int(asked)] if number else []


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Return some rows of a DataFrame or an array."""
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else np.asarray(X)[rows]


def drop_columns(X: Any, columns: Sequence[int]) -> Any:
    """Return a DataFrame or an array without some columns, given by number."""
    kept = [k for k in range(np.shape(X)[1]) if k not in set(columns)]
    return X.iloc[:, kept] if isinstance(X, pd.DataFrame) else np.asarray(X)[:, kept]


def move_columns(X: Any, columns: Sequence[int], rows: np.ndarray) -> Any:
    """Return a DataFrame or an array with some columns taken from other rows, types unchanged."""
    if not isinstance(X, pd.DataFrame):
        moved = np.array(X, order="C")
        moved[:, columns] = moved[:, columns][rows]
        return moved
    moved = X.copy(deep=False)
    for k in columns:
        moved.isetitem(k, X.iloc[:, k].take(rows).set_axis(X.index))
    return moved


def listed(names: tuple[str, ...], most: int = 6) -> str:
    """List the first `most` names for a sentence."""
    more = len(names) - most
    shown = [*names[:most], *([f"{more} more"] if more > 0 else [])]
    return " and ".join([", ".join(shown[:-1])] * (len(shown) > 1) + shown[-1:])


def short(label: object, most: int = 24) -> str:
    """Shorten a label for a figure by leaving out its middle."""
    text = str(label)
    if len(text) <= most:
        return text
    return f"{text[: most - most // 2 - 1]}…{text[len(text) - most // 2 :]}"


def short_labels(labels: Iterable[object], most: int = 24) -> list[str]:
    """Shorten labels for a figure; number them if short ones are equal."""
    found = [short(label, most) for label in labels]
    if len(set(found)) == len(found):
        return found
    return [f"{text} ({number})" for number, text in enumerate(found, 1)]
