"""Files of tables: text tables, Parquet, and NumPy's .npz, read at once or in chunks of rows.

The header is read when a file is opened, so that a wrong name costs no time. Every error is one
sentence that names the file.
"""

import csv
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from wri.datasets.text_tables import (
    COMMA_NUMBER,
    DELIMITERS,
    MARK,
    MISSING,
    UNKNOWN,
    Dialect,
    find_dialect,
)
from wri.errors import InputError, listed, shorten, suggest
from wri.number_text import write_number

TEXT = (".csv", ".tsv", ".txt")
SAMPLE = 1 << 20  # bytes of a CSV file from which the number of lines is estimated
COPIES = 3.5  # of the numbers at the peak of reading, measured on 2,000 × 10,000
NUMBER = 8  # bytes
MOST_UNPACKED = 2 << 30  # bytes of all arrays of an archive
CELLS = 1_000_000  # per chunk
MOST_ROWS = 100_000
FEWEST_ROWS = 100  # pandas takes seconds for a chunk of 200,000 columns, whatever its length
EXPECTED = {
    **dict.fromkeys(TEXT, "comma-separated UTF-8 text with one header line"),
    ".parquet": "a single Parquet file",
    ".npz": "an archive of np.savez",
}
UNREADABLE = (
    *(ValueError, OSError, EOFError, RuntimeError),  # pandas' and arrow's are among them
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, eq=False)
class TableFile:
    """File whose header has been read."""

    path: Path
    names: tuple[str, ...]
    dialect: Dialect | None = None  # of a text
    arrays: pd.DataFrame | None = None  # of an archive

    @property
    def decimal(self) -> str:
        return "." if self.dialect is None else self.dialect.decimal

    @property
    def described(self) -> str:
        """How a text is written, if not as comma-separated UTF-8."""
        return "" if self.dialect is None else self.dialect.described

    def check(self, **wanted: str | None) -> None:
        """Refuse a table without the columns for target, environment, …, or without any other."""
        given = {option: name for option, name in wanted.items() if name is not None}
        for option, name in given.items():
            if name not in self.names:
                hint = "; give --delimiter if that is several columns" * (len(self.names) == 1)
                raise InputError(
                    f"{self.path} has no column {name!r} for the {option}"
                    f"{suggest(name, self.names)}; it has {listed(self.names)}{hint}"
                )
        if len(self.names) == len(given):
            besides = " and ".join(map(repr, given.values()))
            raise InputError(f"{self.path} has no features: columns besides {besides}")

    def read(self, labels: Collection[str] = (), target: str | None = None) -> pd.DataFrame:
        """Read all columns; cells of `labels` are their texts, "007" and "nan" too.

        The target stays a text, but NA, NaN and null are missing.
        """
        with named_errors(self.path):
            if self.arrays is not None:
                frame = self.arrays
            elif self.dialect is None:
                frame = _read_parquet(self.path, self.names)
            else:
                frame = _read_text(self.path, self.dialect, labels, target)
        if not len(frame):
            raise InputError(f"{self.path} has columns but no rows; add rows to it first")
        return frame

    def chunks(
        self, wanted: Collection[str], texts: Collection[str] = ()
    ) -> Iterator[tuple[pd.DataFrame, float]]:
        """Yield rows of some columns, numbered from 1, and the share of the file that is read.

        Cells of `texts` stay as they are written, such as 007 and 1.50 (blanks before them are
        dropped).
        """
        rows = min(MOST_ROWS, max(FEWEST_ROWS, CELLS // max(1, len(wanted))))
        wanted, start = frozenset(wanted), 1
        columns = [name for name in self.names if name in wanted]
        with named_errors(self.path):
            for frame, done in self._pieces(columns, texts, rows):
                if len(frame):  # none after a header alone
                    frame.index = pd.RangeIndex(start, start + len(frame))
                    start += len(frame)
                    yield frame, min(1.0, done)
        if start == 1:
            raise InputError(f"{self.path} has columns but no rows; add rows to it first")

    def _pieces(
        self, columns: list[str], texts: Collection[str], rows: int
    ) -> Iterator[tuple[pd.DataFrame, float]]:
        if self.arrays is not None:
            for start in range(0, len(self.arrays), rows):
                yield self.arrays[columns][start : start + rows], (start + rows) / len(self.arrays)
        elif self.dialect is None:
            yield from _parquet_chunks(self.path, columns, rows)
        else:
            yield from _text_chunks(self.path, self.dialect, columns, texts, rows)


def _read_text(
    path: Path, dialect: Dialect, labels: Collection[str], target: str | None
) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        try:
            frame = pd.read_csv(path, **reading_options(dialect, dialect.names, labels, target))
        except pd.errors.ParserWarning as warning:
            raise ValueError(f"rows are longer than the header of {len(dialect.names)}") from (
                warning
            )
    _restore_texts(frame, labels, target)
    if dialect.decimal == ",":  # also in columns that are texts because of other cells
        for name in frame.columns.difference(list(labels)):
            if pd.api.types.is_string_dtype(frame[name]):
                frame[name] = frame[name].str.replace(
                    COMMA_NUMBER, lambda match: match[0].replace(",", "."), regex=True
                )
    return frame


def _text_chunks(
    path: Path, dialect: Dialect, columns: list[str], texts: Collection[str], rows: int
) -> Iterator[tuple[pd.DataFrame, float]]:
    size, options = path.stat().st_size, reading_options(dialect, columns, texts)
    with path.open("rb") as file:
        for frame in pd.read_csv(file, **options, usecols=columns, chunksize=rows):
            _restore_texts(frame, texts, None)
            yield frame.copy(), file.tell() / max(1, size)  # a copy puts objects into one block


def reading_options(
    dialect: Dialect, columns: Sequence[str], texts: Collection[str], target: str | None = None
) -> dict[str, Any]:
    """Return the options of pandas' read_csv; there may be 200,000 columns."""
    texts = frozenset(texts)
    return {
        "sep": dialect.delimiter,
        "encoding": dialect.encoding,
        "decimal": dialect.decimal,
        "header": 0,
        "names": dialect.names,
        "skipinitialspace": dialect.delimiter != " ",
        "index_col": False,
        "low_memory": False,  # with chunks of few rows wide tables need several times their size
        "keep_default_na": False,
        "na_values": sorted(MISSING),  # a list per column takes more memory than its numbers
        "converters": {name: MARK.__add__ for name in columns if name in texts or name == target},
    }


def _restore_texts(frame: pd.DataFrame, texts: Collection[str], target: str | None) -> None:
    """Remove the marks that kept texts such as "NA" from being read as missing."""
    texts = frozenset(texts)
    for name in frame.columns.intersection([*texts, *({target} - {None})]):
        cells = frame[name].astype(object).str.removeprefix(MARK)
        frame[name] = cells.mask(cells.isin(UNKNOWN)) if name not in texts else cells


def _read_parquet(path: Path, names: Sequence[str]) -> pd.DataFrame:
    with open_parquet(path) as file:
        table = file.read(columns=list(names))
    table.validate(full=True)  # for instance texts that are not UTF-8
    # plain types, whoever wrote the file; arrow's columns are freed during the conversion
    frame: pd.DataFrame = table.to_pandas(
        ignore_metadata=True, split_blocks=True, self_destruct=True
    )
    return frame


def _parquet_chunks(
    path: Path, columns: list[str], rows: int
) -> Iterator[tuple[pd.DataFrame, float]]:
    with open_parquet(path) as file:
        total, seen = file.metadata.num_rows, 0
        for batch in file.iter_batches(rows, columns=columns):
            frame = batch.to_pandas()
            seen += len(frame)
            yield frame, seen / total


def as_numbers(column: pd.Series, decimal: str = ".") -> Any:
    """Convert texts to numbers; return the texts if one is neither a number nor missing."""
    if column.dtype.kind in "iufb":
        return column
    texts = column.str.replace(",", ".", regex=False) if decimal == "," else column
    numbers = pd.to_numeric(texts, errors="coerce")
    lost = texts[numbers.isna()].astype(object).fillna("").str.strip()
    return numbers if lost.isin(MISSING).all() else texts


def open_table(
    path: str | Path, delimiter: str | None = None, encoding: str | None = None
) -> TableFile:
    """Open a file and read its header; how a text is written is found, unless it is given."""
    path = _check_file(path)
    ending = path.suffix.lower()
    with named_errors(path):
        if ending in TEXT:
            dialect = find_dialect(path, delimiter, encoding)
            table = TableFile(path, tuple(dialect.names), dialect)
        elif ending == ".parquet":
            with open_parquet(path) as file:
                names = [n for n in file.schema_arrow.names if not n.startswith("__index_level_")]
            table = TableFile(path, tuple(names))
        else:
            arrays = _read_arrays(path)
            table = TableFile(path, tuple(arrays.columns), arrays=arrays)
    _check_header(path, table.names)
    return table


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn every error of reading a file into a sentence that names it."""
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory; read fewer rows or columns") from error
    except UNREADABLE as error:
        ending, reason = path.suffix.lower(), " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} cannot be read as {ending} ({reason}); save it again as {EXPECTED[ending]}, "
            "or correct its ending"
        ) from error


def _check_file(path: str | Path) -> Path:
    """Return the path of a file that exists, with a known ending."""
    path = Path(path)
    try:
        path.stat()
    except (OSError, ValueError) as error:  # also names that are too long, or hold a null
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shorten(path)} cannot be read: {reason}; check the path") from error
    if path.is_dir():
        raise InputError(f"{path} is a folder; name one .csv, .parquet or .npz file in it")
    if path.suffix.lower() not in EXPECTED:
        raise InputError(
            f"{path} ends in {path.suffix or 'nothing'!r}; save it as .csv, .parquet or .npz"
        )
    return path


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse names that are missing or repeated."""
    if not names:
        raise InputError(f"{path} is empty; write a table to it first")
    nameless = [c for c, name in enumerate(names, start=1) if not name.strip()]
    if nameless:
        raise InputError(
            f"{path}: column {nameless[0]} has no name; name it, or drop it if it holds row "
            "numbers (to_csv(index=False) in pandas)"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"{path}: column {shorten(twice[0])!r} occurs twice; rename or drop one of them"
        )


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; refuse it if pyarrow is not installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow; `pip install pyarrow`, or save it as .csv"
        ) from error
    return parquet.ParquetFile(path, memory_map=True)


def _read_arrays(path: Path) -> pd.DataFrame:
    """Read an archive: an array [n] is a column, an array [n, D] named x is x0, x1, …"""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive")
    with zipfile.ZipFile(path) as packed:
        total = sum(member.file_size for member in packed.infolist())
    if total > MOST_UNPACKED:
        raise InputError(
            f"{path} unpacks to {total:,} bytes, but at most {MOST_UNPACKED:,} are read; save "
            "fewer rows or columns, or save as float32"
        )
    frames = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            array = np.asarray(archive[name])  # NumPy gives bytes for members that are no arrays
            kind = np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
            frame = frames[name] = pd.DataFrame(array.astype(kind, copy=False), copy=False)
            frame.columns = [name] if array.ndim == 1 else [f"{name}{k}" for k in frame.columns]
    counts = {len(frame): f"{name!r} {len(frame)}" for name, frame in frames.items()}
    if len(counts) > 1:
        told = " and ".join(counts.values())
        raise InputError(f"{path}: arrays must have the same number of rows, not {told}")
    return pd.concat(frames.values(), axis=1)


def check_memory(
    paths: Sequence[Path], gigabytes: float, columns: int | None = None, remedy: str = ""
) -> None:
    """Refuse files that would not fit into memory at once, before they are read.

    Only `columns` columns are read; None: all.
    """
    needed = sum(reading_bytes(path, columns) for path in paths)
    if needed > gigabytes * 1e9:
        what = shorten(paths[0]) if len(paths) == 1 else f"reading {len(paths)} files"
        remedy = remedy or f"raise it, or leave rows{'' if columns else ' or columns'} out"
        raise InputError(
            f"{what} needs about {write_number(needed / 1e9, 2)} GB, but --memory allows "
            f"{gigabytes:g}; {remedy}"
        )


def reading_bytes(path: Path, columns: int | None = None) -> float:
    """Estimate the peak memory of reading a CSV or Parquet file; 0 if it cannot be estimated."""
    count = count_parquet if path.suffix.lower() == ".parquet" else _count_csv
    if path.suffix.lower() == ".npz":
        return 0.0  # archives have their own limit
    try:
        rows, there = count(path)
    except Exception:  # reading the file will report what is wrong
        return 0.0
    return COPIES * NUMBER * rows * (columns or there)


def _count_csv(path: Path) -> tuple[float, int]:
    with path.open("rb") as file:
        header = file.readline()
        sample = file.read(SAMPLE)
    rest = path.stat().st_size - len(header)
    lines = sample.count(b"\n")
    longest = len(sample) / lines if lines else max(1, len(sample))
    return rest / longest, max(header.count(mark.encode()) for mark in DELIMITERS) + 1


def count_parquet(path: Path) -> tuple[float, int]:
    """Return the numbers of rows and columns of a Parquet file."""
    with open_parquet(path) as file:
        return file.metadata.num_rows, file.metadata.num_columns
