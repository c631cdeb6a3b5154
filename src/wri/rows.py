"""Rows of a table: environments, units and missing values."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from math import inf
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from wri.errors import InputError, listed, shorten, warn_caller

ROUNDING = 1e-12
MOST_REPEATS = 10  # copies per row on average, up to which whole weights repeat rows
COLUMNS_AT_ONCE = 16  # that are hashed; more do not fit into the cache
RANKED = 5_000  # rows up to which ranks are hashed


class Environments(NamedTuple):
    """Environments of all rows."""

    labels: np.ndarray  # [E], in the order of `order_labels`
    number: np.ndarray  # [N], each row's place in `labels`

    @property
    def rows(self) -> list[np.ndarray]:
        """Row numbers of each environment."""
        return [np.flatnonzero(self.number == e) for e in range(len(self.labels))]

    def take(self, rows: np.ndarray) -> "Environments":
        """Return the environments of some rows, without labels that none of them has."""
        left, number = np.unique(self.number[rows], return_inverse=True)
        return Environments(self.labels[left], number)

    def same_as(self, other: "Environments") -> bool:
        """Return whether both divide the rows in the same way, whatever the labels."""
        if len(self.labels) != len(other.labels):
            return False
        pairs = np.unique(np.stack([self.number, other.number]), axis=1)
        return pairs.shape[1] == len(self.labels)


def number_environments(given: Iterable[Any], what: str, n_rows: int) -> Environments:
    """Number the labels of rows, of any hashable type, in their natural order."""
    import pandas as pd

    labels = pd.Series(_column(given))
    if len(labels) != n_rows:
        raise InputError(f"{what} has {len(labels)} labels for {n_rows} rows; give one per row")
    missing = np.flatnonzero(labels.isna())
    if len(missing):
        raise InputError(
            f"{what} has no label in row {missing[0]} ({len(missing)} such rows); fill or drop them"
        )
    number, found = pd.factorize(labels)
    distinct, place = merge_spellings(np.asarray(found), what)
    order = order_labels(distinct)
    return Environments(distinct[order], np.argsort(order)[place[number]])


def merge_spellings(labels: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Merge labels that differ only in blanks around them or in their type, and warn of them.

    "a ", " a" and "a" are one label, and so are 1 and "1"; the same rule in the whole package.
    Return the different labels without blanks, and the place of each given label among them.
    """
    spellings: dict[Any, list[int]] = {}
    for place, label in enumerate(labels):
        spellings.setdefault(_spelling(label), []).append(place)
    merged, places = np.empty(len(spellings), labels.dtype), np.empty(len(labels), int)
    for number, same in enumerate(spellings.values()):
        places[same] = number
        others = [labels[place] for place in same if not isinstance(labels[place], str)]
        merged[number] = others[0] if others else labels[same[0]].strip()
    twins = [[labels[place] for place in same] for same in spellings.values() if len(same) > 1]
    if twins:
        named = "; ".join(" and ".join(shorten(repr(each)) for each in same) for same in twins[:6])
        more = f"; and {len(twins) - 6} more" if len(twins) > 6 else ""
        warn_caller(
            f"{what}: labels that differ only in blanks around them or in their type are taken as "
            f"one: {named}{more}; rename them if they are different"
        )
    return merged, places


def _spelling(label: Any) -> Any:
    """Return the text of a label without blanks around it; whole numbers have no fraction."""
    if isinstance(label, str):
        return label.strip()
    number = read_number(label)
    if number is None or isinstance(label, bool | np.bool_):
        return label
    return str(int(number)) if abs(number) < inf and number == int(number) else str(number)


