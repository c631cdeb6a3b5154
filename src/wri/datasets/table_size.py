"""How large a table will be in memory, told before it is read."""

from pathlib import Path

SAMPLE = 1 << 20  # bytes of a CSV file from whose lines the others are counted
COPIES = 3.5  # of the numbers at the peak of reading, measured on 2,000 × 10,000
NUMBER = 8  # bytes
TEXT = (".csv", ".tsv", ".txt")
DELIMITERS = (b",", b";", b"\t", b"|")


def reading_bytes(path: Path) -> float:
    """Memory at the peak of reading a CSV or Parquet file, roughly; 0 for what cannot be told.

    Archives (`.npz`) say exactly what they hold and have a limit of their own (`archives`).
    """
    try:
        if path.suffix.lower() in TEXT:
            rows, columns = _count_csv(path)
        elif path.suffix.lower() == ".parquet":
            rows, columns = _count_parquet(path)
        else:
            return 0.0
    except Exception:  # whoever reads the file says what is wrong with it
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


def _count_parquet(path: Path) -> tuple[float, int]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        return file.metadata.num_rows, file.metadata.num_columns
