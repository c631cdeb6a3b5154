"""Digests of a store's rows: detection and repair of damage.

Each row of the plan has a digest of its fields. The digest of a result covers the planned text,
steps, the step of divergence and all measured rows. The seal is a digest of all these digests, so
that missing rows are noticed too.
"""

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wri.errors import InputError, shorten

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
