"""Memory that a table needs, estimated before it is read."""

from collections.abc import Sequence
from pathlib import Path

from wri.errors import InputError, shorten
from wri.number_text import write_number

SAMPLE = 1 << 20  # bytes of a CSV file from which the number of lines is estimated
COPIES = 3.5  # of the numbers at the peak of reading, measured on 2,000 × 10,000
NUMBER = 8  # bytes
TEXT = (".csv", ".tsv", ".txt")
DELIMITERS = (b",", b";", b"\t", b"|")


def check_memory(paths: Sequence[Path], gigabytes: float, columns: int | None = None) -> None:
    """Refuse files that would not fit into memory, before they are read.

    Parameters
    ----------
    paths
        The files, which are read at once.
    gigabytes
        What `--memory` allows.
    columns
        Number of columns that are read; all when None.
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
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        return file.metadata.num_rows, file.metadata.num_columns
