"""Where a sweep is kept: one SQLite file that survives being killed at any moment.

The plan (which runs, and which of them share a stack) is written before anything is trained, and
the results of a stack in one transaction when it is done. So a finished run is never lost and never
trained twice, and an unfinished stack is trained again as it was planned. After each transaction
the file itself holds everything, so a copy of it is whole. Every row has a digest
(`wri.sweep.integrity`), which is compared when a store is opened.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from wri.errors import InputError, shorten
from wri.sweep.integrity import TABLES, check_integrity, digest, result_digest, seal
from wri.sweep.outcomes import Checkpoints, DatasetInfo, Outcome
from wri.sweep.plan import RunSpec
from wri.sweep.store_file import (
    VERSION,
    check_file,
    connect,
    connect_reader,
    create,
    decode_text,
    locked,
)


class Store:
    """A store, open for one sweep or for reading.

    Parameters
    ----------
    path
        The file; made when `write` is set and it does not exist.
    write
        Whether runs are planned and finished. One process at a time may.
    repair
        Whether to drop damaged runs from a store that is open for writing, instead of refusing it.

    Attributes
    ----------
    dropped
        Which runs were damaged and are to be trained again.
    """

    def __init__(self, path: Path, write: bool = False, repair: bool = False) -> None:
        self.path = path
        with ExitStack() as held, self._errors():
            real = path.resolve()  # a link must not lead around the lock
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
        with self._sound("its setting"):
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
        """Write new runs and which of them share a stack, with their data, all or nothing."""
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
            stacks.setdefault(stack, []).append(self._planned(run, planned))
            if run in wanted and not finished:
                due.add(stack)
        return [stacks[stack] for stack in sorted(due)]

    def finish(self, runs: Sequence[RunSpec], records: Sequence[Checkpoints]) -> None:
        """Write the results of a whole stack; a run that is finished already stays as it is."""
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
        """All or nothing, and then in the file itself, where a copy of it finds everything."""
        with self._errors():
            with self._connection:
                self._connection.execute("BEGIN")
                yield
                seal(self._connection)
            # as far as readers of an older state allow, without waiting for them
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def finished(self) -> set[str]:
        """Ids of the runs that are done."""
        return {run for (run,) in self._read("SELECT id FROM results")}

    def infos(self) -> dict[str, DatasetInfo]:
        """The data sets by their fingerprints."""
        rows = self._read("SELECT fingerprint, info FROM datasets ORDER BY name")
        with self._sound("its data sets"):
            return {fingerprint: _read_info(json.loads(text)) for fingerprint, text in rows}

    def outcomes(self) -> list[Outcome]:
        """Every planned run; without checkpoints where it is not finished."""
        measures: dict[str, dict[str, dict[str, np.ndarray]]] = {}
        for run, measure, split, values in self._read(
            'SELECT id, measure, split, "values" FROM measured'
        ):
            with self._sound(f"run {run}"):
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
        with self._sound(f"run {name}"):
            return RunSpec.from_json(planned)

    def _outcome(
        self,
        run: RunSpec,
        result: Sequence[Any],
        measures: Mapping[str, Mapping[str, np.ndarray]],
        infos: Mapping[str, DatasetInfo],
    ) -> Outcome:
        steps, diverged_at = result
        with self._sound(run.place):
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
        with self._errors():
            return self._connection.execute(query).fetchall()

    def _check_version(self) -> None:
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

    def _check_content(self, repair: bool) -> list[str]:
        """Refuse what SQLite finds damaged, then what digests do; the runs that were dropped."""
        (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            reason = " ".join(verdict.split())
            raise InputError(f"{self.path} is damaged ({reason}); restore a copy or name a new one")
        if repair:
            self._connection.executescript(TABLES)  # those that are lost
        return check_integrity(self._connection, str(self.path), repair)

    @contextmanager
    def _sound(self, what: str) -> Iterator[None]:
        """Contents that are no sweep's, whatever their digest says, are named."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.path}: {shorten(what)}: {error}") from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{self.path} was changed or damaged: {shorten(what)} holds what no sweep writes "
                f"({shorten(error)}); restore a copy or name a new file"
            ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The system's and SQLite's errors as sentences that say what to do."""
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
                f"{shorten(self.path)} is damaged or no store ({shorten(error)}); restore a copy "
                "or name a new file"
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
