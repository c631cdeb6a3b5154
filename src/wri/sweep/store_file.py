"""File of a store: created complete, locked by one writer, checked for damage when it is opened.

Each row of the plan has a digest of its fields. The digest of a result covers the planned text,
steps, the step of divergence and all measured rows. The seal is a digest of all these digests, so
that missing rows are noticed too.
"""

import hashlib
import os
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from wri.errors import InputError, shorten

APPLICATION = 0x77726953  # "wriS", in the file's header
VERSION = 3
HEADER = b"SQLite format 3\x00"
TABLES = """
CREATE TABLE IF NOT EXISTS setting (fields TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS datasets (
    fingerprint TEXT PRIMARY KEY, name TEXT NOT NULL, info TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, place TEXT NOT NULL UNIQUE, planned TEXT NOT NULL, stack INTEGER NOT NULL,
    digest TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS results (
    id TEXT PRIMARY KEY REFERENCES runs, steps BLOB NOT NULL, diverged_at INTEGER,
    digest TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS measured (
    id TEXT NOT NULL REFERENCES results, measure TEXT NOT NULL, split TEXT NOT NULL,
    "values" BLOB NOT NULL, PRIMARY KEY (id, measure, split)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seal (digest TEXT NOT NULL);
"""
SHOWN = 5  # runs in a message
_DIGESTS = (
    "SELECT digest FROM setting UNION ALL SELECT digest FROM datasets "
    "UNION ALL SELECT digest FROM runs UNION ALL SELECT digest FROM results"
)


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


def digest(*parts: Any) -> str:
    """Return the SHA-256 of some values with their types: texts, bytes, numbers, None."""
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        found.update(f"{type(part).__name__} {len(data)} ".encode() + data)
    return found.hexdigest()


def result_digest(planned: Any, steps: Any, diverged_at: Any, measured: Iterable[Any]) -> str:
    """Return the digest of a finished run; `measured` holds (measure, split, values)."""
    rows = sorted(measured, key=repr)
    return digest(planned, steps, diverged_at, *(part for row in rows for part in row))


def seal(connection: sqlite3.Connection) -> None:
    """Write the digest of all digests; the last step of every transaction."""
    connection.execute("DELETE FROM seal")
    connection.execute("INSERT INTO seal VALUES (?)", (_digest_all(connection),))


def _digest_all(connection: sqlite3.Connection) -> str:
    return digest(*sorted(repr(each) for (each,) in connection.execute(_DIGESTS)))


@dataclass(kw_only=True)
class StoreDamage:
    """Rows of a store that differ from what was written."""

    runs: list[str] = field(default_factory=list)  # places of runs, or ids where these are unknown
    plan: list[int] = field(default_factory=list)  # rowids of `runs`
    results: set[Any] = field(default_factory=set)  # ids of results and measured rows
    others: list[tuple[str, int]] = field(default_factory=list)  # table and rowid
    is_incomplete: bool = False  # rows are missing

    def __bool__(self) -> bool:
        return bool(self.runs or self.others or self.is_incomplete)

    def __str__(self) -> str:
        found = []
        if self.runs:
            more = f" and {len(self.runs) - SHOWN} more" if len(self.runs) > SHOWN else ""
            named = "; ".join(shorten(run) for run in self.runs[:SHOWN])
            found.append(f"{len(self.runs)} damaged runs ({named}{more})")
        found += [f"a damaged row of its {table}" for table, _ in self.others]
        return ", ".join(found) or "rows are missing"


def find_damage(connection: sqlite3.Connection) -> StoreDamage:
    """Compare each row with its digest, in one state of the store."""
    connection.execute("BEGIN")
    try:
        return _compare(connection)
    finally:
        connection.rollback()


def _compare(connection: sqlite3.Connection) -> StoreDamage:
    damage = StoreDamage()
    for table, columns in (("setting", "fields"), ("datasets", "fingerprint, name, info")):
        for row, written, *fields in connection.execute(
            f"SELECT rowid, digest, {columns} FROM {table}"
        ):
            if digest(*fields) != written:
                damage.others.append((table, row))
    planned = {}
    for row, written, *fields in connection.execute(
        "SELECT rowid, digest, id, place, planned, stack FROM runs"
    ):
        name, place, text, _ = fields
        if digest(*fields) == written:
            planned[name] = place, text
        else:
            damage.plan.append(row)
            damage.results.add(name)
            damage.runs.append(str(place))
    _compare_results(connection, planned, damage)
    kept = connection.execute("SELECT digest FROM seal").fetchall()
    damage.is_incomplete = kept != [(_digest_all(connection),)]
    return damage


def _compare_results(
    connection: sqlite3.Connection, planned: dict[Any, tuple[Any, Any]], damage: StoreDamage
) -> None:
    measured: dict[Any, list[Any]] = {}
    for name, *row in connection.execute('SELECT id, measure, split, "values" FROM measured'):
        measured.setdefault(name, []).append(row)
    whole = set()
    for name, steps, diverged_at, written in connection.execute(
        "SELECT id, steps, diverged_at, digest FROM results"
    ):
        _, text = planned.get(name, (None, None))
        if result_digest(text, steps, diverged_at, measured.get(name, [])) == written:
            whole.add(name)
        else:
            measured.setdefault(name, [])
    for name in measured.keys() - whole - damage.results:
        place, _ = planned.get(name, (name, None))
        damage.runs.append(str(place))
        damage.results.add(name)


def drop(connection: sqlite3.Connection, damage: StoreDamage) -> None:
    """Delete damaged rows with all rows of their runs, and seal the rest."""
    connection.executemany("DELETE FROM runs WHERE rowid = ?", [(row,) for row in damage.plan])
    names = [(name,) for name in damage.results]
    for table in ("results", "measured"):
        connection.executemany(f"DELETE FROM {table} WHERE id IS ?", names)
    for table, row in damage.others:
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    seal(connection)


def check_integrity(connection: sqlite3.Connection, what: str, repair: bool) -> list[str]:
    """Refuse a damaged store, or drop what is damaged; return the dropped runs."""
    damage = find_damage(connection)
    if damage and not repair:
        raise InputError(
            f"{what} was changed or damaged: {damage}; `wri sweep` with the same options and "
            "--repair trains the damaged runs again, or restore a copy"
        )
    if damage:
        with connection:
            connection.execute("BEGIN")
            drop(connection, damage)
    return damage.runs
