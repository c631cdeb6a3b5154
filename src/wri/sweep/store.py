"""Store of a sweep: one SQLite file that survives a kill at any moment.

The plan (which runs, and which of them share a stack) is written before anything is trained, and
the results of a stack in one transaction when it is done. So a finished run is never lost and never
trained twice, and an unfinished stack is trained again as planned. After each transaction the file
itself holds everything, so a copy of it is complete.

Each row of the plan has a digest of its fields. The digest of a result covers the planned text,
steps, the step of divergence and all measured rows. The seal is a digest of all these digests, so
that missing rows are noticed too. All are compared when a store is opened.
"""

import hashlib
import json
import os
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from wri.errors import InputError, shorten
from wri.sweep.plan import RunSpec
from wri.sweep.selection import DatasetInfo, Outcome
from wri.training.runs import RunResult

APPLICATION = 0x77726953  # "wriS", in the file's header
VERSION = 3
HEADER = b"SQLite format 3\x00"
TABLES = """
CREATE TABLE setting (fields TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE datasets (
    fingerprint TEXT PRIMARY KEY, name TEXT NOT NULL, info TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY, place TEXT NOT NULL UNIQUE, planned TEXT NOT NULL, stack INTEGER NOT NULL,
    digest TEXT NOT NULL
);
CREATE TABLE results (
    id TEXT PRIMARY KEY REFERENCES runs, steps BLOB NOT NULL, diverged_at INTEGER,
    digest TEXT NOT NULL
);
CREATE TABLE measured (
    id TEXT NOT NULL REFERENCES results, measure TEXT NOT NULL, split TEXT NOT NULL,
    "values" BLOB NOT NULL, PRIMARY KEY (id, measure, split)
) WITHOUT ROWID;
CREATE TABLE seal (digest TEXT NOT NULL);
"""
PLANNED = {  # columns of the digest
    "setting": "fields",
    "datasets": "fingerprint, name, info",
    "runs": "id, place, planned, stack",
}
SHOWN = 5  # runs in a message


