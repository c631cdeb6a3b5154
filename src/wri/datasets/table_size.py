"""Memory that a table needs, estimated before it is read."""

from pathlib import Path

SAMPLE = 1 << 20  # bytes of a CSV file from which the number of lines is estimated
COPIES = 3.5  # of the numbers at the peak of reading, measured on 2,000 × 10,000
NUMBER = 8  # bytes
TEXT = (".csv", ".tsv", ".txt")
DELIMITERS = (b",", b";", b"\t", b"|")


def reading_bytes(path: Path) -> float:
    """Estimate the peak memory of reading a CSV or Parquet file; 0 if it cannot be estimated.

    Archives (`.npz`) announce their sizes and have their own limit (`archives`).
    """
    try:
        if path.suffix.lower() in TEXT:
            rows, columns = _count_csv(path)
        elif path.suffix.lower() == ".parquet":
            rows, columns = count_parquet(path)
        else:
            return 0.0
    except Exception:  # reading the file will report what is wrong
        return 0.0
    return COPIES * NUMBER * rows * columns


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
