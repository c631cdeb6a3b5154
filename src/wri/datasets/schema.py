"""Schema of a table: the kind of each column, and the preprocessing that follows from it.

    numbers, yes/no   median for missing cells, and one column that marks them
    categories        one column each; rare ones share one; all zeros for unknown ones
    constant          left out

Kinds are found (`columns.py`) or given. Dates, ids and free text are refused until the user
leaves them out or gives another kind.
"""

import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from wri.datasets.columns import (
    KINDS,
    READ,
    REFUSED,
    Column,
    ColumnReader,
    MedianImputer,
    find_column,
)
from wri.errors import InputError, check_option, listed, shorten

__all__ = ["TableSchema"]

RARE = 10  # rows below which a category is rare, in tables of at least 500 rows
MOST_CATEGORIES = 50  # largest number of encoded columns per column of categories
SHOWN_CATEGORIES = 5
HINTS = {
    "date": "a date; make numbers of it, such as an age or a duration",
    "id": "an id, which holds no information about new rows",
    "text": "free text",
    "mixed": "numbers and other cells; correct the other cells, or empty them as missing",
}
CODES = "may be codes; read as numbers unless --category names it"
_INDICATOR = "missingindicator_"
_INFREQUENT = "infrequent_sklearn"


@dataclass(frozen=True)
class TableSchema:
    """Columns of a raw table with their kinds.

    Attributes
    ----------
    columns : tuple of Column
        Columns in the order of the table, without target and environment.
    rows : int, default=0
        Number of rows from which the kinds were found.
    target : str or None, default=None
        Name of the column to be predicted.
    environment : str or None, default=None
        Name of the column of environments.

    Examples
    --------
    >>> import pandas as pd
    >>> from wri.datasets.schema import TableSchema
    >>> cells = {"age": [41.5, 60.0], "ward": ["a", "b"], "site": [1, 2], "ill": [0, 1]}
    >>> table = pd.DataFrame(cells)
    >>> schema = TableSchema.infer(table, target="ill", environment="site")
    >>> [(column.name, column.kind) for column in schema.columns]
    [('age', 'number'), ('ward', 'category')]
    """

    columns: tuple[Column, ...]
    rows: int = 0
    target: str | None = None
    environment: str | None = None

    @classmethod
    def infer(
        cls,
        table: pd.DataFrame,
        target: str | None = None,
        environment: str | None = None,
        kinds: Mapping[str, str] | None = None,
        leave_out: Iterable[str] = (),
    ) -> Self:
        """Find the kind of each column.

        Parameters
        ----------
        table : DataFrame
            Raw columns: numbers as numbers, texts as texts, missing cells as NaN, None or NA.
        target : str or None, default=None
            Column to be predicted; it is not a feature.
        environment : str or None, default=None
            Column of environments; it is not a feature.
        kinds : mapping of str to str or None, default=None
            Known kinds by column: "number", "yes/no" or "category".
        leave_out : iterable of str, default=()
            Columns that are not used.

        Returns
        -------
        schema : TableSchema
            Schema with refused columns in it; `check` raises an error for them.

        Raises
        ------
        InputError
            If a column does not exist or a kind is unknown.
        """
        kinds = {**(kinds or {}), **dict.fromkeys(leave_out, "left out")}
        aside = {name for name in (target, environment) if name is not None}
        unknown = [name for name in (*kinds, *aside) if name not in table.columns]
        if unknown:
            raise InputError(
                f"the table has no column {listed(unknown)}; it has {listed(table.columns)}"
            )
        for name, kind in kinds.items():
            check_option(f"kind of column {shorten(name)!r}", kind, KINDS)
            if name in aside:
                raise InputError(f"column {shorten(name)!r} is the target or the environment")
        if not len(table):
            raise InputError("the table has columns but no rows; give rows")
        found = [
            find_column(table[name], str(name), kinds.get(name))  # type: ignore[arg-type]
            for name in table.columns
            if name not in aside
        ]
        schema = cls(tuple(found), len(table), target, environment)
        for note in schema.notes:
            warnings.warn(note, stacklevel=2)
        return schema

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence on columns of numbers that may be codes; empty if there are none."""
        codes = [column.name for column in self.columns if column.codes]
        if not codes:
            return ()
        names = ",".join(shorten(name) for name in codes[:6])
        return (
            f"column {listed(codes)} may hold codes, but is read as numbers; if it does, add "
            f"--category {names}",
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are features."""
        return tuple(column.name for column in self.columns if column.kind in READ)

    @property
    def refused(self) -> tuple[Column, ...]:
        """Columns that the user must decide about: dates, ids and free text."""
        return tuple(column for column in self.columns if column.kind in REFUSED)

    def check(self) -> None:
        """Refuse a schema with refused columns or without features.

        Raises
        ------
        InputError
            If a column is refused, or no feature is left. The message names the options that
            decide.
        """
        if self.refused:
            reasons = [f"{shorten(c.name)!r} looks like {HINTS[c.kind]}" for c in self.refused[:6]]
            more = f" (and {len(self.refused) - 6} more)" if len(self.refused) > 6 else ""
            names = shlex.quote(",".join(shorten(column.name) for column in self.refused[:6]))
            raise InputError(
                f"column {'; column '.join(reasons)}{more}. Leave them out (--drop {names}), "
                f"or give their kind (--number {names}, or --category {names})"
            )
        if not self.features:
            raise InputError("no column is left to learn from: all are constant or left out")

    def make_preprocessing(self) -> list[Any]:
        """Make unfitted steps for `wri.make_pipeline`: reading the cells, then encoding them.

        Returns
        -------
        steps : list of transformer
            A `ColumnReader` and a `ColumnTransformer`.
        """
        self.check()
        of_kind = {kind: [c.name for c in self.columns if c.kind == kind] for kind in READ}
        numbers, categories = of_kind["number"] + of_kind["yes/no"], of_kind["category"]
        fill = MedianImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        rare = min(RARE, max(2, self.rows // 50))
        encode = OneHotEncoder(
            handle_unknown="ignore",
            min_frequency=rare,
            max_categories=MOST_CATEGORIES,
            sparse_output=False,
        )
        parts = [("numbers", fill, numbers), ("categories", encode, categories)]
        reader = ColumnReader([column.as_dict() for column in self.columns], self.target)
        return [
            reader,
            ColumnTransformer(
                [part for part in parts if part[2]],
                verbose_feature_names_out=False,
                sparse_threshold=0,
            ),
        ]

    @classmethod
    def of(cls, model: Any) -> Self | None:
        """Return the schema that a pipeline was made with.

        Parameters
        ----------
        model : estimator
            Pipeline or estimator.

        Returns
        -------
        schema : TableSchema or None
            The schema; None for models without one.
        """
        steps = model.steps if isinstance(model, Pipeline) else []
        for _, step in steps[:-1]:
            if isinstance(step, ColumnReader):
                columns = tuple(Column.from_dict(each) for each in step.columns)
                return cls(columns, 0, step.target, model.steps[-1][1].environment)
        return None

    def as_lines(self) -> list[str]:
        """Return the schema as lines of text: name, kind, missing cells, categories.

        Returns
        -------
        lines : list of str
            One line per column.
        """
        width = max((len(shorten(column.name)) for column in self.columns), default=0)
        lines = []
        for column in self.columns:
            shown = ", ".join(shorten(each) for each in column.categories[:SHOWN_CATEGORIES])
            more = len(column.categories) - SHOWN_CATEGORIES
            told = (
                f"{column.missing} missing" if column.missing else "",
                f"{shown}, {more} more" if more > 0 else shown,
                HINTS.get(column.kind, ""),
                CODES if column.codes else "",
            )
            text = "; ".join(filter(None, told))
            lines.append(f"{shorten(column.name):<{width}}  {column.kind:<8}  {text}")
        return [line.rstrip() for line in lines]


def readable_names(encoded: Sequence[str], raw: Sequence[str]) -> tuple[str, ...]:
    """Name encoded columns as a reader of the table would: "bmi is missing", "ward = north".

    scikit-learn calls them `missingindicator_bmi` and `ward_north`.
    """
    names = tuple(_readable(name, {*raw}) for name in encoded)
    return names if len({*names}) == len(names) else tuple(encoded)


def owners_of(encoded: Sequence[str], raw: Sequence[str]) -> tuple[str, ...]:
    """Return the raw column that each encoded column comes from."""
    return tuple(_split(name, {*raw})[0] for name in encoded)


def _readable(name: str, raw: set[str]) -> str:
    owner, category = _split(name, raw)
    if category is None:
        return owner
    if category == _INDICATOR:
        return f"{owner} is missing"
    return f"{owner} = {'a rare category' if category == _INFREQUENT else category}"


def _split(name: str, raw: set[str]) -> tuple[str, str | None]:
    """Split an encoded name into its raw column and the category, `_INDICATOR` or None."""
    if name in raw:
        return name, None
    if name.startswith(_INDICATOR) and name.removeprefix(_INDICATOR) in raw:
        return name.removeprefix(_INDICATOR), _INDICATOR
    owners = [column for column in raw if name.startswith(f"{column}_")]
    if not owners:
        return name, None
    owner = max(owners, key=len)
    return owner, name.removeprefix(f"{owner}_")
