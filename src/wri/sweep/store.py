"""Where a sweep is kept: one SQLite file that survives being killed at any moment.

The plan (which runs, and which of them share a stack) is written before anything is trained, and
the results of a stack in one transaction when it is done. So a finished run is never lost and never
trained twice, and an unfinished stack is trained again as it was planned.
"""

import json
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from filelock import FileLock, Timeout

from wri.errors import InputError
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import RunSpec
from wri.training import Record

APPLICATION = 0x77726953  # "wriS", in the file's header
VERSION = 2
_HEADER = b"SQLite format 3\x00"
_TABLES = """
CREATE TABLE setting (fields TEXT NOT NULL);
CREATE TABLE datasets (fingerprint TEXT PRIMARY KEY, name TEXT NOT NULL, info TEXT NOT NULL);
CREATE TABLE runs (
    id TEXT PRIMARY KEY, place TEXT NOT NULL UNIQUE, planned TEXT NOT NULL, stack INTEGER NOT NULL
);
CREATE TABLE results (
    id TEXT PRIMARY KEY REFERENCES runs, steps BLOB NOT NULL, diverged_at INTEGER
);
CREATE TABLE measured (
    id TEXT NOT NULL REFERENCES results, measure TEXT NOT NULL, split TEXT NOT NULL,
    "values" BLOB NOT NULL, PRIMARY KEY (id, measure, split)
) WITHOUT ROWID;
"""


