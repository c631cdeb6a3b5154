"""Worker processes for stacks with many small operations, which wait for Python's lock.

    a thread of this process ── a stack without its rows ──► worker: trains on its share of threads
                   rows, written once to a folder, mapped ─►
                             ◄── steps done, by a shared board; records and warnings at the end ──

Density steps are such operations: two stacks in two threads take 15 to 25 % longer than in two
processes. joblib's loky starts the workers, so that scripts need no guard of `__main__`. A worker
that dies is started again and trains its stack again. All workers end with this process.
"""

import os
import pickle
import shutil
import signal
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from multiprocessing import current_process
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp
from threading import Lock
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from wri.errors import InputError
from wri.training.loop import Measures, train_stack
from wri.training.memory import give_back_freed_memory, keep_freed_memory
from wri.training.records import Record
from wri.training.runs import Bank, Run
from wri.training.stacks import stack_cost

ROW_SECONDS = 1e-6  # of a core for a stack's step, per row of `stack_cost`
LEAST_SECONDS = 30  # of work per worker, below which its start costs more than it gains
RETRIES = 3  # of a stack whose worker dies
POLL = 0.1  # seconds between two looks at a worker
THREADS, STEPS = 0, 1  # places on a worker's board: threads to use, and steps that are done


def takes_side_steps(runs: Sequence[Run]) -> bool:
    """Return whether a stack makes many small steps beside the predictor's."""
    return any(run.objective.side_steps(run.hyper).steps for run in runs)


def pays_for_processes(stacks: Sequence[Sequence[Run]], workers: int) -> bool:
    """Return whether stacks with side steps have enough work for this number of workers."""
    if workers < 2 or current_process().daemon:  # daemons may start no processes
        return False
    seconds = sum(
        ROW_SECONDS * stack_cost(stack) * stack[0].spec.last_step
        for stack in stacks
        if takes_side_steps(stack)
    )
    return seconds >= workers * LEAST_SECONDS


@dataclass(frozen=True, kw_only=True)
class SentStack:
    """Stack that is sent to a worker."""

    parent: int  # process that waits for it
    folder: str  # of banks and boards
    board: str  # file name of the worker's board
    runs: bytes  # banks by number
    checkpoint_every: int
    measures: Measures


class TrainedRuns(NamedTuple):
    """Result that a worker sends back."""

    records: list[Record]
    warnings: list[tuple[type[Warning], str]]


class BankFolder:
    """Banks in a temporary folder, each written once, for workers to map."""

    def __init__(self) -> None:
        self.path = mkdtemp(prefix="wri-stacks-")
        self._banks: dict[int, Bank] = {}  # by number; kept, so that none takes another's id
        self._numbers: dict[int, int] = {}  # by id
        self._lock = Lock()

    def pack(self, runs: Sequence[Run]) -> bytes:
        """Pickle runs without their banks, which are in the folder afterwards."""
        packed = BytesIO()
        pickler = pickle.Pickler(packed)
        pickler.persistent_id = self._number  # type: ignore[method-assign]
        pickler.dump(list(runs))
        return packed.getvalue()

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _number(self, thing: Any) -> int | None:
        if not isinstance(thing, Bank):
            return None
        with self._lock:
            if id(thing) not in self._numbers:
                number = len(self._banks)
                self._banks[number], self._numbers[id(thing)] = thing, number
                for name in ("features", "targets"):
                    np.save(_bank_file(self.path, number, name), getattr(thing, name))
                rest = pickle.dumps((thing.loss, thing.classes, thing.weights))
                Path(_bank_file(self.path, number, "rest")).write_bytes(rest)
        return self._numbers[id(thing)]


