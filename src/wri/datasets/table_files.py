"""All columns of a file: a text table, Parquet, or NumPy's .npz.

Names are checked before the rows are read, so that a wrong name costs no time. Every error is one
sentence that names the file.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wri.datasets.archives import UNREADABLE, read_arrays
from wri.datasets.labels import SHOWN
from wri.datasets.text_tables import Dialect, find_dialect, read_text
from wri.errors import InputError, listed, shorten, suggest
from wri.number_text import write_number

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".txt")
SAMPLE = 1 << 20  # bytes of a CSV file from which the number of lines is estimated
COPIES = 3.5  # of the numbers at the peak of reading, measured on 2,000 × 10,000
NUMBER = 8  # bytes
DELIMITERS = (b",", b";", b"\t", b"|")
EXPECTED = {
    **dict.fromkeys(TEXT, "comma-separated UTF-8 text with one header line"),
    ".parquet": "a single Parquet file",
    ".npz": "an archive of np.savez",
}
CheckNames = Callable[[Path, Sequence[str]], None]


class FileFrame(NamedTuple):
    """Columns of a file, and its dialect if it is a text."""

    frame: "pd.DataFrame"
    dialect: Dialect | None


def read_frame(
    path: str | Path,
    check: CheckNames,
    *,
    labels: Collection[str] = (),
    texts: Collection[str] = (),
    delimiter: str | None = None,
    encoding: str | None = None,
) -> FileFrame:
    """Read all columns of a file with at least one row.

    `check` is called with the path and the names of the columns before the rows are read. In text
    files, cells of `labels` are their texts, "007" and "nan" too; columns of `texts` stay texts,
    but NA, NaN and null are missing.
    """
    path = check_file(path)
    ending = path.suffix.lower()
    with named_errors(path):
        if ending in TEXT:
            dialect = find_dialect(path, delimiter, encoding)
            check_header(path, dialect.names, check)
            found = FileFrame(read_text(path, dialect, labels, texts), dialect)
        else:
            read = _read_parquet if ending == ".parquet" else _read_npz
            found = FileFrame(read(path, check, {*labels, *texts}), None)
    if not len(found.frame):
        raise InputError(f"{path} has columns but no rows; add rows to it first")
    return found


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


def check_names(path: Path, names: Sequence[str], **wanted: str | None) -> None:
    """Refuse a table without the columns for target, environment, …, or without any other."""
    hint = "; give --delimiter if that is several columns"
    given = {option: name for option, name in wanted.items() if name is not None}
    for option, name in given.items():
        if name not in names:
            raise InputError(
                f"{path} has no column {name!r} for the {option}{suggest(name, names)}; it has "
                f"{listed(names, SHOWN)}{hint if len(names) == 1 else ''}"
            )
    if len(names) == len(given):
        besides = " and ".join(map(repr, given.values()))
        raise InputError(f"{path} has no features: columns besides {besides}")


def check_file(path: str | Path) -> Path:
    """Return the path of a file that exists and is not empty."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # names that are too long, or hold a null
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shorten(path)} cannot be read: {reason}; check the path") from error
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name one .csv, .parquet or .npz file in it")
    if not path.exists():
        raise InputError(f"{path} does not exist; check the path")
    if path.suffix.lower() not in EXPECTED:
        raise InputError(
            f"{path} ends in {path.suffix or 'nothing'!r}; save it as .csv, .parquet or .npz"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; write a table to it first")
    return path


def check_header(path: Path, names: Sequence[str], check: CheckNames) -> None:
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
    check(path, names)


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; refuse it if pyarrow is not installed."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow; `pip install pyarrow`, or save it as .csv"
        ) from error
    return parquet.ParquetFile(path, memory_map=True)


def parquet_names(file: Any) -> list[str]:
    """Return the names of the columns without those of pandas' row names."""
    return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]


def _read_parquet(path: Path, check: CheckNames, flat: Collection[str]) -> "pd.DataFrame":
    with open_parquet(path) as file:
        names = parquet_names(file)
        check_header(path, names, check)
        table = file.read().select(names)
    table.validate(full=True)  # for instance texts that are not UTF-8
    # plain types, whoever wrote the file; arrow's columns are freed during the conversion
    frame: pd.DataFrame = table.to_pandas(
        ignore_metadata=True, split_blocks=True, self_destruct=True
    )
    return frame


def _read_npz(path: Path, check: CheckNames, flat: Collection[str]) -> "pd.DataFrame":
    import pandas as pd

    arrays = read_arrays(path)
    for name, array in arrays.items():
        most = 1 if name in flat else 2
        if not 1 <= array.ndim <= most:
            raise InputError(
                f"{path}: array {name!r} has the shape {array.shape}; "
                f"make it {'[n]' if most == 1 else '[n] or [n, D]'}"
            )
    rows = {len(array): name for name, array in arrays.items()}
    if len(rows) > 1:
        counts = " and ".join(f"{name!r} {count}" for count, name in rows.items())
        raise InputError(f"{path}: arrays must have the same number of rows, not {counts}")
    names = {
        name: [name] if array.ndim == 1 else [f"{name}{d}" for d in range(array.shape[1])]
        for name, array in arrays.items()
    }
    check_header(path, [each for some in names.values() for each in some], check)
    frames = [
        pd.DataFrame(array, columns=names[name], copy=False) for name, array in arrays.items()
    ]
    return pd.concat(frames, axis=1)


def check_memory(paths: Sequence[Path], gigabytes: float, columns: int | None = None) -> None:
    """Refuse files that would not fit into memory at once, before they are read.

    Only `columns` columns are read; None: all.
    """
    needed = sum(reading_bytes(path, columns) for path in paths)
    if needed > gigabytes * 1e9:
        what = shorten(paths[0]) if len(paths) == 1 else f"reading {len(paths)} files"
        raise InputError(
            f"{what} needs about {write_number(needed / 1e9, 2)} GB, but --memory allows "
            f"{gigabytes:g}; raise it, or leave rows{'' if columns else ' or columns'} out"
        )


def reading_bytes(path: Path, columns: int | None = None) -> float:
    """Estimate the peak memory of reading a CSV or Parquet file; 0 if it cannot be estimated.

    Archives (`.npz`) announce their sizes and have their own limit (`archives`).
    """
    try:
        if path.suffix.lower() in TEXT:
            rows, there = _count_csv(path)
        elif path.suffix.lower() == ".parquet":
            rows, there = count_parquet(path)
        else:
            return 0.0
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
    return rest / longest, max(header.count(mark) for mark in DELIMITERS) + 1


def count_parquet(path: Path) -> tuple[float, int]:
    """Return the numbers of rows and columns of a Parquet file."""
    with open_parquet(path) as file:
        return file.metadata.num_rows, file.metadata.num_columns
