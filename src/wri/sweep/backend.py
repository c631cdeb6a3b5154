"""Back ends of sweeps: stacks as jobs, on this machine or on Ray.

    rows and splits, sent once ─┐
    stack ──────────────────────┴► job: one thread, the stack's memory ─► checkpoints

Only `run_sweep` writes to the sweep's store.
"""

import hashlib
import socket
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

import wri
from wri.errors import InputError, LostBackendError
from wri.jobs import WORKER, LocalRunner, Report, Runner, open_runner
from wri.progress import Progress, ProgressLines, part
from wri.sweep.plan import RunSpec
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep, stack_memory
from wri.training.runs import RunResult
from wri.training.scheduling import StackJob, run_stacks, share_threads, train_stack_job


def train_stacks(
    sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], backend: Runner, progress: Progress
) -> Generator[tuple[Sequence[RunSpec], list[RunResult]], None, None]:
    """Train stacks on one thread each, and yield each when it is done.

    On this machine many density steps train in worker processes, if there is memory for them; other
    stacks in threads of this process, on CUDA if it is available. An error or an interruption, here
    or where the stacks are consumed, ends the others.
    """
    is_local, lost = isinstance(backend, LocalRunner), []
    jobs = [
        StackJob(
            runs=[sweep.run_to_train(planned) for planned in stack],
            checkpoint_every=sweep.spec.checkpoint_every,
            measures=sweep.spec.measures or "all",
            device="auto" if is_local else "cpu",
            threads=1,
        )
        for stack in stacks
    ]
    runner = backend
    if is_local:
        together, needed = sweep.side_by_side(stacks)
        processes = None if needed + together * WORKER <= sweep.memory else False
        runner, jobs = share_threads(jobs, 1, together, processes)
    runner.memory = sweep.memory
    work = partial(train_stack_for_store, versions=None if is_local else find_versions())
    memory = [stack_memory(job.runs) + WORKER for job in jobs]

    def show(done: int, of: int, at_work: int) -> None:
        backend.status(f"{done} of {of} stacks done, {at_work} running")

    with closing(run_stacks(runner, work, jobs, progress, show, memory)) as trained:
        for ended in trained:
            if ended.lost is None:
                yield stacks[ended.number], ended.result
            else:
                lost.append((stacks[ended.number], ended.lost))
    if lost:
        raise InputError(_describe_lost(lost, runner))


def train_stack_for_store(
    job: StackJob, report: Report, versions: Mapping[str, str] | None
) -> list[RunResult]:
    """Train a stack; refuse where results could differ from those of the sender's versions."""
    if versions is not None:
        check_versions(versions)
    records = train_stack_job(job, report)
    return [  # parameters stay where they were trained
        RunResult(steps=each.steps, measures=each.measures, diverged_at=each.diverged_at)
        for each in records
    ]


@cache
def find_versions() -> dict[str, str]:
    """Return the versions behind a result: wri with a digest of its code, PyTorch, NumPy."""
    digest = hashlib.sha256()
    folder = Path(wri.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    code = f"{wri.__version__} (code {digest.hexdigest()[:8]})"
    return {"wri": code, "torch": str(torch.__version__), "numpy": np.__version__}


def check_versions(sender: Mapping[str, str]) -> None:
    """Refuse to train for a process whose results could differ from ours."""
    for package, ours in find_versions().items():
        if ours != sender[package]:
            raise InputError(
                f"a Ray worker on {socket.gethostname()} has {package} {ours}, and the sweep has "
                f"{sender[package]}; install the same on all machines of the cluster, and start "
                "Ray there again"
            )


def _describe_lost(lost: Sequence[tuple[Sequence[RunSpec], str]], runner: Runner) -> str:
    (first, reason), runs = lost[0], sum(len(stack) for stack, _ in lost)
    others = f" and {runs - 1} more runs" if runs > 1 else ""
    return (
        f"{runner.name} gave up {first[0].place}{others} after {runner.retries + 1} attempts "
        f"({reason}); all other runs are in the store, and the "
        "same command tries these again. If memory was short, give more --memory or start fewer "
        "workers"
    )


def open_backend(name: str = "local") -> Runner:
    """Open a back end by its name, for a `with` statement.

    Parameters
    ----------
    name : {"local", "ray"}, default="local"
        "local" trains in threads of this process. "ray" trains in processes that Ray starts on this
        machine, or on the cluster that `RAY_ADDRESS` names.

    Returns
    -------
    backend : Runner
        The back end. Its attribute `status` may be set to a function, which is called with a line
        about finished and running stacks.

    Raises
    ------
    InputError
        If the name is unknown or Ray is not installed.

    Examples
    --------
    >>> from wri.sweep import open_backend
    >>> with open_backend() as backend:
    ...     backend.overhead(0.0)  # bytes needed outside of this process
    0.0
    """
    return open_runner(name, "backend")


def run_sweep(
    sweep: Sweep,
    store: Store,
    progress: Progress | None = None,
    backend: Runner | None = None,
) -> int:
    """Train all runs that the store does not hold yet.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep continues as
    if it had not been interrupted, on any back end. Each stack trains on one thread, so that sums
    have the same order whatever else trains.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    store : Store
        Store that is open for writing. Only this process writes to it.
    progress : callable or None, default=None
        Called with (steps done, steps in all) of the unfinished stacks. None: a line on standard
        error every half minute.
    backend : Runner or None, default=None
        From `open_backend`. None: threads of this process.

    Returns
    -------
    trained : int
        Number of trained runs.

    Raises
    ------
    LostBackendError
        If Ray ends on the way; finished runs are in the store.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import Store, Sweep, SweepSpec, gather, run_sweep
    >>> sweep = Sweep(SweepSpec(("erm",), steps=2), [gather("hospitals", hospitals(20, seed=0))])
    >>> with TemporaryDirectory() as folder, Store(Path(folder, "s.db"), write=True) as store:
    ...     first, second = run_sweep(sweep, store), run_sweep(sweep, store)
    >>> first, second
    (4, 0)
    """
    store.plan(sweep.spec.setting, sweep.infos, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    groups = defaultdict(list)  # one layer's features are in memory at a time
    for stack in pending:
        groups[stack[0].layer].append(stack)
    progress, backend = progress or ProgressLines("sweep"), backend or LocalRunner()
    try:
        for n, stacks in enumerate(groups.values()):
            progress_here = part(progress, n, len(groups))
            with closing(train_stacks(sweep, stacks, backend, progress_here)) as trained:
                for runs, results in trained:
                    store.finish(runs, results)
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); {len(store.finished())} finished runs are in {store.path}: "
            "run the same command to continue"
        ) from error
    return sum(map(len, pending))
