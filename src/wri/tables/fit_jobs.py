"""Fits as jobs: one after another in this process, or each a task of Ray.

    job: all models without one site, or one on all rows ─► fit ─► what `work` returns

A pass over the files of a folder is such jobs too, one per file.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from wri.errors import InputError, LostBackendError
from wri.jobs import Jobs, Report, Runner


class FitJob(NamedTuple):
    """One fit: the name of what is fitted, and the site that it does not see."""

    algorithm: str
    held_out: str | None = None

    def __str__(self) -> str:
        without = "" if self.held_out is None else f" without site {self.held_out!r}"
        return f"the fit of {self.algorithm}{without}"


Job = TypeVar("Job", bound=Hashable)
"""What a job is called by; its text ends "Ray gave up …"."""


def run_fits(
    runner: Runner, work: Callable[[Any, Job], Any], rows: Any, jobs: Sequence[Job]
) -> Iterator[tuple[Job, Any]]:
    """Run `work(rows, job)` for every job, and yield jobs with results as they finish."""
    try:
        with closing(runner.run(Jobs(work=partial(_fit, work, rows), jobs=jobs))) as finished:
            for ended in finished:
                if ended.lost is not None:
                    raise InputError(
                        f"{runner.name} gave up {jobs[ended.number]} after {runner.retries + 1} "
                        f"tries ({ended.lost}); if memory was short, start fewer workers, or use "
                        "--backend local"
                    )
                yield jobs[ended.number], ended.result
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); nothing was written: give the same command again, or "
            "use --backend local"
        ) from error


def _fit(work: Callable[[Any, Job], Any], rows: Any, job: Job, report: Report) -> Any:
    """Fits write to their rows, so they are part of the work and not shared."""
    return work(rows, job)