class Store:
    """Store of a sweep, open for writing or for reading.

    Parameters
    ----------
    path : path-like
        The file; created if `write` is set and it does not exist.
    write : bool, default=False
        Whether to open it for writing; one process at a time may.
    repair : bool, default=False
        Whether to drop damaged runs from a store that is open for writing, instead of refusing it.

    Attributes
    ----------
    path : Path
        The file.
    dropped : list of str
        Damaged runs that were dropped and are to be trained again.

    Raises
    ------
    InputError
        If the file is not a store, is damaged, or is in use by another sweep.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.sweep import Store
    >>> with TemporaryDirectory() as folder, Store(Path(folder, "s.db"), write=True) as store:
    ...     store.known(), store.outcomes()
    (set(), [])
    """

    def __init__(
        self, path: str | os.PathLike[str], write: bool = False, repair: bool = False
    ) -> None:
        self.path = path = Path(path)
        with ExitStack() as held, self._explain_errors():
            real = path.resolve()  # a link must not bypass the lock
            if real.exists():
                _check_file(real)
            elif not write:
                raise InputError(f"there is no store {path}; `wri sweep --store {path}` makes one")
            if write:
                real.parent.stat()  # a missing folder is an error; filelock would make it
                lock = real.with_name(f"{real.name}.lock")
                # one attempt; any thread may close the store
                held.enter_context(FileLock(lock, timeout=0, thread_local=False))
                if not real.exists():
                    _create(real)
            self._connection = _connect(real, held, write)
            self.dropped = self._check_contents(repair and write)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and release its lock."""
        self._held.close()

    def check(
        self, setting: Mapping[str, object], infos: Mapping[str, DatasetInfo]
    ) -> None:  # by fingerprint
        """Refuse settings or data that differ from those of the runs in the store.

        Parameters
        ----------
        setting : mapping of str to object
            `SweepSpec.setting`.
        infos : mapping of str to DatasetInfo
            Data sets by fingerprint.

        Raises
        ------
        InputError
            If they differ.
        """
        rows = self._read("SELECT fields FROM setting")
        kept = json.loads(rows[0][0]) if rows else {}
        for name, value in json.loads(json.dumps(setting)).items():
            if name in kept and kept[name] != value:
                raise InputError(
                    f"the runs in {self.path} have {name} = {kept[name]}, not {value}; use that "
                    "value, or another store"
                )
        known = dict(self._read("SELECT name, fingerprint FROM datasets"))
        for fingerprint, data in infos.items():
            if known.get(data.name, fingerprint) != fingerprint:
                raise InputError(
                    f"the rows of {data.name!r} differ from those of the runs in {self.path}; use "
                    "another store for changed data"
                )

    def plan(
        self,
        setting: Mapping[str, object],
        infos: Mapping[str, DatasetInfo],
        stacks: Sequence[Sequence[RunSpec]],
    ) -> None:
        """Write new runs, their stacks and their data, all or nothing.

        Parameters
        ----------
        setting : mapping of str to object
            `SweepSpec.setting`.
        infos : mapping of str to DatasetInfo
            Data sets by fingerprint.
        stacks : sequence of sequence of RunSpec
            Runs that share each stack.

        Raises
        ------
        InputError
            If they do not fit the runs in the store.
        """
        self.check(setting, infos)
        with self._transaction():
            (last,) = self._connection.execute("SELECT max(stack) FROM runs").fetchone()
            first = 0 if last is None else last + 1
            self._connection.execute("DELETE FROM setting")
            text = json.dumps(setting, sort_keys=True)
            self._connection.execute("INSERT INTO setting VALUES (?, ?)", (text, digest(text)))
            for fingerprint, data in infos.items():
                row = (fingerprint, data.name, json.dumps(asdict(data)))
                self._connection.execute(
                    "INSERT OR REPLACE INTO datasets VALUES (?, ?, ?, ?)", (*row, digest(*row))
                )
            for n, stack in enumerate(stacks):
                for run in stack:
                    self._add(run, first + n)

    def _add(self, run: RunSpec, stack: int) -> None:
        row = (run.id, run.place, run.as_json(), stack)
        try:
            insert = "INSERT INTO runs VALUES (?, ?, ?, ?, ?)"
            self._connection.execute(insert, (*row, digest(*row)))
        except sqlite3.IntegrityError as error:
            raise InputError(
                f"{self.path} holds another version of this run: {run.place}; name another store"
            ) from error

    def known(self) -> set[str]:
        """Return the ids of all planned runs.

        Returns
        -------
        ids : set of str
            Ids.
        """
        return {run for (run,) in self._read("SELECT id FROM runs")}

    def pending(self, wanted: set[str]) -> list[list[RunSpec]]:
        """Return the stacks with a wanted run that is not finished, complete and in their order.

        Parameters
        ----------
        wanted : set of str
            Ids of wanted runs.

        Returns
        -------
        stacks : list of list of RunSpec
            The stacks.
        """
        rows = self._read(
            "SELECT stack, id, planned, id IN (SELECT id FROM results) FROM runs "
            "ORDER BY stack, rowid"
        )
        stacks: dict[int, list[RunSpec]] = {}
        due = set()
        for stack, run, planned, finished in rows:
            stacks.setdefault(stack, []).append(self._planned(planned))
            if run in wanted and not finished:
                due.add(stack)
        return [stacks[stack] for stack in sorted(due)]

    def finish(self, runs: Sequence[RunSpec], records: Sequence[RunResult]) -> None:
        """Write the results of a whole stack; runs that are already finished are not changed.

        Parameters
        ----------
        runs : sequence of RunSpec
            Runs of the stack.
        records : sequence of RunResult
            Their results in the same order.
        """
        results, measured = [], []
        done = self.finished()
        for run, record in zip(runs, records, strict=True):
            if run.id in done:
                continue
            rows = [
                (measure, split, values.astype("<f8").tobytes())
                for measure, splits in record.measures.items()
                for split, values in splits.items()
            ]
            result = (record.steps.astype("<i8").tobytes(), record.diverged_at)
            results.append((run.id, *result, result_digest(run.as_json(), *result, rows)))
            measured += [(run.id, *row) for row in rows]
        with self._transaction():
            insert = self._connection.executemany
            insert("INSERT INTO results VALUES (?, ?, ?, ?)", results)
            insert("INSERT INTO measured VALUES (?, ?, ?, ?)", measured)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, then move it to the file itself, so that a copy is complete."""
        with self._explain_errors():
            with self._connection:
                self._connection.execute("BEGIN")
                yield
                _seal(self._connection)
            # as far as readers of an older state allow, without waiting for them
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def finished(self) -> set[str]:
        """Return the ids of finished runs.

        Returns
        -------
        ids : set of str
            Ids.
        """
        return {run for (run,) in self._read("SELECT id FROM results")}

    def infos(self) -> dict[str, DatasetInfo]:
        """Return the data sets by their fingerprints.

        Returns
        -------
        infos : dict of str to DatasetInfo
            Data sets.
        """
        rows = self._read("SELECT fingerprint, info FROM datasets ORDER BY name")
        return {fingerprint: _read_info(text) for fingerprint, text in rows}

    def outcomes(self) -> list[Outcome]:
        """Return all planned runs; unfinished ones have no checkpoints.

        Returns
        -------
        outcomes : list of Outcome
            The runs.
        """
        measures: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        query = 'SELECT id, measure, split, "values" FROM measured'
        for name, measure, split, values in self._read(query):
            by_split = measures.setdefault(name, {}).setdefault(measure, {})
            by_split[split] = np.frombuffer(values, "<f8")
        rows = self._read(
            "SELECT id, planned, steps, diverged_at FROM runs LEFT JOIN results USING (id) "
            "ORDER BY stack, runs.rowid"
        )
        found = []
        for name, planned, steps, diverged_at in rows:
            run = self._planned(planned)
            outcome = Outcome(
                dataset=run.dataset,
                algorithm=run.algorithm,
                test_envs=run.test_envs,
                hparams_seed=run.hparams_seed,
                trial_seed=run.trial_seed,
                steps=np.frombuffer(steps or b"", "<i8"),
                measures=measures.get(name, {}),
                diverged_at=diverged_at,
                model=run.model,
            )
            found.append(outcome)
        return found

    def _planned(self, text: str) -> RunSpec:
        try:
            return RunSpec.from_json(text)
        except InputError as error:  # another version of wri, or a plugin that is not loaded
            raise InputError(f"{self.path}: {error}") from error

    def _read(self, query: str) -> list[Any]:
        with self._explain_errors():
            return self._connection.execute(query).fetchall()

    def _check_contents(self, repair: bool) -> list[str]:
        """Refuse another version and damage, or drop what is damaged; return the dropped runs."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise InputError(
                f"{self.path} was written by another version of wri (format {version}, this one "
                f"reads {VERSION}); read it with that version, or name another store"
            )
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(verdict.split()))
        with self._connection:  # one state of the store
            self._connection.execute("BEGIN")
            runs, rows = _find_damage(self._connection)
            kept = self._connection.execute("SELECT digest FROM seal").fetchall()
            if not rows and kept == [(_digest_all(self._connection),)]:
                return []
            if not repair:
                raise InputError(
                    f"{self.path} was changed or damaged: {_describe_damage(runs, rows)}; `wri "
                    "sweep` with the same options and --repair trains the damaged runs again, or "
                    "restore a copy"
                )
            for table, column, key in rows:
                self._connection.execute(f"DELETE FROM {table} WHERE {column} IS ?", (key,))
            _seal(self._connection)
        return runs

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn errors of the system and of SQLite into sentences with a remedy."""
        try:
            yield
        except Timeout as error:
            raise InputError(
                f"another sweep is using {self.path.resolve()}; wait for it, or name another store"
            ) from error
        except OSError as error:
            raise InputError(
                f"the store {shorten(self.path)} cannot be used: {error.strerror}"
            ) from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise InputError(
                    f"the disk is full or failing ({error}); finished runs are safe in "
                    f"{self.path}: free some space and run the same command again"
                ) from error
            raise InputError(
                f"{shorten(self.path)} is damaged or not a store ({shorten(error)}); restore a "
                "copy or name a new file"
            ) from error


