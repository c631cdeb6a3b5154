"""Tables in chunks of rows, in the order of the file.

Cells for the output stay texts, so that 007 and 1.50 are written as they were read (blanks before a
cell are dropped).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from wri.datasets.columns import MISSING
from wri.datasets.table_files import (
    TEXT,
    check_file,
    check_header,
    named_errors,
    open_parquet,
    parquet_names,
)
from wri.datasets.text_tables import Dialect, find_dialect, reading_options
from wri.errors import InputError

CELLS = 1_000_000  # per chunk
MOST_ROWS = 100_000
FEWEST_ROWS = 100  # pandas takes seconds for a chunk of 200,000 columns, whatever its length


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows of a file; their index is the number of the row, counted from 1."""

    frame: pd.DataFrame
    done: float  # share of the file that has been read


@dataclass(frozen=True, eq=False)
class TableFile:
    """File whose header has been read."""

    path: Path
    names: tuple[str, ...]
    dialect: Dialect | None  # None for Parquet

    @property
    def decimal(self) -> str:
        return "." if self.dialect is None else self.dialect.decimal

    def chunks(self, wanted: Collection[str], texts: Collection[str]) -> Iterator[Chunk]:
        """Yield the rows of some columns in chunks; cells of `texts` stay as they are written."""
        rows = min(MOST_ROWS, max(FEWEST_ROWS, CELLS // max(1, len(wanted))))
        start = 1
        with named_errors(self.path):
            wanted, texts = frozenset(wanted), frozenset(texts)
            columns = [n for n in self.names if n in wanted]
            if self.dialect is None:
                pieces = self._parquet(columns, rows)
            else:
                pieces = self._text(self.dialect, columns, texts, rows)
            for frame, done in pieces:
                if not len(frame):  # a header alone
                    continue
                frame.index = pd.RangeIndex(start, start + len(frame))
                start += len(frame)
                yield Chunk(frame, done)
        if start == 1:
            raise InputError(f"{self.path} has columns but no rows; add rows to it first")

    def _text(
        self, dialect: Dialect, wanted: list[str], texts: Collection[str], rows: int
    ) -> Iterator[tuple[pd.DataFrame, float]]:
        size = self.path.stat().st_size
        options = reading_options(dialect)
        # a copy puts all objects into one block, but leaves a block to each column of type str
        options["dtype"] = dict.fromkeys((name for name in wanted if name in texts), object)
        with self.path.open("rb") as file:
            pieces = pd.read_csv(
                file,
                **options,
                usecols=wanted,
                keep_default_na=False,
                na_values={name: sorted(MISSING) for name in wanted if name not in texts},
                chunksize=rows,
            )
            for frame in pieces:
                yield frame.copy(), min(1.0, file.tell() / max(1, size))

    def _parquet(self, wanted: list[str], rows: int) -> Iterator[tuple[pd.DataFrame, float]]:
        with open_parquet(self.path) as file:
            total, seen = file.metadata.num_rows, 0
            for batch in file.iter_batches(rows, columns=wanted):
                frame = batch.to_pandas()
                seen += len(frame)
                yield frame, seen / total


def open_table(
    path: str | Path, delimiter: str | None = None, encoding: str | None = None
) -> TableFile:
    """Open a .csv, .tsv, .txt or .parquet and read its header; how a text is written is found."""
    path = check_file(path)
    ending = path.suffix.lower()
    with named_errors(path):
        if ending in TEXT:
            dialect = find_dialect(path, delimiter, encoding)
            check_header(path, dialect.names, lambda *_: None)
            return TableFile(path, tuple(dialect.names), dialect)
        if ending != ".parquet":
            raise InputError(f"{path} ends in {ending!r}; save it as .csv or .parquet")
        with open_parquet(path) as file:
            names = parquet_names(file)
        check_header(path, names, lambda *_: None)
        return TableFile(path, tuple(names), None)


def as_numbers(column: pd.Series, decimal: str = ".") -> Any:
    """Convert texts to numbers; return the texts if one is neither a number nor missing."""
    if column.dtype.kind in "iufb":
        return column
    texts = column.str.replace(",", ".", regex=False) if decimal == "," else column
    numbers = pd.to_numeric(texts, errors="coerce")
    lost = numbers.isna()
    if lost.any() and not texts[lost].astype(object).fillna("").str.strip().isin(MISSING).all():
        return texts
    return numbers
