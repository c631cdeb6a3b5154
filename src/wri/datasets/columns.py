"""Columns of a raw table: their kinds, and how their cells are read.

    number     numbers, or texts of numbers with blanks around them   ─► float, missing NaN
    yes/no     booleans, yes and no, y and n, true and false, 1 and 0 ─► 1 or 0, missing NaN
    category   texts, or numbers that are codes                       ─► text, missing "(missing)"

Columns of all other kinds are not read: constant ones and those left out. Missing cells are empty
cells, NaN, "?", and the texts that pandas reads as missing in a CSV file.

The kind is the first of these that fits the cells:

    constant   all cells are equal, or all are missing
    yes/no     booleans, or only yes and no, true and false, 1 and 0, …
    date       dates and times, as such or as texts
    id         whole numbers that count rows, or mostly different ones with a name such as
               `patient_id`; short texts that are mostly different
    number     numbers, or texts of numbers
    mixed      mostly different numbers with other texts among them, such as "< 5"
    text       mostly different texts with several words
    category   all other texts

Few different whole numbers may be codes, by the name of the column, such as `icd_code`, or by zeros
in front. They are read as numbers, with a hint.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.utils.validation import check_is_fitted

from wri.datasets.text_tables import MISSING
from wri.errors import InputError, check_option, listed, shorten
from wri.ood.held_out import MOST_EXAMPLES, UnseenCells
from wri.rows import read_number

Kind = Literal[
    "number", "yes/no", "category", "constant", "date", "id", "text", "mixed", "left out"
]
KINDS: tuple[str, ...] = get_args(Kind)
READ = ("number", "yes/no", "category")
"""Kinds of columns that are features."""
REFUSED = ("date", "id", "text", "mixed")
"""Kinds that the user must decide about."""
NO_CATEGORY = "(missing)"
_YES = {"yes": 1.0, "y": 1.0, "true": 1.0, "t": 1.0, "1": 1.0, "1.0": 1.0}
_NO = {"no": 0.0, "n": 0.0, "false": 0.0, "f": 0.0, "0": 0.0, "0.0": 0.0}
YES_NO = _YES | _NO
SHOWN = 6  # columns named in a message
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\d{1,2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2})?"
)
ID_NAME = re.compile(
    r"(?i:(^|[_ .-])(id|ids|uuid|guid|mrn|key|index|nr|rowid|row)$|^unnamed: )|[a-z]I[Dd]$"
)
CODE_NAME = re.compile(
    r"(?i:(^|[_ .-])(codes?|icd(9|10)?|cpt|drg|atc|zip|zipcode|postcode|plz|type|class|category|"
    r"group|ward|department|region|country|state)([_ .-]?(nr|no|id))?$)|[a-z](Code|Type)$"
)
MOST_CODES = 50  # different numbers above which a column is not taken for codes
FEWEST_CODES = 3
CODE_ROWS = 5  # rows per different number, at least
FEW = 20  # rows below which different cells do not make a column an id
MOSTLY = 0.5  # share of different cells above which texts are not categories
OFTEN = 0.2  # the same for numbers in a column named like an id
WORDS = 3  # mean number of words from which mostly different texts are free text


@dataclass(frozen=True)
class Column:
    """Column of a table: name, kind, number of missing cells and categories.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : str
        One of `KINDS`.
    missing : int, default=0
        Missing cells in the table from which the kind was found.
    categories : tuple of str, default=()
        Categories in that table.
    codes : bool, default=False
        Whether the numbers look like codes. It is a hint for the user and is not saved.
    """

    name: str
    kind: Kind
    missing: int = 0
    categories: tuple[str, ...] = ()
    _: KW_ONLY
    codes: bool = field(default=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Return the column as a dict for JSON."""
        plain = {"name": self.name, "kind": self.kind, "missing": self.missing}
        return {**plain, "categories": list(self.categories)}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """Make a column from a dict of `as_dict`; an InputError for any other dict."""
        known = {"name", "kind", "missing", "categories"}
        entries = dict(entries) if isinstance(entries, Mapping) else {}
        name, kind = entries.get("name"), entries.get("kind")
        missing, categories = entries.get("missing", 0), entries.get("categories", [])
        plain = isinstance(name, str) and isinstance(kind, str) and set(entries) <= known
        counted = type(missing) is int and missing >= 0
        texts = isinstance(categories, list | tuple) and {*map(type, categories)} <= {str}
        if not (plain and counted and texts):
            raise InputError(f"a column needs name and kind, and has {shorten(repr(entries))}")
        check_option(f"kind of column {shorten(name)!r}", kind, KINDS)
        return cls(name, kind, missing, tuple(categories))  # type: ignore[arg-type]


