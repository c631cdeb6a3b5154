"""Files of predictions and folders of models, written whole or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import pandas as pd

from wri.cli.console import print_note
from wri.datasets.table_files import TableFile
from wri.errors import InputError, shorten
from wri.report.page import Page, render_page
from wri.saving.folder import REPORT, check_target

WriteRows = Callable[[pd.DataFrame], None]


@contextmanager
def _open_text(path: Path, table: TableFile | None) -> Iterator[WriteRows]:
    """Write delimited text in UTF-8, with the delimiter and the decimal mark of `table`."""
    dialect = None if table is None else table.dialect
    sep, decimal = (",", ".") if dialect is None else (dialect.delimiter, dialect.decimal)
    marked = dialect is not None and dialect.encoding == "utf-8-sig"
    with path.open("w", encoding="utf-8-sig" if marked else "utf-8", newline="") as file:

        def write(frame: pd.DataFrame) -> None:
            # pandas would write a wide table row by row
            rows = {"chunksize": max(1, len(frame)), "index": False, "header": file.tell() == 0}
            frame.to_csv(file, lineterminator="\n", sep=sep, decimal=decimal, **rows)

        yield write


@contextmanager
def _open_parquet(path: Path, table: TableFile | None) -> Iterator[WriteRows]:
    """Write one Parquet file; the first chunk sets the types."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "writing Parquet needs pyarrow; `pip install pyarrow`, or choose a .csv"
        ) from error
    with ExitStack() as opened:
        writer: Any = None

        def write(frame: pd.DataFrame) -> None:
            nonlocal writer
            schema = None if writer is None else writer.schema
            rows = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            if writer is None:
                # a column without values becomes text, because later chunks may hold texts
                kinds = [pa.string() if pa.types.is_null(k) else k for k in rows.schema.types]
                rows = rows.cast(pa.schema(zip(rows.schema.names, kinds, strict=True)))
                writer = opened.enter_context(parquet.ParquetWriter(path, rows.schema))
            writer.write_table(rows)

        yield write


@contextmanager
def _open_stage(target: Path) -> Iterator[Path]:
    """Yield a path in a hidden folder beside the target, which is removed at the end."""
    with TemporaryDirectory(prefix=f".{target.name}-"[:60], dir=target.parent) as folder:
        yield Path(folder) / "part"


@contextmanager
def writer_for(output: Path, table: TableFile | None = None) -> Iterator[WriteRows]:
    """Yield a function that writes rows; the file appears when it is complete, or not at all.

    A text takes the delimiter of `table`, the input, which is not overwritten.
    """
    check_output(output, table)
    open_part = _open_parquet if output.suffix.lower() == ".parquet" else _open_text
    try:
        with _open_stage(output) as part:
            with open_part(part, table) as write:
                yield write
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


def check_model_output(folder: Path) -> None:
    """Refuse a folder that cannot take a model, before the training.

    It may be new, empty, or hold only a saved model and its report, which will be replaced.
    """
    target = folder.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target)
    with TemporaryFile(dir=target if target.exists() else target.parent):
        pass
    if target.exists() and any(target.iterdir()):
        print_note(f"{folder} holds a model; it is replaced when this fit is done")


def write_model(model: Any, page: Page, folder: Path) -> Path:
    """Write a model and its report, completely or not at all; return the report's path."""
    target = folder.resolve()
    data = render_page(page).encode("utf-8", errors="replace")
    with _open_stage(target) as stage:
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
