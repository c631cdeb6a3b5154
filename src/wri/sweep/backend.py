"""Back ends of sweeps: stacks as jobs, on this machine or on Ray.

    rows and splits, sent once ─┐
    stack ──────────────────────┴► job: one thread, the stack's memory ─► checkpoints

Only `run_sweep` writes to the sweep's store.
"""

import hashlib
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch

import wri
from wri.errors import InputError
from wri.jobs import WORKER, Report, Runner
from wri.progress import Progress, silent
from wri.sweep.data import SweepData
from wri.sweep.memory import stack_memory
from wri.sweep.outcomes import Checkpoints, Values
from wri.sweep.plan import RunSpec
from wri.sweep.sweep import Sweep
from wri.training.scheduling import StackJob, run_stacks, share_threads, train_stack_job


class TrainedStack(NamedTuple):
    """Trained stack: its runs and their results in the same order."""

    runs: Sequence[RunSpec]
    results: Sequence[Checkpoints]


class RunResult(NamedTuple):
    """Results of a run for the store; parameters stay in the worker."""

    steps: np.ndarray  # [T]
    measures: Mapping[str, Values]
    diverged_at: int | None


class Backend:
    """Where stacks train; as a context manager it ends what it started.

    Many density steps train in worker processes of this machine, if there is memory for them; other
    stacks in threads of this process, on CUDA if it is available.

    Parameters
    ----------
    runner : RayRunner or None, default=None
        Where stacks train. None: on this machine.

    Attributes
    ----------
    status : callable or None
        Called with a line about finished and running stacks; may be set at any time.

    Examples
    --------
    >>> from wri.sweep import Backend, open_backend
    >>> with open_backend("local") as backend:
    ...     isinstance(backend, Backend)
    True
    """

    def __init__(self, runner: Runner | None = None) -> None:
        self.runner = runner
        self.status: Callable[[str], None] | None = None

    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        """Train stacks on one thread each, and yield each when it is done.

        An error or an interruption, here or where the stacks are consumed, ends the others.

        Parameters
        ----------
        sweep : Sweep
            The sweep.
        stacks : sequence of sequence of RunSpec
            Runs of each stack.
        progress : callable or None, default=None
            Called with (steps done, steps in all).

        Yields
        ------
        stack : TrainedStack
            A trained stack.
        """
        if not stacks:
            return
        jobs = [
            StackJob(
                runs=[sweep.run_to_train(planned) for planned in stack],
                checkpoint_every=sweep.spec.checkpoint_every,
                measures=sweep.spec.measures or "all",
                device="auto" if self.runner is None else "cpu",
                threads=1,
            )
            for stack in stacks
        ]
        runner, versions, lost = self.runner, None, []
        if runner is None:
            processes = None if sweep.may_use_processes(stacks) else False
            runner, jobs = share_threads(jobs, 1, sweep.side_by_side(stacks), processes)
        else:
            runner.memory, versions = sweep.memory, find_versions()
        work = partial(train_stack_for_store, versions=versions)
        memory = [stack_memory(job.runs) + WORKER for job in jobs]
        trained = run_stacks(runner, work, jobs, progress or silent, self._show, memory)
        with closing(trained):
            for ended in trained:
                if ended.lost is None:
                    yield TrainedStack(stacks[ended.number], ended.result)
                else:
                    lost.append((stacks[ended.number], ended.lost))
        if lost:
            raise InputError(_describe_lost(lost, runner))

    def overhead(self, datasets: Sequence[SweepData]) -> float:
        """Return the bytes needed on this machine outside of this process, besides the stacks.

        Parameters
        ----------
        datasets : sequence of SweepData
            Data sets of the sweep.

        Returns
        -------
        size : float
            Bytes.
        """
        rows = sum(data.bank.features.nbytes for data in datasets)
        return 0.0 if self.runner is None else self.runner.overhead(rows)

    def close(self) -> None:
        """End what was started."""
        if self.runner is not None:
            self.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _show(self, done: int, of: int, at_work: int) -> None:
        if self.status is not None:
            self.status(f"{done} of {of} stacks, {at_work} at work")


def train_stack_for_store(
    job: StackJob, report: Report, versions: Mapping[str, str] | None
) -> list[RunResult]:
    """Train a stack; refuse where results could differ from those of the sender's versions."""
    if versions is not None:
        check_versions(versions)
    records = train_stack_job(job, report)
    return [RunResult(each.steps, each.measures, each.diverged_at) for each in records]


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
        f"{runner.name} gave up {first[0].place}{others} after {runner.retries + 1} tries "
        f"({reason}); all other runs are in the store, and the "
        "same command tries these again. If memory was short, give more --memory or start fewer "
        "workers"
    )
