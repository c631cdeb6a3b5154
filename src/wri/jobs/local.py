"""Jobs on this machine: in the calling thread, in threads, or in worker processes.

    a thread of this process ── a job ──► worker: runs it
    work and shared arrays, in a folder ─► opened once, mapped
                             ◄── steps done, by a mapped file; the result at the end ──

joblib's loky starts the workers, so that scripts need no guard of `__main__`. Each worker has a
thread here, so a worker that dies costs its own job only, which runs again in a new one.
"""

import os
import pickle
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import current_process
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import sleep
from typing import Any

import numpy as np
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from wri.jobs.runner import Ended, Jobs, OpenWork, Report, Runner, SentWork, Warned

POLL = 0.1  # seconds between two looks at a worker, and of a worker at its parent


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
def _open_work(folder: str) -> OpenWork:
    sent: SentWork = pickle.loads(Path(folder, "work").read_bytes())
    files = sorted(Path(folder).glob("*.array"), key=lambda path: int(path.stem))
    return sent._replace(arrays=[np.memmap(file, np.uint8, "c") for file in files]).open()


def _call_in_worker(folder: str, name: str, job: bytes) -> tuple[Any, list[Warned]]:
    steps = np.memmap(Path(folder, name), np.int64, "r+", shape=1)
    return _open_work(folder).call(job, partial(steps.__setitem__, 0))
