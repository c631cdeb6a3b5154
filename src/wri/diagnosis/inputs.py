"""Tables, targets and blocks as users give them, and names in sentences and figures.

Blocks are sets of dependent rows, such as the weeks of a site or the visits of a patient. Rows of
different blocks are independent, rows of one block need not be. A cell is the part of a block in
one environment; it counts as one observation. Without blocks every row is its own block. Many
blocks are merged at random: sums of independent blocks are independent, and 2,000 of them per
environment estimate a variance to 3 %.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from wri.errors import InputError, shorten
from wri.rows import (
    Environments,
    Scaling,
    find_constant_columns,
    find_missing,
    name_unreadable_cells,
    number_environments,
    refuse_missing,
    without_gradient,
)

MANY = 20
"""With more different whole numbers than this, the user says whether they are classes."""
MOST_CELLS = 2000
"""Cells per environment beyond which blocks are merged."""


class Diagnosis(ABC):
    """Result of a diagnosis, which prints as its `meaning`."""

    @property
    @abstractmethod
    def meaning(self) -> str:
        """The result and what to do, in plain words."""

    def __repr__(self) -> str:
        return self.meaning


class NumericTable(NamedTuple):
    """Table of numbers with the environment of each row."""

    x: np.ndarray  # [n, D]
    names: tuple[str, ...]  # [D]
    environments: Environments


def read_sites(X: Any, groups: Iterable[Any]) -> NumericTable:
    """Read a table of numbers without missing values from at least two environments."""
    shape = np.shape(X)
    if len(shape) != 2:
        raise InputError(f"X must be a table [rows, columns], not of the shape {shape}")
    environments = number_environments(groups, "groups", shape[0])
    if len(environments.labels) < 2:
        raise InputError("groups name one environment; at least two are needed to compare")
    names = None
    if isinstance(X, pd.DataFrame):
        names = [str(name) for name in X.columns]
        _refuse_environment(X, environments)
    try:
        with name_unreadable_cells(X=X):
            x = np.asarray(without_gradient(X), np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(
            f"X must hold numbers only ({error}); encode texts and categories first"
        ) from error
    refuse_missing(x, names)
    numbered = names or [f"column {column}" for column in range(x.shape[1])]
    return NumericTable(x, tuple(numbered), environments)


def _refuse_environment(X: pd.DataFrame, environments: Environments) -> None:
    """Refuse a column that names the environments; it is not a feature."""
    for place, name in enumerate(X.columns):
        number, labels = pd.factorize(X.iloc[:, place])
        if environments.same_as(Environments(np.asarray(labels), number)):
            raise InputError(
                f"column {shorten(name)!r} of X names the environments like groups; drop it from X"
            )


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


def find_columns(asked: Any, labels: Sequence[Any], option: str) -> list[int]:
    """Return the numbers of columns, given by label, by the text of a label, or else by number."""
    given, texts, found = list(labels), [str(label) for label in labels], list[int]()
    kinds: tuple[Sequence[Any], ...] = (given, texts, range(len(texts)))
    for column in [asked] if isinstance(asked, str | int | np.integer) else asked:
        names = next((names for names in kinds if column in names), None)
        if names is None:
            have = listed(tuple(texts))
            raise InputError(
                f"{option} names column {column!r}, which is not in X: it has {have}, or numbers "
                "from 0"
            )
        if names.index(column) in found:
            raise InputError(f"{option} names column {column!r} twice")
        found.append(names.index(column))
    if not found:
        raise InputError(f"{option} names no column; name at least one")
    return found


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


class BlockCells(NamedTuple):
    """Cells: the parts of the blocks in each environment."""

    of_row: np.ndarray  # [n], each row's cell
    environment: np.ndarray  # [m], each cell's environment, in ascending order
    block: np.ndarray  # [m], each cell's block, from 0 on
    independent: bool  # whether rows of one cell are, too: they were merged at random

    def of_environment(self, e: int) -> np.ndarray:
        """Return the numbers of an environment's cells."""
        return np.flatnonzero(self.environment == e)

    def take(self, rows: np.ndarray) -> "BlockCells":
        """Return the cells of some rows; blocks keep their numbers."""
        left, of_row = np.unique(self.of_row[rows], return_inverse=True)
        return BlockCells(of_row, self.environment[left], self.block[left], self.independent)

    def sum(self, values: np.ndarray) -> np.ndarray:  # [n, ...] -> [m, ...]
        """Sum values over the rows of each cell."""
        order = np.argsort(self.of_row, kind="stable")
        starts = np.searchsorted(self.of_row[order], np.arange(len(self.block)))
        return np.add.reduceat(values[order], starts, 0)


def number_blocks(blocks: Iterable[Any] | None, n_rows: int) -> np.ndarray | None:  # [n]
    """Return the block number of each row; None if every row is its own block."""
    return None if blocks is None else number_environments(blocks, "blocks", n_rows).number


def make_cells(
    environments: Environments, block: np.ndarray | None, most: int = MOST_CELLS, seed: int = 0
) -> BlockCells:
    """Make the cells of all rows, at most about `most` per environment."""
    random, number = np.random.default_rng(seed), environments.number
    independent = block is None
    if block is None:
        block = np.arange(len(number))
        for rows in environments.rows:
            if len(rows) > most:
                block[rows] = rows[np.arange(len(rows)) % most][random.permutation(len(rows))]
    else:
        pairs = np.unique(np.stack([number, block]), axis=1)
        if np.bincount(pairs[0]).max() > most:
            block = random.integers(most, size=block.max() + 1)[block]
    both = number * (block.max() + 1) + block
    cells, of_row = np.unique(both, return_inverse=True)
    environment, own = np.divmod(cells, block.max() + 1)
    return BlockCells(of_row, environment, np.unique(own, return_inverse=True)[1], independent)
