"""The contract of a runner, and how work is sent to workers."""

import pickle
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import cloudpickle
import numpy as np

from wri.errors import InputError, LostBackendError

RETRIES = 3  # of a job whose worker dies
WORKER = 3.5e8  # bytes of PyTorch and wri in a worker process
MAPPED = 2**12  # bytes of an array that workers read where it lies; smaller ones are copied
READ_ONLY = "The given NumPy array is not writable"  # PyTorch's warning about shared arrays

Report = Callable[[int], None]
"""Called by a job with the number of steps that it has done."""
Warned = tuple[type[Warning], str]


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
        pickler.persistent_id = lambda each: self._numbers.get(id(each))
        pickler.dump(value)
        return file.getvalue()

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(each): number for number, each in enumerate(self.shared)}

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

    def open(self) -> "OpenWork":
        """Unpickle it in a worker."""
        shared = pickle.loads(self.shared, buffers=self.arrays)
        return OpenWork(shared, _unpack(self.work, shared))


class OpenWork(NamedTuple):
    """Work in a worker."""

    shared: Sequence[Any]
    work: Callable[[Any, Report], Any]

    def call(self, job: bytes, report: Report) -> tuple[Any, list[Warned]]:
        """Return the result of a job, and its warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", READ_ONLY)
            result = self.work(_unpack(job, self.shared), report)
        return result, [(each.category, str(each.message)) for each in caught]


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
    """

    name: ClassVar[str]
    threads_per_job: ClassVar[int]

    def __init__(self) -> None:
        self.retries, self.memory = RETRIES, 0.0
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
                        f"{runner.retries + 1} tries ({ended.lost}); if memory was short, start "
                        "fewer workers, or use --backend local"
                    )
                yield jobs[ended.number], ended.result
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); nothing was written: give the same command again, or "
            "use --backend local"
        ) from error


def _call(work: Callable[[Any, Job], Any], rows: Any, job: Job, report: Report) -> Any:
    return work(rows, job)
