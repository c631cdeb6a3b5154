"""File of a store: created complete, locked by one writer, opened by readers without changes."""

import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from wri.errors import InputError
from wri.sweep.integrity import TABLES, seal

APPLICATION = 0x77726953  # "wriS", in the file's header
VERSION = 3
HEADER = b"SQLite format 3\x00"


def create(path: Path) -> None:
    """Create an empty store, completely or not at all."""
    rest = _write_ahead_log(path)
    if rest.exists():
        raise InputError(f"{rest} belongs to a store that was deleted; delete it as well")
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    connection = sqlite3.connect(unfinished)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.executescript(TABLES)
        seal(connection)
        connection.commit()
        connection.close()
        unfinished.replace(path)
    finally:
        connection.close()
        unfinished.unlink(missing_ok=True)


def connect(path: Path, held: ExitStack, mode: str = "mode=rw") -> sqlite3.Connection:
    uri = f"{path.as_uri()}?{mode}"
    connection = sqlite3.connect(
        uri, timeout=60, check_same_thread=False, uri=True, isolation_level=None
    )
    held.callback(connection.close)
    if mode == "mode=rw":
        connection.execute("PRAGMA journal_mode = WAL")
    return connection


def connect_reader(path: Path, held: ExitStack) -> sqlite3.Connection:
    """Open the file for reading without changing it, also in a read-only folder."""
    connection = connect(path, held, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
    if not _write_ahead_log(path).exists() or not _write_ahead_log(path).stat().st_size:
        return connect(path, held, "mode=ro&immutable=1")
    folder = Path(held.enter_context(TemporaryDirectory()))
    for each in (path, _write_ahead_log(path)):
        shutil.copy(each, folder / each.name)
    return connect(folder / path.name, held, "mode=ro")


def decode_text(text: bytes) -> str:
    """Decode damaged texts too, so that their digest can be compared."""
    return text.decode(errors="backslashreplace")


def _write_ahead_log(path: Path) -> Path:
    """Return the write-ahead log: what a killed process had not yet moved to the file."""
    return path.with_name(path.name + "-wal")


def check_file(path: Path) -> None:
    """Refuse a file that is not a store before it is opened."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name one for --store")
    with path.open("rb") as file:
        head = file.read(100)
        size = file.seek(0, os.SEEK_END)
    if len(head) < 100 or not head.startswith(HEADER):
        raise InputError(f"{path} is not a store of wri (no SQLite file); it was not changed")
    if struct.unpack(">I", head[68:72])[0] != APPLICATION:
        raise InputError(f"{path} is an SQLite file of another program; it was not changed")
    (page,), (pages,) = struct.unpack(">H", head[16:18]), struct.unpack(">I", head[28:32])
    rest = _write_ahead_log(path)
    in_file = not rest.exists() or rest.stat().st_size == 0
    if in_file and size < pages * (65536 if page == 1 else page):
        raise InputError(f"{path} is cut off; restore a copy or name a new file")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the store for this process; the system releases the lock when the process ends."""
    path.parent.stat()  # a missing folder is an error; filelock would make it
    # one attempt; any thread may close the store
    beside = path.with_name(path.name + ".lock")
    new = not beside.exists()
    lock = FileLock(beside, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"another sweep is using {path}; wait for it, or name another store"
        ) from error
    try:
        yield
    except InputError:  # leave no lock file beside a refused store
        if new:
            beside.unlink(missing_ok=True)
        raise
    finally:
        lock.release()