class StackWorker:
    """Process that trains one stack at a time; it starts with the first.

    Parameters
    ----------
    folder
        Where banks are.
    name
        Of its board in that folder.
    """

    def __init__(self, folder: BankFolder, name: str) -> None:
        self._folder, self._name = folder, name
        path = Path(folder.path) / name
        self._board = np.memmap(path, np.int64, "w+", shape=2)
        self._executor: Any = None

    def train(
        self,
        runs: Sequence[Run],
        checkpoint_every: int,
        measures: Measures,
        advance: Callable[[int], int],
    ) -> list[Record]:
        """Train a stack.

        `advance` is called with the number of steps done, from time to time, and returns the number
        of threads to use. An error in it ends the worker.
        """
        sent = SentStack(
            parent=os.getpid(),
            folder=self._folder.path,
            board=self._name,
            runs=self._folder.pack(runs),
            checkpoint_every=checkpoint_every,
            measures=measures,
        )
        for _ in range(RETRIES + 1):
            self._board[:] = advance(0), 0
            if self._executor is None:
                self._executor = ProcessPoolExecutor(1, initializer=_leave_interrupts_to_parent)
            try:
                trained = self._wait(self._executor.submit(_train_sent, sent), advance)
            except BrokenProcessPool:
                self.close(kill=True)
                continue
            except BaseException:
                self.close(kill=True)
                raise
            advance(runs[0].spec.last_step)
            for category, text in trained.warnings:
                warnings.warn(text, category, stacklevel=2)
            return trained.records
        raise InputError(
            f"a worker process died {RETRIES + 1} times while it trained {len(runs)} runs of "
            f"{runs[0].objective.name}; memory may be short: train fewer at a time"
        )

    def _wait(self, job: "Future[TrainedRuns]", advance: Callable[[int], int]) -> TrainedRuns:
        while True:
            try:
                return job.result(POLL)
            except TimeoutError:
                if job.done():  # the worker's own
                    raise
            self._board[THREADS] = advance(int(self._board[STEPS]))

    def close(self, kill: bool = False) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=kill)
        self._executor = None


class StackWorkers:
    """Workers that share a folder of banks; as a context manager it ends them."""

    def __init__(self, n: int) -> None:
        self._folder = BankFolder()
        self._all = [StackWorker(self._folder, f"board-{k}") for k in range(n)]
        self._free: SimpleQueue[StackWorker] = SimpleQueue()
        for worker in self._all:
            self._free.put(worker)

    def train(
        self,
        runs: Sequence[Run],
        checkpoint_every: int,
        measures: Measures,
        advance: Callable[[int], int],
    ) -> list[Record]:
        """Train a stack in the next free worker; see `StackWorker.train`."""
        worker = self._free.get()
        try:
            return worker.train(runs, checkpoint_every, measures, advance)
        finally:
            self._free.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._all:
            worker.close()
        self._folder.close()


def _bank_file(folder: str, number: int, name: str) -> str:
    return str(Path(folder) / f"{number}-{name}.npy")


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@cache
def _load_bank(folder: str, number: int) -> Bank:
    """Load a bank in the worker; its rows are mapped from the file."""
    features, targets = (
        np.load(_bank_file(folder, number, name), mmap_mode="c") for name in ("features", "targets")
    )
    loss, classes, weights = pickle.loads(Path(_bank_file(folder, number, "rest")).read_bytes())
    return Bank(features, targets, loss=loss, classes=classes, weights=weights)


def _unpack(sent: SentStack) -> list[Run]:
    def load(number: Hashable) -> Bank:
        return _load_bank(sent.folder, int(str(number)))

    unpickler = pickle.Unpickler(BytesIO(sent.runs))
    unpickler.persistent_load = load  # type: ignore[method-assign]
    runs: list[Run] = unpickler.load()
    for run in runs:
        run.__dict__.pop("split", None)  # it names the parent's bank
    return runs


def _train_sent(sent: SentStack) -> TrainedRuns:
    """Train a stack in the worker."""
    keep_freed_memory()
    board = np.memmap(Path(sent.folder) / sent.board, np.int64, "r+", shape=2)
    torch.set_num_threads(int(board[THREADS]))

    def progress(step: int, of: int) -> None:
        if os.getppid() != sent.parent:  # the parent was killed: clean up and end
            shutil.rmtree(sent.folder, ignore_errors=True)
            os._exit(1)
        board[STEPS] = step
        if torch.get_num_threads() != board[THREADS]:
            torch.set_num_threads(int(board[THREADS]))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        records = train_stack(
            _unpack(sent),
            checkpoint_every=sent.checkpoint_every,
            measures=sent.measures,
            device="cpu",
            progress=progress,
        )
    give_back_freed_memory()
    return TrainedRuns(records, [(each.category, str(each.message)) for each in caught])