def order_labels(labels: Sequence[Any] | np.ndarray) -> list[int]:
    """Return the numbers of different labels in their natural order, the same in the whole package.

    Numbers and texts of numbers are ordered by value, other texts with the numbers in them by
    value ("site 2" before "site 10"), and equal values by their text ("1", "1.0"). Labels of any
    other type are ordered as Python compares them. Labels that cannot be compared keep their order.
    """
    values = [read_number(label) for label in labels]
    keys: list[Any] = list(labels)
    if all(value is not None and abs(value) < inf for value in values):
        ties = [(_text_key(str(label)), type(label).__name__) for label in labels]
        keys = list(zip(values, ties, strict=True))
    elif all(isinstance(label, str) for label in labels):
        keys = [_text_key(label) for label in labels]
    try:
        return sorted(range(len(keys)), key=keys.__getitem__)
    except TypeError:
        return list(range(len(keys)))


def read_number(label: Any) -> float | None:
    """Return the number that a label is or spells, also infinity and NaN; else None."""
    if isinstance(label, np.timedelta64):  # NumPy counts it among the integers
        return None
    if isinstance(label, Integral):
        return int(label)  # exact also beyond 2⁵³
    if isinstance(label, Real | Decimal):
        return float(label)
    if not isinstance(label, str) or "_" in label:  # Python alone reads 1_000 as a number
        return None
    for kind in (int, float):
        try:
            return kind(label)
        except ValueError:
            continue
    return None


def _text_key(text: str) -> tuple[list[tuple[int, str]], str]:
    """Return runs of digits by value and the texts between them; the whole text breaks ties."""
    between, *rest = re.split("([0-9]+)", text)
    key = [(0, between)]
    for digits, after in zip(rest[::2], rest[1::2], strict=True):
        digits = digits.lstrip("0")
        key += [(len(digits), digits), (0, after)]
    return key, text


def without_gradient(values: Any) -> Any:
    """Return a tensor of PyTorch as an array, and anything else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


@contextmanager
def name_unreadable_cells(**tables: Any) -> Iterator[None]:
    """Turn errors of conversion to float64 into one that names the text; refuse dates."""
    for what, values in tables.items():
        _refuse_dates(what, values)
    try:
        yield
    except OverflowError as error:
        raise InputError(
            f"{' or '.join(tables)} contains a number beyond 1.8e308; correct it, or give another "
            "unit"
        ) from error
    except ValueError as error:
        if "could not convert string" in str(error):
            for what, values in tables.items():
                _refuse_texts(what, values, error)
        raise


def _refuse_texts(what: str, values: Any, error: ValueError) -> None:
    """Raise an error that names the first text cell and all columns of texts, with the remedy."""
    cells = np.asarray(values, dtype=object)
    columns = cells.T if cells.ndim == 2 else [cells]
    texts = {d: row for d, own in enumerate(columns) if (row := _first_text(own)) is not None}
    if not texts:
        return
    first, row = next(iter(texts.items()))
    if cells.ndim == 1:
        raise InputError(
            f"{what} contains text: row {row} is {shorten(cells[row])!r}; give numbers, or fit a "
            "classifier"
        ) from error
    names = getattr(values, "columns", None)
    named = [str(d) if names is None else shorten(repr(names[d])) for d in texts]
    others = f" (columns with text: {', '.join(named)})" if named[1:] else ""
    raise InputError(
        f"{what} contains text: row {row}, column {named[0]} is {shorten(cells[row, first])!r}"
        f"{others}; encode it within wri.make_pipeline, for example "
        f"make_pipeline(make_column_transformer((OneHotEncoder(), [{', '.join(named)}]), "
        "remainder='passthrough'), estimator), or drop it"
    ) from error


def _first_text(cells: np.ndarray) -> int | None:  # [n]
    texts = (isinstance(cell, str) and read_number(cell) is None for cell in cells)
    return next((row for row, is_text in enumerate(texts) if is_text), None)


def _refuse_dates(what: str, values: Any) -> None:
    """Refuse columns of dates and durations, which NumPy takes for numbers or not at all."""
    is_table = hasattr(values, "columns") and hasattr(values, "dtypes")
    one = [("", getattr(values, "dtype", None))]
    dtypes = zip(values.columns, values.dtypes, strict=True) if is_table else one
    dates = [name for name, dtype in dtypes if getattr(dtype, "kind", None) in ("m", "M")]
    if dates:
        where = f" in column {listed(dates)}" if is_table else ""
        raise InputError(
            f"{what} contains dates or durations{where}; make numbers of them, such as an age in "
            "years, or drop them"
        )


def _column(given: Iterable[Any]) -> Any:
    import pandas as pd

    given = without_gradient(given)
    if isinstance(given, np.ndarray | pd.Series | pd.Index):
        if given.ndim != 1:
            raise InputError(f"groups must be a list of labels, not of the shape {given.shape}")
        return np.asarray(given)
    return list(given)


def find_constant_columns(values: np.ndarray) -> np.ndarray:  # [n, D] -> [D], or [n] -> []
    """Return which columns vary only by rounding: at most 1e-12 of their largest absolute value."""
    return _is_constant(values.min(0), values.max(0))


def _is_constant(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))


class Scaling(NamedTuple):
    """Standardisation z = (x − mean) / scale with the standard deviation as scale.

    A column that varies only by rounding (`find_constant_columns`) is constant and keeps scale 1.
    """

    mean: np.ndarray  # [D], or a number
    scale: np.ndarray

    @classmethod
    def of(
        cls, values: np.ndarray, weights: np.ndarray | None = None, *, overwrite: bool = False
    ) -> Self:
        """Compute mean and scale of rows, with or without weights; large tables in their place."""
        low, high = values.min(0), values.max(0)
        mean = np.average(values, 0, weights)
        squares = np.subtract(values, mean, out=values if overwrite else None)
        with np.errstate(over="ignore"):
            np.square(squares, out=squares)
        scale = np.sqrt(np.average(squares, 0, weights))
        if np.isinf(scale).any():
            raise InputError(
                f"numbers of the order of {np.abs([low, high]).max():.0e} have squares beyond "
                "float64; give such columns in another unit"
            )
        # the mean of many equal numbers is rounded too, so the scale alone is not enough
        return cls(mean, np.where(_is_constant(low, high) | (scale == 0), 1.0, scale))

    def apply(self, values: np.ndarray, *, overwrite: bool = False) -> np.ndarray:
        """Standardise values; large tables in their place."""
        standard = np.subtract(values, self.mean, out=values if overwrite else None)
        standard /= self.scale
        return standard

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Return values in their original unit."""
        return values * self.scale + self.mean


