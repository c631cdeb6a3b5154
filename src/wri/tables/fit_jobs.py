"""Fits as jobs: one after another in this process, or each a task of Ray.

    job: one algorithm without one site, or on all rows ─► preprocessing, fit ─► what `work` returns

Jobs do not depend on each other, so both ways give the same results.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from time import sleep
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch

from wri.errors import InputError, check_option
from wri.sweep.ray_session import POLL, RETRIES, RaySession, check_ray, fetch_result


class FitJob(NamedTuple):
    """One fit: an algorithm, and the site that it does not see."""

    algorithm: str
    held_out: str | None = None

    def __str__(self) -> str:
        without = "" if self.held_out is None else f" without site {self.held_out!r}"
        return f"the fit of {self.algorithm}{without}"


Job = TypeVar("Job", bound=Hashable)
"""What a job is called by; its text ends "Ray gave up …"."""


class JobRunner(ABC):
    """Where jobs run. As a context it ends what it started.

    Attributes
    ----------
    threads_per_job
        `n_jobs` of the estimators in a job.
    """

    threads_per_job: ClassVar[int]

    @abstractmethod
    def run(
        self, work: Callable[[Any, Job], Any], shared: Any, jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Any]]:
        """Run `work(shared, job)` for every job, and yield jobs with results as they finish."""

    def close(self) -> None:
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LocalRunner(JobRunner):
    """Jobs run one after another; each uses all cores."""

    threads_per_job = -1

    def run(
        self, work: Callable[[Any, Job], Any], shared: Any, jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Any]]:
        for job in jobs:
            yield job, work(shared, job)


class RayRunner(JobRunner):
    """Jobs run in Ray's workers, one CPU each; rows are put into the object store once.

    Parameters
    ----------
    workers : int, optional
        Jobs that run at a time where Ray is started on this machine; as many as PyTorch has
        threads when not given. `RAY_ADDRESS` names a cluster to join instead.
    """

    threads_per_job = 1

    def __init__(self, workers: int | None = None) -> None:
        check_ray()
        self._workers = workers or torch.get_num_threads()
        self._session: RaySession | None = None

    def run(
        self, work: Callable[[Any, Job], Any], shared: Any, jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Any]]:
        if self._session is None:
            self._session = RaySession(self._workers, memory=0.0, shared=_count_bytes(shared))
        ray = self._session.ray
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(_make_task())
        stored = ray.put(ray.cloudpickle.dumps((work, shared)))
        waiting = {task.remote(stored, job): job for job in jobs}
        try:
            while waiting:
                ready, _ = ray.wait([*waiting], timeout=0)
                if not ready:
                    sleep(POLL)  # not in Ray, which would make SIGTERM a plain Ctrl-C
                for ref in ready:
                    job = waiting.pop(ref)
                    yield job, self._fetch(ray, ref, job)
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)

    def _fetch(self, ray: Any, ref: Any, job: object) -> Any:
        try:
            return pickle.loads(fetch_result(ray, ref))
        except ray.exceptions.RayError as error:
            raise InputError(
                f"Ray gave up {job} after {RETRIES + 1} tries "
                f"({type(error).__name__}); if memory was short, start fewer workers, or use "
                "--backend local"
            ) from error

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


RUNNERS: dict[str, type[JobRunner]] = {"local": LocalRunner, "ray": RayRunner}


def open_runner(backend: str = "local") -> JobRunner:
    """Make the runner of a back end, to be used in a `with` statement.

    Parameters
    ----------
    backend : {"local", "ray"}, default="local"
        Where fits run.
    """
    check_option("--backend", backend, tuple(RUNNERS))
    return RUNNERS[backend]()


def _make_task() -> Callable[[bytes, Any], bytes]:
    """Make the task as a closure: Ray sends its code, so a worker without wri can say so.

    Rows and results travel as bytes, because arrays in Ray's object store cannot be written to.
    """

    def fit_job(stored: bytes, job: Any) -> bytes:
        import pickle

        import torch

        torch.set_num_threads(1)
        work, shared = pickle.loads(stored)
        return pickle.dumps(work(shared, job))

    return fit_job


def _count_bytes(shared: Any) -> int:
    """Count the bytes of the rows: a DataFrame's, an array's, or none."""
    X = getattr(shared, "X", np.empty(0))
    return int(X.memory_usage(deep=True).sum()) if hasattr(X, "memory_usage") else int(X.nbytes)
