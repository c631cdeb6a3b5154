"""Store of a sweep: one SQLite file that survives a kill at any moment.

The plan (which runs, and which of them share a stack) is written before anything is trained, and
the results of a stack in one transaction when it is done. So a finished run is never lost and never
trained twice, and an unfinished stack is trained again as planned. After each transaction the file
itself holds everything, so a copy of it is complete. Each row has a digest
(`wri.sweep.store_file`), which is compared when a store is opened.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from wri.errors import InputError, shorten
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.plan import RunSpec
from wri.sweep.store_file import (
    TABLES,
    VERSION,
    check_file,
    check_integrity,
    connect,
    connect_reader,
    create,
    decode_text,
    digest,
    locked,
    result_digest,
    seal,
)
from wri.training.runs import RunResult


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
            new = not real.exists()
            if new and not write:
                raise InputError(f"there is no store {path}; `wri sweep --store {path}` makes one")
            if not new:
                check_file(real)
            if write:
                held.enter_context(locked(real))
                new = not real.exists()
            if new:
                create(real)
            self._connection = connect(real, held) if write else connect_reader(real, held)
            self._connection.text_factory = decode_text
            self._check_version()
            self.dropped = self._check_content(repair and write)
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
        with self._check_contents("its setting"):
            kept = dict(json.loads(rows[0][0])) if rows else {}
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
            stacks.setdefault(stack, []).append(self._planned(run, planned))
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
                seal(self._connection)
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
        with self._check_contents("its data sets"):
            return {fingerprint: _read_info(json.loads(text)) for fingerprint, text in rows}

    def outcomes(self) -> list[Outcome]:
        """Return all planned runs; unfinished ones have no checkpoints.

        Returns
        -------
        outcomes : list of Outcome
            The runs.
        """
        measures: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        for run, measure, split, values in self._read(
            'SELECT id, measure, split, "values" FROM measured'
        ):
            with self._check_contents(f"run {run}"):
                by_split = measures.setdefault(run, {}).setdefault(measure, {})
                by_split[split] = np.frombuffer(values, "<f8")
        rows = self._read(
            "SELECT id, planned, steps, diverged_at FROM runs LEFT JOIN results USING (id) "
            "ORDER BY stack, runs.rowid"
        )
        infos = self.infos()
        return [
            self._outcome(self._planned(name, planned), result, measures.get(name, {}), infos)
            for name, planned, *result in rows
        ]

    def _planned(self, name: str, planned: str) -> RunSpec:
        with self._check_contents(f"run {name}"):
            return RunSpec.from_json(planned)

    def _outcome(
        self,
        run: RunSpec,
        result: Sequence[Any],
        measures: Mapping[str, Mapping[str, np.ndarray]],
        infos: Mapping[str, DatasetInfo],
    ) -> Outcome:
        steps, diverged_at = result
        with self._check_contents(run.place):
            outcome = Outcome(
                dataset=run.dataset,
                algorithm=run.algorithm,
                test_envs=run.test_envs,
                hparams_seed=run.hparams_seed,
                trial_seed=run.trial_seed,
                steps=np.frombuffer(steps or b"", "<i8"),
                measures=measures,
                diverged_at=diverged_at,
                model=run.model,
            )
            outcome.check(infos.get(run.fingerprint))
        return outcome

    def _read(self, query: str) -> list[Any]:
        with self._explain_errors():
            return self._connection.execute(query).fetchall()

    def _check_version(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise InputError(
                f"{self.path} was written by a newer wri (format {version}, this one reads "
                f"{VERSION}); upgrade wri"
            )
        if version < VERSION:
            raise InputError(
                f"{self.path} was written by an older wri (format {version}, this one reads "
                f"{VERSION}), whose runs cannot be compared with new ones; name another store"
            )

    def _check_content(self, repair: bool) -> list[str]:
        """Refuse damage found by SQLite, then by digests; return the dropped runs."""
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            reason = " ".join(verdict.split())
            raise InputError(f"{self.path} is damaged ({reason}); restore a copy or name a new one")
        if repair:
            self._connection.executescript(TABLES)  # those that are lost
        return check_integrity(self._connection, str(self.path), repair)

    @contextmanager
    def _check_contents(self, what: str) -> Iterator[None]:
        """Name contents that no sweep writes, whatever their digest."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.path}: {shorten(what)}: {error}") from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{self.path} was changed or damaged: {shorten(what)} holds values that no sweep "
                f"writes ({shorten(error)}); restore a copy or name a new file"
            ) from error

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Turn errors of the system and of SQLite into sentences with a remedy."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"the store {shorten(self.path)} cannot be used: {error.strerror}"
            ) from error
        except sqlite3.OperationalError as error:
            if not hasattr(error, "sqlite_errorname"):  # raised by Python itself
                raise InputError(f"{self.path} is damaged ({error}); restore a copy") from error
            if error.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                raise InputError(
                    f"the disk is full or fails ({error}): {self.path} keeps what was finished; "
                    "free some space and give the same command again"
                ) from error
            remedy = "restore a copy or name a new file"
            raise InputError(f"{self.path} cannot be used: {error}; {remedy}") from error
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{shorten(self.path)} is damaged or not a store ({shorten(error)}); restore a "
                "copy or name a new file"
            ) from error


def _read_info(fields: Mapping[str, Any]) -> DatasetInfo:
    numbers = [*fields["held_back"], *(v for each in fields["constant"].values() for v in each)]
    names = [fields["name"], *fields["environments"], *fields["source"].values()]
    if {*map(type, names)} != {str} or not {*map(type, numbers)} <= {int, float}:
        raise ValueError("names must be texts, and constants numbers")
    return DatasetInfo(
        name=fields["name"],
        environments=tuple(fields["environments"]),
        constant={measure: tuple(values) for measure, values in fields["constant"].items()},
        held_back=tuple(fields["held_back"]),
        source=fields["source"],
    )