def in_proportion(weights: np.ndarray) -> np.ndarray:  # [n] -> [m]
    """Return places repeated by whole weights; otherwise n places in proportion, up to rounding."""
    n = len(weights)
    if (weights == weights.round()).all() and weights.sum() <= MOST_REPEATS * n:
        return np.repeat(np.arange(n), weights.astype(int))
    ends = np.floor(n * weights.cumsum() / weights.sum() + 0.5).astype(int)
    return np.repeat(np.arange(n), np.diff(ends, prepend=0))


def scramble(values: np.ndarray) -> np.ndarray:
    """Return a hash of 64-bit numbers (the finaliser of SplitMix64; Steele et al., 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        values ^= values >> np.uint64(shift)  # in place: tables may be large
        values *= np.uint64(factor)
    return values


def hash_contents(values: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [n, D], [n] -> [n]
    """Return a number per row from its values; the order of rows and columns does not matter."""
    return _hash_columns(values, lambda some: scramble(bits_of(some)), scramble(bits_of(targets)))


def hash_rows(columns: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:  # [n, D], [n]
    """Return a random number per row that depends on its contents among the rows and on the seed.

        signature of a column = Σ over distinct pairs (value, target) of hash(rank, rank of target)
        number of a row       = Σ over columns of hash(rank, signature) + hash(rank of target)

    Ranks do not depend on units, sums not on the order of what is added. In tables of more than
    `RANKED` rows the values themselves take the place of ranks.
    """
    target = scramble(_codes(targets[None]))

    def number(some: np.ndarray) -> np.ndarray:
        codes = scramble(_codes(some))
        return scramble(codes ^ _sign_columns(codes * np.uint64(3) + target))

    return _hash_columns(columns, number, target[0], seed)


def _hash_columns(
    columns: np.ndarray,  # [n, D]
    number: Callable[[np.ndarray], np.ndarray],  # of the cells of some columns, [D', n]
    start: np.ndarray,  # [n]
    seed: int = 0,
) -> np.ndarray:  # [n]
    """Return a number per row: the sum over its columns, hashed."""
    total = start.copy()
    for first in range(0, columns.shape[1], COLUMNS_AT_ONCE):
        some = np.ascontiguousarray(columns[:, first : first + COLUMNS_AT_ONCE].T)
        total += number(some).sum(0, dtype=np.uint64)
    return scramble(total + np.uint64(seed % 2**63))


def _sign_columns(pairs: np.ndarray) -> np.ndarray:  # [D, n] -> [D, 1]
    """Return a number per column from the set of its values: repeated rows count once."""
    if pairs.shape[1] > RANKED:
        values = scramble(pairs)
        return values.min(1, keepdims=True) + scramble(values.max(1, keepdims=True))
    pairs = np.sort(pairs)
    values = scramble(pairs)
    values[:, 1:][pairs[:, 1:] == pairs[:, :-1]] = 0
    return values.sum(1, dtype=np.uint64, keepdims=True)


def _codes(values: np.ndarray) -> np.ndarray:  # [D, n] -> [D, n] uint64
    """Return a number per value: its rank in its row, or its bits if there are many."""
    if values.shape[1] > RANKED:
        return bits_of(values)
    order = values.argsort()
    ordered = np.take_along_axis(values, order, 1)
    new = np.zeros(values.shape, np.uint64)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ranks = np.empty_like(new)
    np.put_along_axis(ranks, order, new.cumsum(1), 1)
    return ranks


def bits_of(values: np.ndarray) -> np.ndarray:
    """Return numbers as 64-bit patterns; −0.0 becomes 0.0."""
    return (np.asarray(values, np.float64) + 0.0).view(np.uint64)


class MissingCell(NamedTuple):
    """The first cell without a finite value, in reading order."""

    row: int
    column: int  # 0 where values are a list
    kind: Literal["NaN", "infinity"]  # NaN for every sort of missing value
    count: int  # type: ignore[assignment]  # of such cells in all; nobody needs tuple.count


def find_missing(values: np.ndarray) -> MissingCell | None:  # [n, D] or [n]
    """Return the first missing or infinite cell, or None; the same rule in the whole package."""
    if values.dtype.kind in "iub":
        return None
    if values.dtype.kind in "fc":
        lost = ~np.isfinite(values)
    else:  # texts and objects
        import pandas as pd

        lost = np.asarray(pd.isna(values))
    if not lost.any():
        return None
    row, *column = (int(place) for place in np.argwhere(lost)[0])
    infinite = values.dtype.kind in "fc" and bool(np.isinf(values[row, *column]))
    kind: Literal["NaN", "infinity"] = "infinity" if infinite else "NaN"
    return MissingCell(row, column[0] if column else 0, kind, int(lost.sum()))


def refuse_infinite(predictions: np.ndarray) -> None:  # [n, C]
    """Raise an error that names the first row without a finite prediction."""
    infinite = np.flatnonzero(~np.isfinite(predictions).all(1))
    if len(infinite):
        raise InputError(
            f"the prediction for row {infinite[0]} is not finite ({len(infinite)} such rows): its "
            "values are too large for the model; correct or drop them, verdict calls them outside"
        )


def refuse_missing(X: np.ndarray, names: Any, what: str = "X") -> None:
    """Raise an error that names the first cell with NaN or infinity."""
    lost = find_missing(X)
    if lost is None:
        return
    where = f"column {lost.column}" if names is None else f"column {shorten(names[lost.column])!r}"
    raise InputError(
        f"{what} contains {lost.kind}: row {lost.row}, {where} ({lost.count} cells in all are NaN "
        "or infinity); fill them first, for example with sklearn.impute.SimpleImputer, or drop the "
        "rows"
    )
