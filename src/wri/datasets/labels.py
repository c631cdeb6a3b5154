"""Labels and targets in a column of a table: their names in order, and their task.

Names of environments and classes are the texts of the cells without blanks around them, in natural
order: "2" before "10", "site 2" before "site 10". Rows in messages are counted from 1, below the
header and without blank lines.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wri.errors import InputError, listed, shorten
from wri.rows import merge_spellings, order_labels, read_number

MOST_FRACTIONS = 20  # more different labels than this, with fractions, are a measurement
TASKS = ("classes", "numbers")
FEWEST_ROWS = 2  # per environment, for the batches of every objective


def read_labels(
    path: Path | str, column: str, values: Any
) -> tuple[tuple[str, ...], np.ndarray]:  # [n] -> names, [n]
    """Return names in order, and the number of each row's name; blank texts are missing."""
    import pandas as pd

    codes, different = pd.factorize(values)  # −1 where missing
    found, places = merge_spellings(np.asarray(different, object), f"{path}: column {column!r}")
    names = [str(each) for each in found]
    codes = np.append(places, -1)[codes]
    is_blank = np.array([not name.strip() for name in names] + [True])  # the last is missing
    lost = np.flatnonzero(is_blank[codes])
    if len(lost):
        raise InputError(
            f"{path}: column {column!r}, row {lost[0] + 1} is missing ({len(lost)} in all); fill "
            "in or drop such rows"
        )
    numbers = [read_number(name) for name in names]
    same = Counter(numbers)
    twins = [name for name, key in zip(names, numbers, strict=True) if same[key] > 1]
    if twins and None not in numbers:
        raise InputError(
            f"{path}: column {column!r} spells one number in several ways, {listed(twins)}; use "
            "one of them"
        )
    order = order_labels(names)
    return tuple(names[code] for code in order), np.argsort(order)[codes]


def count_sites(
    where: Path | str, column: str, names: Sequence[str], codes: np.ndarray
) -> np.ndarray:  # [n] -> [E]
    """Return the rows of each site; refuse a single site, and a site with too few rows."""
    sizes = np.bincount(codes)
    if len(names) < 2:
        raise InputError(
            f"{where}: column {column!r} holds only one site, {shorten(names[0])!r}; at least two "
            "are needed: name another column, or add rows of another site"
        )
    if sizes.min() < FEWEST_ROWS:
        raise InputError(
            f"{where}: site {shorten(names[int(sizes.argmin())])!r} of column {column!r} has "
            f"{sizes.min()} row; at least {FEWEST_ROWS} are needed: drop or merge it"
        )
    return sizes


def read_targets(
    path: Path | str, target: str, values: Any, task: str | None
) -> tuple[tuple[str, ...] | None, np.ndarray]:
    """Return names and numbers of classes, or None and numbers.

    Without a `task`, targets are numbers if they are fractions of more than 20 different values, or
    numbers of which most differ.
    """
    import pandas as pd

    found = pd.Series(pd.unique(np.asarray(values, dtype=object))).dropna()
    numbers = [read_number(str(each)) for each in found]
    fractions = any((number or 0) % 1 for number in numbers)
    differ = (fractions and len(found) > MOST_FRACTIONS) or 2 * len(found) > len(values)
    if task == "numbers" or (task is None and None not in numbers and differ):
        return None, _numbers(path, target, values)
    classes, y = read_labels(path, target, values)
    if len(classes) == 1:
        raise InputError(
            f"{path}: column {target!r} holds only one class, {shorten(classes[0])!r}; at least "
            "two are needed: name another column"
        )
    if 2 * len(classes) > len(y):
        raise InputError(
            f"{path}: column {target!r} has {len(classes)} different values in {len(y)} rows, such "
            f"as {shorten(classes[0])}; name a column of classes or of numbers"
        )
    return classes, y


def _numbers(path: Path | str, column: str, values: Any) -> np.ndarray:
    """Return the targets of a regression."""
    import pandas as pd

    given = pd.Series(np.asarray(values, dtype=object))
    numbers = pd.to_numeric(given, errors="coerce").to_numpy(float)
    lost = np.flatnonzero(~np.isfinite(numbers))
    if len(lost):
        cell = given[lost[0]]
        what = "missing" if pd.isna(cell) else f"{shorten(cell)!r}, not a number"
        raise InputError(
            f"{path}: column {column!r}, row {lost[0] + 1} is {what} ({len(lost)} in all); "
            "correct or drop such rows, or treat the column as classes"
        )
    if len(np.unique(numbers)) == 1:
        raise InputError(
            f"{path}: column {column!r} is {numbers[0]:g} in every row; name another column"
        )
    return numbers