class DistinctCells:
    """Different cells of a column as clean texts or numbers, and their places."""

    def __init__(self, column: pd.Series) -> None:
        self.codes, found = pd.factorize(column)  # −1 where missing
        self.values = [_clean(value) for value in np.asarray(found, dtype=object)]

    def spread(self, values: Sequence[Any], missing: Any, dtype: Any) -> np.ndarray:  # [n]
        """Put one value per different cell to all places of that cell."""
        table = np.empty(len(values) + 1, dtype)
        table[:-1], table[-1] = values, missing  # the code −1 is the last
        return table[self.codes]

    @property
    def n_missing(self) -> int:
        gone = np.array([value is None for value in self.values] + [True])
        return int(gone[self.codes].sum())


def _clean(value: Any) -> Any:
    """Return a cell without blanks around it; None if it is missing."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    return None if text in MISSING else text


def as_number(value: Any) -> float:
    """Return the number in a cell; raise ValueError or OverflowError if there is none."""
    number = np.nan if value is None else read_number(value)
    if number is None:
        raise ValueError(value)
    return float(number)


def as_yes_no(value: Any) -> float:
    """Return 1 or 0; raise LookupError for any other cell."""
    return np.nan if value is None else YES_NO[str(value).casefold()]


def as_category(value: Any) -> str:
    """Return a cell as text: 1, 1.0 and "1" are one category."""
    if value is None:
        return NO_CATEGORY
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _as_known(value: Any, known: frozenset[str]) -> str:
    """Return the category of a cell; a text that spells a known number is that number."""
    text = as_category(value)
    if text in known or not known:
        return text
    try:
        number = as_category(as_number(value))
    except (ValueError, OverflowError):
        return text
    return number if number in known else text


def _read_one(column: pd.Series, kind: str, categories: tuple[str, ...] = ()) -> np.ndarray:
    """Read one column; a ValueError names the first cell that cannot be read."""
    if kind == "number" and column.dtype.kind in "iuf":
        plain = isinstance(column.dtype, np.dtype)  # pandas' own types have NA
        numbers = column.to_numpy(np.float64, **({} if plain else {"na_value": np.nan}))
        return _check_finite(column, numbers)
    distinct = DistinctCells(column)
    if kind == "category":
        known = frozenset(categories)
        texts = [_as_known(value, known) for value in distinct.values]
        return distinct.spread(texts, NO_CATEGORY, object)
    read, what = (as_number, "a number") if kind == "number" else (as_yes_no, "yes or no")
    values = []
    for code, value in enumerate(distinct.values):
        try:
            values.append(read(value))
        except (ValueError, OverflowError, LookupError):
            row = column.index[int((distinct.codes == code).argmax())]
            cell = shorten(repr(value))
            raise ValueError(f"{column.name!r:.80} (row {row} is {cell}, not {what})") from None
    return _check_finite(column, distinct.spread(values, np.nan, np.float64))


def _check_finite(column: pd.Series, numbers: np.ndarray) -> np.ndarray:
    infinite = np.isinf(numbers)
    if infinite.any():
        row = column.index[int(infinite.argmax())]
        raise ValueError(f"{column.name!r:.80} (row {row} is infinite)")
    return numbers


def find_column(cells: pd.Series, name: str, kind: Kind | None = None) -> Column:
    """Find the kind of a column of raw cells, unless somebody has said it."""
    if kind in (None, "number") and _is_measured(cells):
        return Column(name, "number", int(cells.isna().sum()))
    distinct = DistinctCells(cells)
    values = [value for value in distinct.values if value is not None]
    found = kind is None
    kind = kind or find_kind(cells, name, values, distinct.n_missing)
    names = sorted({as_category(value) for value in values}) if kind == "category" else []
    n = len(cells) - distinct.n_missing
    codes = found and kind == "number" and look_like_codes(name, values, n)
    return Column(name, kind, distinct.n_missing, tuple(names), codes=codes)


def _is_measured(cells: pd.Series) -> bool:
    """Return whether a column clearly holds numbers, some with fractions; a quick check."""
    if cells.dtype.kind != "f":
        return False
    numbers = cells.to_numpy()[cells.notna().to_numpy()]
    fractions = len(numbers) > 0 and (np.floor(numbers) != numbers).any()  # infinity has none
    return bool(fractions and numbers.min() < numbers.max())


def find_kind(cells: pd.Series, name: str, values: list[Any], missing: int) -> Kind:
    """Return the kind of a column with these different values."""
    n = len(cells) - missing
    if len(values) <= 1 and (missing == 0 or not values):
        return "constant"
    texts = {str(value).casefold() for value in values}
    if texts <= set(YES_NO) and len(texts) > 1:
        return "yes/no"
    if cells.dtype.kind in "mM" or all(_is_date(value) for value in values):
        return "date"
    numbers = _numbers(values)
    if numbers is not None:
        return "id" if _counts_rows(numbers, n, name) else "number"
    if len(values) > FEW and np.mean([_numbers([v]) is not None for v in values]) > MOSTLY:
        return "mixed"
    if len(values) > FEW and len(values) > MOSTLY * n:
        words = np.mean([len(str(value).split()) for value in values])
        return "text" if words >= WORDS else "id"
    return "category"


def _is_date(value: Any) -> bool:
    if isinstance(value, str):
        return DATE.fullmatch(value) is not None
    return hasattr(value, "isoformat")  # of the datetime module and of pandas


def _numbers(values: list[Any]) -> np.ndarray | None:
    try:
        return np.array([as_number(value) for value in values])
    except (ValueError, OverflowError):
        return None


def _counts_rows(numbers: np.ndarray, n: int, name: str) -> bool:
    """Return whether whole numbers name rows: 1, 2, 3, …, or many in a column named like an id."""
    if len(numbers) <= FEW or not _are_whole(numbers):
        return False
    counted = len(numbers) == n and bool((np.diff(numbers) == 1).all())
    return counted or (ID_NAME.search(name.strip()) is not None and len(numbers) > OFTEN * n)


def _are_whole(numbers: np.ndarray) -> bool:
    return bool(np.isfinite(numbers).all() and not (numbers % 1).any())


def look_like_codes(name: str, values: list[Any], n: int) -> bool:
    """Return whether few different whole numbers in n rows are named or written like codes."""
    numbers = _numbers(values)
    few = FEWEST_CODES <= len(values) <= MOST_CODES and CODE_ROWS * len(values) <= n
    if not few or numbers is None or not _are_whole(numbers):
        return False
    padded = any(isinstance(value, str) and re.match("0[0-9]", value) for value in values)
    return padded or CODE_NAME.search(name.strip()) is not None


class ColumnReader(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer that reads raw columns of a DataFrame as numbers and texts.

    Parameters
    ----------
    columns : sequence of dict
        One dict per column, with `name` and `kind`, as `Column.as_dict` gives it.
    target : str or None, default=None
        Name of the column to be predicted. It is no feature and may be in the table or not.

    Notes
    -----
    `transform` refuses tables in which a column is missing or holds another kind of cells, and
    names all such columns. Columns that `columns` does not list are ignored, with a warning.
    """

    _parameter_constraints: ClassVar[Mapping[str, Any]] = {
        "columns": [list, tuple],
        "target": [str, None],
    }

    def __init__(self, columns: Sequence[Mapping[str, Any]], target: str | None = None) -> None:
        self.columns = columns
        self.target = target

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the columns; nothing is learned from the cells."""
        self.columns_ = tuple(Column.from_dict(each) for each in self.columns)
        self._check(X)
        used = [column.name for column in self.columns_ if column.kind in READ]
        if not used:
            raise InputError("no column is left to learn from; give other kinds")
        self.feature_names_in_ = np.array(used, dtype=object)
        self.n_features_in_ = len(used)
        return self

    def transform(self, X: Any) -> pd.DataFrame:
        """Return the numbers and texts of the features, in the order of `columns`."""
        check_is_fitted(self, "columns_")
        X = self._check(X)
        read, wrong = {}, []
        for column in self.columns_:
            if column.kind in READ:
                try:
                    read[column.name] = _read_one(X[column.name], column.kind, column.categories)
                except ValueError as error:
                    wrong.append(str(error))
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise InputError(
                f"cells of another kind than their column: {', '.join(wrong[:SHOWN])}"
                f"{more}; correct the cells, or empty them if the value is unknown"
            )
        return pd.DataFrame(read, index=X.index, copy=False)

    def find_unseen(self, read: pd.DataFrame) -> tuple[UnseenCells, ...]:
        """Find cells of kinds that training never had in a table that `transform` returned."""
        found = []
        for column in self.columns_:
            if column.kind not in READ:
                continue
            cells = read[column.name]
            is_missing = cells == NO_CATEGORY if column.kind == "category" else cells.isna()
            missing = is_missing.to_numpy()
            if column.missing == 0 and missing.any():
                found.append(UnseenCells(column.name, "missing", missing))
            if column.kind == "category" and column.categories:
                unknown = ~cells.isin(column.categories).to_numpy() & ~missing
                if unknown.any():
                    examples = tuple(map(str, cells[unknown].unique()[:MOST_EXAMPLES]))
                    found.append(UnseenCells(column.name, "category", unknown, examples))
        return tuple(found)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns that are features."""
        check_is_fitted(self, "columns_")
        return self.feature_names_in_

    def _check(self, X: Any) -> pd.DataFrame:
        """Return the table if it has all columns; warn of additional ones."""
        if not isinstance(X, pd.DataFrame):
            raise InputError(f"give a DataFrame with named columns, not a {type(X).__name__}")
        there = set(X.columns)
        missing = [c.name for c in self.columns_ if c.kind in READ and c.name not in there]
        known = {column.name for column in self.columns_} | {self.target}
        additional = [name for name in X.columns if name not in known]
        if missing:
            beside = f"; it has columns that were not in training: {listed(additional)}"
            raise InputError(
                f"the table has no column {listed(missing)}, which the model was trained on"
                f"{beside if additional else ''}; add or rename columns"
            )
        if not X.columns.is_unique:
            twice = X.columns[X.columns.duplicated()]
            raise InputError(f"the table has column {listed(twice[:1])} twice; rename or drop one")
        if additional:
            warnings.warn(
                f"columns that were not in training are ignored: {listed(additional)}", stacklevel=3
            )
        return X


class MedianImputer(SimpleImputer):  # type: ignore[misc]
    """SimpleImputer by medians; scikit-learn's masked arrays take four times as long."""

    def fit(self, X: pd.DataFrame | np.ndarray, y: Any = None) -> Self:
        """Learn the median of each column, and which columns have missing cells.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_rows, n_features)
            Numbers; missing cells are NaN.
        y : object, default=None
            Not used.

        Returns
        -------
        self : MedianImputer
            The fitted transformer.
        """
        cells = np.asarray(X, float)
        missing = np.isnan(cells)
        some = np.where([missing.any(0), missing.all(0)], np.nan, 0.0)  # with the same gaps
        super().fit(pd.DataFrame(some, columns=X.columns) if isinstance(X, pd.DataFrame) else some)
        for column in np.flatnonzero(~missing.all(0)):
            self.statistics_[column] = np.median(cells[~missing[:, column], column])
        return self
