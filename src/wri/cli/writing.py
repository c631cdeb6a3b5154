"""Files of predictions and folders of models, written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from wri.datasets.table_chunks import TableFile
from wri.errors import InputError, shorten
from wri.report.blocks import Page
from wri.report.page import render_page
from wri.saving.folder import REPORT, check_target, open_stage


class TextWriter:
    """Writer of delimited text with the input's delimiter and decimal mark, in UTF-8."""

    def __init__(self, path: Path, delimiter: str, decimal: str, encoding: str) -> None:
        self._file = path.open("w", encoding=encoding, newline="")
        self._options = {"sep": delimiter, "decimal": decimal, "index": False}
        self._header = True

    def write(self, frame: pd.DataFrame) -> None:
        # pandas would write a wide table row by row
        options = {**self._options, "header": self._header, "chunksize": max(1, len(frame))}
        frame.to_csv(self._file, lineterminator="\n", **options)
        self._header = False

    def close(self) -> None:
        self._file.close()


class ParquetWriter:
    """Writer of one Parquet file; the first chunk sets the types."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        schema = None if self._writer is None else self._writer.schema
        table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        if self._writer is None:
            # a column without values becomes text, because later chunks may hold texts
            types = [pa.string() if pa.types.is_null(kind) else kind for kind in table.schema.types]
            plain = pa.schema(zip(table.schema.names, types, strict=True))
            self._writer = parquet.ParquetWriter(self._path, plain)
            table = table.cast(plain)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writer_for(
    output: Path, table: TableFile | None = None
) -> Iterator[TextWriter | ParquetWriter]:
    """Open a writer whose file appears when it is complete; on errors nothing is left.

    A text takes the delimiter of `table`, the input, which is not overwritten.
    """
    check_output(output, table)
    try:
        with open_stage(output) as aside:
            part = aside / "part"
            writer = _open(part, output.suffix.lower(), table)
            try:
                yield writer
            finally:
                writer.close()
            os.replace(part, output)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"-o {shorten(output)} cannot be written: {reason}; choose another path"
        ) from error


def check_output(output: Path, table: TableFile | None = None) -> None:
    """Refuse a path that cannot be written to, before anything is read."""
    where = f"-o {shorten(output)}"
    writable = [output.parent, output] if output.exists() else [output.parent]
    if output.is_dir():
        raise InputError(f"{where} is a folder; name a file in it")
    if not output.parent.is_dir():
        raise InputError(f"{where}: {output.parent} is not a folder; create it first")
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{where} must end in .csv or .parquet")
    if table is not None and output.exists() and output.samefile(table.path):
        raise InputError(f"{where} is the file of the rows; choose another name")
    if not all(os.access(path, os.W_OK) for path in writable):
        raise InputError(f"{where} cannot be written: no permission; choose another")


def _open(part: Path, ending: str, table: TableFile | None) -> TextWriter | ParquetWriter:
    if ending == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError as error:
            raise InputError(
                "writing Parquet needs pyarrow; `pip install pyarrow`, or choose a .csv"
            ) from error
        return ParquetWriter(part)
    dialect = None if table is None else table.dialect
    if dialect is None:
        return TextWriter(part, ",", ".", "utf-8")
    marked = "utf-8-sig" if dialect.encoding == "utf-8-sig" else "utf-8"
    return TextWriter(part, dialect.delimiter, dialect.decimal, marked)


def check_model_output(folder: Path) -> None:
    """Refuse a folder that cannot take a model, before the training.

    It may be new, empty, or hold a saved model and its report and nothing else.
    """
    try:
        target = folder.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        check_target(target)
        with tempfile.TemporaryFile(dir=target if target.exists() else target.parent):
            pass
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"-o {shorten(folder)} cannot be written to: {reason}") from error


def write_model(model: Any, page: Page, folder: Path) -> Path:
    """Write a model and its report, completely or not at all; return the report's path."""
    target = folder.resolve()
    data = render_page(page).encode("utf-8", errors="replace")
    with open_stage(target) as aside:
        stage = aside / "model"
        model.save(stage)
        (stage / REPORT).write_bytes(data)
        if target.exists() and any(target.iterdir()):
            # the record is replaced in one step; saving deletes the old report, so none is stale
            model.save(target)
            os.replace(stage / REPORT, target / REPORT)
        else:
            if target.exists():
                target.rmdir()
            os.replace(stage, target)
    return folder / REPORT
