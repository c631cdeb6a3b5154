"""Jobs: calls of one function that run here, in threads or processes, or on Ray.

    work(job, report) for every job ─► LocalRunner: this thread, threads, worker processes ─┐
    shared objects, sent once ───────► RayRunner: a child process ─► Ray's workers ─────────┴► Ended

Jobs do not depend on each other, so results are the same everywhere. A job whose worker dies runs
again. Worker processes, and a Ray that was started here, end with their runner or this process.
"""

from wri.errors import check_option
from wri.jobs.local import LocalRunner
from wri.jobs.on_ray import RayRunner
from wri.jobs.runner import WORKER, Ended, Jobs, Report, Runner, run_calls

__all__ = [
    "RUNNERS",
    "WORKER",
    "Ended",
    "Jobs",
    "LocalRunner",
    "RayRunner",
    "Report",
    "Runner",
    "open_runner",
    "run_calls",
]

RUNNERS: dict[str, type[LocalRunner] | type[RayRunner]] = {"local": LocalRunner, "ray": RayRunner}


def open_runner(name: str = "local", option: str = "--backend") -> Runner:
    """Make the runner of a name in `RUNNERS`, for a `with` statement."""
    check_option(option, name, tuple(RUNNERS))
    return RUNNERS[name]()