def _read_info(text: str) -> DatasetInfo:
    fields = json.loads(text)  # JSON has no tuples
    fields |= {name: tuple(fields[name]) for name in ("environments", "held_back")}
    fields["constant"] = {name: tuple(values) for name, values in fields["constant"].items()}
    return DatasetInfo(**fields)


def _check_file(path: Path) -> None:
    """Refuse a file that is not a store before it is opened."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name one for --store")
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(HEADER):
        raise InputError(f"{path} is not a store of wri (no SQLite file); it was not changed")
    if struct.unpack(">I", head[68:72])[0] != APPLICATION:
        raise InputError(f"{path} is an SQLite file of another program; it was not changed")


def _create(path: Path) -> None:
    """Create an empty store, completely or not at all."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists():  # SQLite would write its contents to the new file
        raise InputError(f"{log} belongs to a store that was deleted; delete it as well")
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.executescript(TABLES)
            _seal(connection)
            connection.commit()
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _connect(path: Path, held: ExitStack, write: bool) -> sqlite3.Connection:
    """Open the file; a reader changes nothing, and may read in a read-only folder."""

    def open_as(mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}",
            timeout=60,
            check_same_thread=False,
            uri=True,
            isolation_level=None,
        )
        held.callback(connection.close)
        # damaged texts too, so that their digest can be compared
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        connection.execute("PRAGMA journal_mode = WAL" if write else "PRAGMA schema_version")
        return connection

    try:
        return open_as("rw" if write else "ro")
    except sqlite3.OperationalError as error:
        if write or not error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            raise
        return open_as("ro&immutable=1")


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