class Store:
    """A store, open for one sweep or for reading.

    Parameters
    ----------
    path
        The file; made when `write` is set and it does not exist.
    write
        Whether runs are planned and finished. One process at a time may.
    """

    def __init__(self, path: Path, write: bool = False) -> None:
        self.path = path
        with ExitStack() as held, self._errors():
            real = path.resolve()  # a link must not lead around the lock
            if write:
                held.callback(_lock(real).release)
            new = not real.exists()
            if new and not write:
                raise InputError(f"there is no store {path}; `wri sweep --store {path}` makes one")
            _create(real) if new else _check_file(real)
            self._connection = _connect(real, write)
            held.callback(self._connection.close)
            self._check_content()
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._held.close()

    def check(
        self, setting: Mapping[str, object], infos: Mapping[str, DatasetInfo]
    ) -> None:  # by fingerprint
        """Refuse what does not fit the runs that are here, so that no table mixes two sweeps."""
        rows = self._read("SELECT fields FROM setting")
        kept = json.loads(rows[0][0]) if rows else {}
        for name, value in json.loads(json.dumps(setting)).items():
            if name in kept and kept[name] != value:
                raise InputError(
                    f"{self.path} holds runs with {name} = {kept[name]}, not {value}; give the "
                    "same, or name another store"
                )
        known = dict(self._read("SELECT name, fingerprint FROM datasets"))
        for fingerprint, data in infos.items():
            if known.get(data.name, fingerprint) != fingerprint:
                raise InputError(
                    f"{self.path} holds runs on other rows by the name {data.name!r}; name another "
                    "store for the changed data"
                )

    def plan(
        self,
        setting: Mapping[str, object],
        infos: Mapping[str, DatasetInfo],
        stacks: Sequence[Sequence[RunSpec]],
    ) -> None:
        """Write new runs and which of them share a stack, with their data, all or nothing."""
        self.check(setting, infos)
        with self._errors(), self._connection:
            (last,) = self._connection.execute("SELECT max(stack) FROM runs").fetchone()
            first = 0 if last is None else last + 1
            self._connection.execute("DELETE FROM setting")
            text = json.dumps(setting, sort_keys=True)
            self._connection.execute("INSERT INTO setting VALUES (?)", (text,))
            self._connection.executemany(
                "INSERT OR REPLACE INTO datasets VALUES (?, ?, ?)",
                [
                    (fingerprint, data.name, json.dumps(asdict(data)))
                    for fingerprint, data in infos.items()
                ],
            )
            for n, stack in enumerate(stacks):
                for run in stack:
                    self._add(run, first + n)

    def _add(self, run: RunSpec, stack: int) -> None:
        row = (run.id, run.place, run.as_json(), stack)
        try:
            self._connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", row)
        except sqlite3.IntegrityError as error:
            raise InputError(
                f"{self.path} holds another version of this run: {run.place}; name another store"
            ) from error

    def known(self) -> set[str]:
        """Ids of all planned runs."""
        return {run for (run,) in self._read("SELECT id FROM runs")}

    def pending(self, wanted: set[str]) -> list[list[RunSpec]]:
        """Stacks with a wanted run that is not finished, whole and in their order."""
        rows = self._read(
            "SELECT stack, id, planned, id IN (SELECT id FROM results) FROM runs "
            "ORDER BY stack, rowid"
        )
        stacks: dict[int, list[RunSpec]] = {}
        due = set()
        for stack, run, planned, finished in rows:
            stacks.setdefault(stack, []).append(RunSpec.from_json(planned))
            if run in wanted and not finished:
                due.add(stack)
        return [stacks[stack] for stack in sorted(due)]

    def finish(self, runs: Sequence[RunSpec], records: Sequence[Record]) -> None:
        """Write the results of a whole stack."""
        results, measured = [], []
        for run, record in zip(runs, records, strict=True):
            results.append((run.id, record.steps.astype("<i8").tobytes(), record.diverged_at))
            for measure, splits in record.measures.items():
                for split, values in splits.items():
                    row = (run.id, measure, split, values.astype("<f8").tobytes())
                    measured.append(row)
        with self._errors(), self._connection:
            insert = "INSERT OR IGNORE INTO"
            self._connection.executemany(f"{insert} results VALUES (?, ?, ?)", results)
            self._connection.executemany(f"{insert} measured VALUES (?, ?, ?, ?)", measured)

    def finished(self) -> set[str]:
        """Ids of the runs that are done."""
        return {run for (run,) in self._read("SELECT id FROM results")}

    def infos(self) -> dict[str, DatasetInfo]:
        """The data sets by their fingerprints."""
        rows = self._read("SELECT fingerprint, info FROM datasets ORDER BY name")
        return {fingerprint: _read_info(json.loads(text)) for fingerprint, text in rows}

    def outcomes(self) -> list[Outcome]:
        """Every planned run; without checkpoints where it is not finished."""
        measures: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        for run, measure, split, values in self._read(
            'SELECT id, measure, split, "values" FROM measured'
        ):
            by_split = measures.setdefault(run, {}).setdefault(measure, {})
            by_split[split] = np.frombuffer(values, "<f8")
        rows = self._read(
            "SELECT id, planned, steps, diverged_at FROM runs LEFT JOIN results USING (id) "
            "ORDER BY stack, runs.rowid"
        )
        found = []
        for name, planned, steps, diverged_at in rows:
            run = RunSpec.from_json(planned)
            found.append(
                Outcome(
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
            )
        return found

    def _read(self, query: str) -> list[Any]:
        with self._errors():
            return self._connection.execute(query).fetchall()

    def _check_content(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InputError(
                f"{self.path} was written by a newer wri (format {version}, this one knows "
                f"{VERSION}); upgrade wri"
            )
        if version < VERSION:
            raise InputError(
                f"{self.path} was written by an older wri (format {version}, this one reads "
                f"{VERSION}), whose runs cannot be compared with new ones; name another store"
            )
        (verdict,) = self._connection.execute("PRAGMA quick_check").fetchone()
        if verdict != "ok":
            raise InputError(
                f"{self.path} is damaged ({verdict}); restore a copy or name a new one"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The system's and SQLite's errors as sentences that say what to do."""
        try:
            yield
        except OSError as error:
            raise InputError(f"the store {self.path} cannot be used: {error.strerror}") from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise InputError(
                    f"the disk is full or fails ({error}): {self.path} keeps what was finished; "
                    "free some space and give the same command again"
                ) from error
            raise InputError(f"{self.path} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self.path} is damaged ({error}); restore a copy or name a new file"
            ) from error


def _read_info(fields: Mapping[str, Any]) -> DatasetInfo:
    return DatasetInfo(
        name=fields["name"],
        environments=tuple(fields["environments"]),
        constant={measure: tuple(values) for measure, values in fields["constant"].items()},
        held_back=tuple(fields["held_back"]),
        source=fields["source"],
    )


def _create(path: Path) -> None:
    """An empty store, there at once and whole or not at all."""
    rest = path.with_name(path.name + "-wal")
    if rest.exists():
        raise InputError(f"{rest} is left of a store that was deleted; delete it as well")
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    connection = sqlite3.connect(unfinished)
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.executescript(_TABLES)
        connection.close()
        unfinished.replace(path)
    finally:
        connection.close()
        unfinished.unlink(missing_ok=True)


def _connect(path: Path, write: bool) -> sqlite3.Connection:
    """Readers leave the file as it is."""
    mode = "rw" if write else "ro"
    uri = f"{path.as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, timeout=60, check_same_thread=False, uri=True)
    if write:
        connection.execute("PRAGMA journal_mode = WAL")
    return connection


def _check_file(path: Path) -> None:
    """Refuse what is no store before anything opens it."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name one for --store")
    with path.open("rb") as file:
        head = file.read(100)
        size = file.seek(0, os.SEEK_END)
    if len(head) < 100 or not head.startswith(_HEADER):
        raise InputError(f"{path} is not a store of wri (no SQLite file); it was not touched")
    if struct.unpack(">I", head[68:72])[0] != APPLICATION:
        raise InputError(f"{path} is an SQLite file of another program; it was not touched")
    (page,), (pages,) = struct.unpack(">H", head[16:18]), struct.unpack(">I", head[28:32])
    rest = path.with_name(path.name + "-wal")  # what a killed process had not yet moved over
    in_file = not rest.exists() or rest.stat().st_size == 0
    if in_file and size < pages * (65536 if page == 1 else page):
        raise InputError(f"{path} is cut short; restore a copy or name a new file")


def _lock(path: Path) -> FileLock:
    """Hold the store for this process; the system lets go of it however the process ends."""
    path.parent.stat()  # a missing folder is an error; filelock would make it
    # one attempt; any thread may close the store
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"another sweep is at work on {path}; wait for it, or name another store"
        ) from error
    return lock
