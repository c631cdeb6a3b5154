"""Cells of a kind that training never had: unknown categories, and gaps in columns without gaps.

A model encodes an unknown category as none of the known ones, and fills a gap with the median, so
its prediction can look ordinary. Rows with such cells are not supported, and the reason names the
column.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from wri.errors import shorten

MOST_EXAMPLES = 3  # unknown categories that are named


@dataclass(frozen=True, kw_only=True)
class UnseenCount:
    """Number of rows with a cell of a kind that training never had, in one column."""

    column: str
    kind: Literal["category", "missing"]
    rows: int
    of: int  # rows in all
    examples: tuple[str, ...]  # the first unknown categories

    @property
    def sentence(self) -> str:
        """The column, the number of rows and what they hold."""
        name = shorten(self.column)
        if self.kind == "category":
            shown = ", ".join(repr(shorten(each)) for each in self.examples)
            rows = f"{self.rows:,} of {self.of:,} rows"
            return f"{name}: {rows} have a category unknown to training, such as {shown}"
        all_rows = self.rows == self.of
        where = f"all {self.of:,} rows" if all_rows else f"{self.rows:,} of {self.of:,} rows"
        return f"{name}: missing in {where}, and never in training"

    def as_dict(self) -> dict[str, object]:
        """Return the count for JSON."""
        return {**asdict(self), "examples": list(self.examples)}

    def add(self, other: "UnseenCount") -> "UnseenCount":
        """Return the count of two parts of a table."""
        examples = tuple(dict.fromkeys((*self.examples, *other.examples)))[:MOST_EXAMPLES]
        rows, of = self.rows + other.rows, self.of + other.of
        return replace(self, rows=rows, of=of, examples=examples)


class UnseenCells(NamedTuple):
    """Cells of one column of a kind that training never had.

    Attributes
    ----------
    column : str
        Name of the column.
    kind : {"category", "missing"}
        Unknown categories, or missing cells in a column that was never missing.
    rows : ndarray of shape (n_rows,)
        Which rows have such a cell.
    examples : tuple of str
        The first unknown categories.
    """

    column: str
    kind: Literal["category", "missing"]
    rows: np.ndarray  # [n], bool
    examples: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Reason of the verdict on such rows."""
        name = shorten(self.column)
        return f"unknown category in {name}" if self.kind == "category" else f"missing {name}"

    @property
    def counted(self) -> UnseenCount:
        """Number of such rows."""
        return UnseenCount(
            column=self.column,
            kind=self.kind,
            rows=int(self.rows.sum()),
            of=len(self.rows),
            examples=self.examples,
        )


def flag_unseen(
    verdicts: np.ndarray, reasons: np.ndarray, unseen: Iterable[UnseenCells]
) -> tuple[np.ndarray, np.ndarray]:  # [n], [n]
    """Return verdicts and reasons in which no row with unseen cells is supported."""
    verdicts, reasons = verdicts.copy(), reasons.copy()
    for cells in unseen:
        verdicts[cells.rows & (verdicts == "supported")] = "rare"
        told = [f"{each}; {cells.reason}" if each else cells.reason for each in reasons[cells.rows]]
        reasons[cells.rows] = told
    return verdicts, reasons
