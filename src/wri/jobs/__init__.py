"""Jobs: calls of one function that run here, in threads or processes, or on Ray.

    work(job, report) for every job ─► LocalRunner: this thread, threads, worker processes ─┐
    shared objects, sent once ───────► RayRunner: a child process ─► Ray's workers ─────────┴► Ended

Jobs do not depend on each other, so results are the same everywhere. A job whose worker dies runs
again. Worker processes, and a Ray that was started here, end with their runner or this process.
"""

from wri.errors import check_option
from wri.jobs.on_ray import RayRunner as RayRunner
from wri.jobs.runner import WORKER as WORKER
from wri.jobs.runner import Ended as Ended
from wri.jobs.runner import Jobs as Jobs
from wri.jobs.runner import LocalRunner as LocalRunner
from wri.jobs.runner import Report as Report
from wri.jobs.runner import Runner as Runner
from wri.jobs.runner import run_calls as run_calls

RUNNERS: dict[str, type[LocalRunner] | type[RayRunner]] = {"local": LocalRunner, "ray": RayRunner}


def open_runner(name: str = "local", option: str = "--backend") -> Runner:
    """Make the runner of a name in `RUNNERS`, for a `with` statement."""
    check_option(option, name, tuple(RUNNERS))
    return RUNNERS[name]()
