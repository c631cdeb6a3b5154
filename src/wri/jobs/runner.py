"""The contract of a runner, how work is sent to workers, and jobs on this machine.

    a thread of this process ── a job ──► worker: runs it
    work and shared arrays, in a folder ─► opened once, mapped
                             ◄── steps done, by a mapped file; the result at the end ──

Jobs run in the calling thread, in threads, or in worker processes. joblib's loky starts the
workers, so that scripts need no guard of `__main__`. Each worker has a thread here, so a worker
that dies costs its own job only, which runs again in a new one.
"""

import os
import pickle
import shutil
import signal
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from io import BytesIO
from multiprocessing import current_process
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import sleep
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import cloudpickle
import numpy as np
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from wri.errors import InputError, LostBackendError

RETRIES = 3  # of a job whose worker dies
WORKER = 3.5e8  # bytes of PyTorch and wri in a worker process
MAPPED = 2**12  # bytes of an array that workers read where it lies; smaller ones are copied
POLL = 0.1  # seconds between two looks at a worker, and of a worker at its parent
READ_ONLY = "The given NumPy array is not writable"  # PyTorch's warning about shared arrays

Report = Callable[[int], None]
"""Called by a job with the number of steps that it has done."""
Warned = tuple[type[Warning], str]
Call = Callable[[bytes, Report], tuple[Any, list[Warned]]]
"""Function from a pickled job to its result and its warnings."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Jobs:
    """Calls of `work(job, report)`, one per job, that do not depend on each other."""

    work: Callable[[Any, Report], Any]  # sent once
    jobs: Sequence[Any]  # each is sent alone, so they are small
    shared: Sequence[Any] = ()  # what `work` and `jobs` refer to; sent once, and only read
    on_steps: Callable[[int, int], None] = lambda number, steps: None  # from any thread
    memory: Sequence[float] | None = None  # bytes that each job needs, for Ray to place it

    def pack(self, value: Any) -> bytes:
        """Pickle a value; shared objects are written as numbers."""
        file = BytesIO()
        pickler = cloudpickle.CloudPickler(file, protocol=5)
        numbers = {id(each): number for number, each in enumerate(self.shared)}
        pickler.persistent_id = lambda each: numbers.get(id(each))
        pickler.dump(value)
        return file.getvalue()

    def send(self) -> "SentWork":
        """Pack everything but the jobs."""
        arrays: list[np.ndarray] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            array = np.frombuffer(buffer.raw(), np.uint8)
            if array.nbytes >= MAPPED:
                arrays.append(array)
            return array.nbytes < MAPPED

        shared = cloudpickle.dumps([*self.shared], protocol=5, buffer_callback=is_small)
        return SentWork(shared, arrays, self.pack(self.work))


class SentWork(NamedTuple):
    """Pickled work and shared objects, whose large arrays are apart."""

    shared: bytes
    arrays: Sequence[np.ndarray]
    work: bytes

    def open(self) -> Call:
        """Unpickle it in a worker; return what runs a pickled job."""
        shared = pickle.loads(self.shared, buffers=self.arrays)
        work = _unpack(self.work, shared)

        def call(job: bytes, report: Report) -> tuple[Any, list[Warned]]:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                warnings.filterwarnings("ignore", READ_ONLY)
                result = work(_unpack(job, shared), report)
            return result, [(each.category, str(each.message)) for each in caught]

        return call


def _unpack(content: bytes, shared: Sequence[Any]) -> Any:
    unpickler = pickle.Unpickler(BytesIO(content))
    unpickler.persistent_load = shared.__getitem__  # type: ignore[method-assign]
    return unpickler.load()


class Ended(NamedTuple):
    """Job that ended: its number and its result, or why it was given up."""

    number: int
    result: Any
    lost: str | None = None


class Runner(ABC):
    """Where jobs run. As a context manager it ends what it started.

    Attributes
    ----------
    name
        Subject of the sentence about jobs that were given up.
    threads_per_job
        `n_jobs` of estimators in a job.
    retries
        How often a job runs again if its worker dies.
    memory
        Bytes for the jobs together.
    status
        Called with a line about finished and running jobs.
    """

    name: ClassVar[str]
    threads_per_job: ClassVar[int]

    def __init__(self) -> None:
        self.retries, self.memory = RETRIES, 0.0
        self.status: Callable[[str], None] = lambda text: None
        self._warned: set[Warned] = set()

    @abstractmethod
    def run(self, jobs: Jobs) -> Generator[Ended, None, None]:
        """Run jobs, and yield each when it ends; an error of a job is raised.

        An error or an interruption, here or where jobs are consumed, ends the others.
        """

    def overhead(self, shared: float) -> float:
        """Return the bytes needed on this machine outside of this process, besides the jobs."""
        return 0.0

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def warn(self, given: Sequence[Warned]) -> None:
        """Give the warnings of a worker, each once."""
        for category, text in given:
            if (category, text) not in self._warned:
                self._warned.add((category, text))
                warnings.warn(text, category, stacklevel=3)


Job = TypeVar("Job")


def run_calls(
    runner: Runner,
    work: Callable[[Any, Job], Any],
    rows: Any,
    jobs: Sequence[Job],
    describe: Callable[[Job], str],
) -> Iterator[tuple[Job, Any]]:
    """Run `work(rows, job)` for every job, and yield jobs with results as they finish.

    `describe` names a job that was given up. Calls may write to their rows, so rows are part of
    the work and not shared.
    """
    try:
        with closing(runner.run(Jobs(work=partial(_call, work, rows), jobs=jobs))) as finished:
            for ended in finished:
                if ended.lost is not None:
                    raise InputError(
                        f"{runner.name} gave up {describe(jobs[ended.number])} after "
                        f"{runner.retries + 1} attempts ({ended.lost}); if memory was short, start "
                        "fewer workers, or use --backend local"
                    )
                yield jobs[ended.number], ended.result
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); nothing was written: run the same command again, or "
            "use --backend local"
        ) from error


def _call(work: Callable[[Any, Job], Any], rows: Any, job: Job, report: Report) -> Any:
    return work(rows, job)


class LocalRunner(Runner):
    """Jobs run one after another in the calling thread, or in several threads or processes.

    Parameters
    ----------
    workers
        Jobs at the same time.
    in_process
        Whether a job runs in a worker process.
    """

    name = "wri"
    threads_per_job = -1

    def __init__(
        self, workers: int = 1, in_process: Callable[[Any], bool] = lambda job: False
    ) -> None:
        super().__init__()
        self._workers, self._in_process = workers, in_process

    def run(self, jobs: Jobs) -> Generator[Ended, None, None]:
        # daemons may start no processes
        if any(map(self._in_process, jobs.jobs)) and not current_process().daemon:
            with _make_processes(jobs, self._workers, self.retries) as processes:
                yield from self._run_in_threads(jobs, processes)
        elif self._workers > 1:
            yield from self._run_in_threads(jobs, None)
        else:
            for number, job in enumerate(jobs.jobs):
                yield Ended(number, jobs.work(job, partial(jobs.on_steps, number)))

    def _run_in_threads(
        self, jobs: Jobs, processes: "SimpleQueue[WorkerProcess] | None"
    ) -> Iterator[Ended]:
        stopped = Event()

        def report(number: int, steps: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            jobs.on_steps(number, steps)

        def run_one(number: int, job: Any) -> tuple[Ended, list[Warned]]:
            if processes is None or not self._in_process(job):
                return Ended(number, jobs.work(job, partial(report, number))), []
            process = processes.get()
            try:
                result, given = process.call(jobs.pack(job), partial(report, number))
            except BrokenProcessPool:
                return Ended(number, None, "its worker process died"), []
            finally:
                processes.put(process)
            return Ended(number, result), given

        with ThreadPoolExecutor(self._workers) as pool:
            finished = as_completed([pool.submit(run_one, *each) for each in enumerate(jobs.jobs)])
            try:
                for future in finished:
                    ended, given = future.result()
                    self.warn(given)
                    yield ended
            except BaseException:  # an error or Ctrl-C: the others end at their next report
                stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise


class WorkerProcess:
    """Process that runs one job at a time; it starts with the first."""

    def __init__(self, folder: str, name: str, retries: int) -> None:
        self._folder, self._name, self._retries = folder, name, retries
        self._steps = np.memmap(Path(folder, name), np.int64, "w+", shape=1)
        self._pool: Any = None

    def call(self, job: bytes, report: Report) -> tuple[Any, list[Warned]]:
        """Run a job, again if the process dies; an error in `report` ends the process."""
        for tried in range(self._retries + 1):
            try:
                return self._try(job, report)
            except BaseException as error:
                self.close(kill=True)
                if tried == self._retries or not isinstance(error, BrokenProcessPool):
                    raise
        raise AssertionError("the last try returns or raises")

    def _try(self, job: bytes, report: Report) -> Any:
        self._steps[0] = 0
        if self._pool is None:
            start = (os.getpid(), self._folder)
            self._pool = ProcessPoolExecutor(1, initializer=_start_worker, initargs=start)
        future = self._pool.submit(_call_in_worker, self._folder, self._name, job)
        while not wait([future], POLL).done:
            report(int(self._steps[0]))
        return future.result()

    def close(self, kill: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=kill)
        self._pool = None


@contextmanager
def _make_processes(
    jobs: Jobs, workers: int, retries: int
) -> Iterator["SimpleQueue[WorkerProcess]"]:
    """Write the work to a temporary folder, and yield processes for it."""
    with TemporaryDirectory(prefix="wri-jobs-", ignore_cleanup_errors=True) as folder:
        sent = jobs.send()
        for number, array in enumerate(sent.arrays):
            array.tofile(Path(folder, f"{number}.array"))
        Path(folder, "work").write_bytes(pickle.dumps(sent._replace(arrays=())))
        processes = [WorkerProcess(folder, f"steps-{n}", retries) for n in range(workers)]
        free: SimpleQueue[WorkerProcess] = SimpleQueue()
        for process in processes:
            free.put(process)
        try:
            yield free
        finally:
            for process in processes:
                process.close()


def _start_worker(parent: int, folder: str) -> None:
    """Leave Ctrl-C to the parent, and end when it does."""

    def watch() -> None:
        while os.getppid() == parent:
            sleep(POLL)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=watch, daemon=True).start()


@cache
def _open_work(folder: str) -> Call:
    sent: SentWork = pickle.loads(Path(folder, "work").read_bytes())
    files = sorted(Path(folder).glob("*.array"), key=lambda path: int(path.stem))
    return sent._replace(arrays=[np.memmap(file, np.uint8, "c") for file in files]).open()


def _call_in_worker(folder: str, name: str, job: bytes) -> tuple[Any, list[Warned]]:
    steps = np.memmap(Path(folder, name), np.int64, "r+", shape=1)
    return _open_work(folder)(job, partial(steps.__setitem__, 0))
