"""Futures of a new site: which rows some columns of each row are taken from.

like        the rows as they are
unrelated   the columns' rows are permuted within the site, so they tell nothing about the target
reversed    classes: each row gets the columns of a row of another class, drawn within the site;
            numbers: the columns of the row with the opposite rank of the target within the site

The columns move together, so their relation to each other stays; their relation to the other
columns breaks unless it comes from the target.
"""

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np

Future = Literal["like", "unrelated", "reversed"]
FUTURES: tuple[Future, ...] = get_args(Future)
LIKE, UNRELATED, REVERSED = FUTURES
DRAWS = 5  # draws of rows per site and future
SENTENCES = {
    LIKE: "at sites like these",
    UNRELATED: "if {columns} told nothing",
    REVERSED: "if {columns} told the opposite",
}


def future_rows(
    x: np.ndarray, y: np.ndarray, columns: np.ndarray, future: Future, classes: bool
) -> Iterator[np.ndarray]:  # [n, D] each
    """Yield draws of a site's rows in a future; as they are, if no column can be moved.

    Equal sites give equal draws if their rows are in the order of their contents.
    """
    random = np.random.default_rng(0)
    for _ in range(DRAWS if future != LIKE and len(columns) else 1):
        taken = source_rows(y, future if len(columns) else LIKE, classes, random)
        moved = x.copy()
        if taken is not None:
            moved[:, columns] = x[taken][:, columns]
        yield moved


def source_rows(
    y: np.ndarray, future: Future, classes: bool, random: np.random.Generator
) -> np.ndarray | None:  # [n] -> [n]
    """Return for each row of a site the row whose columns it gets; None if there is none."""
    if future == LIKE:
        return np.arange(len(y))
    if future == UNRELATED:
        return random.permutation(len(y))
    return reverse_classes(y, random) if classes else reverse_numbers(y, random)


def reverse_classes(y: np.ndarray, random: np.random.Generator) -> np.ndarray | None:  # [n] -> [n]
    """Return for each row a row of another class; None if there is none."""
    taken = np.empty(len(y), int)
    for own in dict.fromkeys(y.tolist()):
        here = y == own
        others = np.flatnonzero(~here)
        if not len(others):
            return None
        # each of the other rows is used about equally often
        times = -(-int(here.sum()) // len(others))
        drawn = np.concatenate([random.permutation(others) for _ in range(times)])
        taken[here] = drawn[: here.sum()]
    return taken


def reverse_numbers(y: np.ndarray, random: np.random.Generator) -> np.ndarray | None:  # [n] -> [n]
    """Return for each row the row with the opposite rank of y; None if all are equal."""
    if y.min() == y.max():
        return None
    order = np.lexsort([random.random(len(y)), y])
    taken = np.empty(len(y), int)
    taken[order] = order[::-1]
    return taken
