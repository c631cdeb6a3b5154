"""Fits as jobs: one after another in this process, or each a task of Ray.

    job: all models without one site, or one on all rows ─► fit ─► what `work` returns

Jobs do not depend on each other, so both ways give the same results.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch

from wri.errors import InputError, LostBackendError, check_option
from wri.sweep.ray_session import RETRIES, RaySession, check_ray


class FitJob(NamedTuple):
    """One fit: the name of what is fitted, and the site that it does not see."""

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
        try:
            yield from self._run(work, shared, jobs)
        except LostBackendError as error:
            raise LostBackendError(
                f"Ray was lost ({error}); nothing was written: give the same command again, or "
                "use --backend local"
            ) from error

    def _run(
        self, work: Callable[[Any, Job], Any], shared: Any, jobs: Sequence[Job]
    ) -> Iterator[tuple[Job, Any]]:
        if self._session is None or self._session.closed:
            self._session = RaySession(self._workers, memory=0.0, shared=_count_bytes(shared))
        session = self._session
        stored = session.put((work, shared), shared=False)  # fits write to their rows
        waiting = {session.submit(fit_job, job, [stored], max_retries=RETRIES): job for job in jobs}
        try:
            while waiting:
                for ended in session.poll():
                    job = waiting.pop(ended.number)
                    if ended.lost is not None:
                        raise InputError(_describe_lost(job, ended.lost))
                    yield job, ended.result
        finally:
            session.forget()

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


def fit_job(job: Any, stored: list[Any], report: Callable[[int], None]) -> Any:
    """Run a job in a worker of Ray, on one thread."""
    torch.set_num_threads(1)
    ((work, shared),) = stored
    return work(shared, job)


def _describe_lost(job: object, reason: str) -> str:
    return (
        f"Ray gave up {job} after {RETRIES + 1} tries ({reason}); if memory was short, start fewer "
        "workers, or use --backend local"
    )


def _count_bytes(shared: Any) -> int:
    """Count the bytes of the rows: a DataFrame's, an array's, or none."""
    X = getattr(shared, "X", np.empty(0))
    return int(X.memory_usage(deep=True).sum()) if hasattr(X, "memory_usage") else int(X.nbytes)