def _seal(connection: sqlite3.Connection) -> None:
    """Write the digest of all digests; the last step of every transaction."""
    connection.execute("DELETE FROM seal")
    connection.execute("INSERT INTO seal VALUES (?)", (_digest_all(connection),))


def _digest_all(connection: sqlite3.Connection) -> str:
    tables = [f"SELECT digest FROM {table}" for table in (*PLANNED, "results")]
    return digest(*sorted(repr(each) for (each,) in connection.execute(" UNION ALL ".join(tables))))


def _find_damage(connection: sqlite3.Connection) -> tuple[list[str], list[tuple[str, str, Any]]]:
    """Compare each row with its digest; return damaged runs, and (table, column, key) of rows."""
    rows: list[tuple[str, str, Any]] = []
    runs: dict[Any, str] = {}  # places by id, or ids where places are unknown
    for table, columns in PLANNED.items():
        query = f"SELECT rowid, digest, {columns} FROM {table}"
        for row, written, *fields in connection.execute(query):
            if digest(*fields) != written:
                rows.append((table, "rowid", row))
                if table == "runs":
                    runs[fields[0]] = str(fields[1])
    query = "SELECT id, place, planned FROM runs"
    planned = {name: fields for name, *fields in connection.execute(query)}
    query = "SELECT id, steps, diverged_at, digest FROM results"
    results = {name: fields for name, *fields in connection.execute(query)}
    measured = defaultdict(list)
    for name, *fields in connection.execute('SELECT id, measure, split, "values" FROM measured'):
        measured[name].append(fields)
    for name in results.keys() | measured.keys():
        place, text = planned.get(name, (name, None))
        steps, diverged_at, written = results.get(name, (None, None, None))
        if result_digest(text, steps, diverged_at, measured[name]) != written:
            runs.setdefault(name, str(place))
    rows += [(table, "id", name) for table in ("results", "measured") for name in runs]
    return [*runs.values()], rows


def _describe_damage(runs: Sequence[str], rows: Iterable[tuple[str, str, Any]]) -> str:
    found = [
        f"a damaged row of its {table}" for table, *_ in rows if table in ("setting", "datasets")
    ]
    if runs:
        more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
        named = "; ".join(shorten(run) for run in runs[:SHOWN])
        found = [f"{len(runs)} damaged runs ({named}{more})", *found]
    return ", ".join(found) or "rows are missing"
