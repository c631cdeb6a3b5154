"""Back end on Ray: a stack is a task, which is tried again if its worker dies.

    rows ─► object store, once ─┐
    stack ──────────────────────┴► task: 1 CPU, the stack's memory ─► checkpoints ─► this process

Tasks get the runs' specifications and refer to rows in the object store. Only this process writes
to the sweep's store.
"""

import warnings
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import NamedTuple

import torch

from wri.errors import InputError
from wri.progress import Progress
from wri.sweep.backend import Backend, TrainedStack
from wri.sweep.data import SweepData
from wri.sweep.memory import WORKER, stack_memory
from wri.sweep.plan import RunSpec
from wri.sweep.ray_session import DRIVER, RETRIES, RaySession, check_ray, starts_here
from wri.sweep.ray_worker import StackJob, StackResult, find_versions, train_stack_job
from wri.sweep.sweep import Sweep


class SubmittedStack(NamedTuple):
    """Stack that was submitted to Ray."""

    runs: Sequence[RunSpec]
    steps: int


class RayBackend(Backend):
    """Back end that trains stacks in Ray's workers, one CPU each; Ray starts with the first stack.

    Parameters
    ----------
    workers
        Stacks that train at a time where Ray is started here; as many as PyTorch has threads when
        not given.
    retries
        How often a stack is tried again when its worker dies.
    """

    def __init__(self, workers: int | None = None, retries: int = RETRIES) -> None:
        super().__init__()
        check_ray()
        self._workers = workers or torch.get_num_threads()
        self._retries = retries
        self._session: RaySession | None = None
        self._warned: set[tuple[type[Warning], str]] = set()

    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        if not stacks:
            return
        session = self.start(sweep)
        try:
            waiting = self._submit(session, sweep, stacks)
            watch = _Watch(waiting, progress, self.show_status)
            lost: list[tuple[Sequence[RunSpec], str]] = []
            while waiting:
                for ended in session.poll():
                    stack = waiting.pop(ended.number)
                    watch.finish(ended.number)
                    if ended.lost is not None:
                        lost.append((stack.runs, ended.lost))
                    else:
                        self._warn(ended.result)
                        yield TrainedStack(stack.runs, ended.result.runs)
                watch.look(session.steps)
        finally:
            session.forget()
        if lost:
            raise InputError(_describe_lost(lost, self._retries))

    def overhead(self, datasets: Sequence[SweepData]) -> float:
        # rows lie in the object store, and pass through the process that is connected to Ray
        here = self._workers * WORKER + _count_bytes(datasets) if starts_here() else 0.0
        return here + DRIVER + _count_bytes(datasets)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    def start(self, sweep: Sweep) -> RaySession:
        if self._session is None or self._session.closed:
            self._session = RaySession(self._workers, sweep.memory, _count_bytes(sweep.datasets))
        return self._session

    def _submit(
        self, session: RaySession, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]]
    ) -> dict[int, SubmittedStack]:
        """Submit all stacks; rows and splits are put into the object store once."""
        rows = {data.name: session.put(data) for data in sweep.datasets}
        splits: dict[Hashable, int] = {}
        waiting = {}
        for stack in stacks:
            for planned in stack:
                if sweep.splits_key(planned) not in splits:
                    put = session.put(sweep.splits_to_train(planned))
                    splits[sweep.splits_key(planned)] = put
            keys = list(dict.fromkeys(map(sweep.splits_key, stack)))
            job = StackJob(
                versions=find_versions(),
                runs=[planned.as_json() for planned in stack],
                splits=[keys.index(sweep.splits_key(planned)) for planned in stack],
                checkpoint_every=sweep.spec.checkpoint_every,
                measures=sweep.spec.measures or "all",
            )
            runs = [sweep.run(planned) for planned in stack]
            needed = stack_memory(runs) + WORKER
            number = session.submit(
                train_stack_job,
                job,
                [rows[stack[0].dataset], *map(splits.__getitem__, keys)],
                memory=int(min(needed, session.node_memory)),  # a larger one would never start
                max_retries=self._retries,
            )
            waiting[number] = SubmittedStack(stack, runs[0].spec.last_step)
        return waiting

    def _warn(self, result: StackResult) -> None:
        """Give a worker's warnings, each once."""
        for category, text in result.warnings:
            if (category, text) not in self._warned:
                self._warned.add((category, text))
                warnings.warn(text, category, stacklevel=2)


def _count_bytes(datasets: Sequence[SweepData]) -> int:
    return sum(data.bank.features.nbytes for data in datasets)


class _Watch:
    """Progress of the stacks, from finished ones and from the board."""

    def __init__(
        self,
        stacks: Mapping[int, SubmittedStack],
        progress: Progress | None,
        status: Callable[[int, int, int], None],
    ) -> None:
        self._progress, self._status = progress, status
        self._left = {number: stack.steps for number, stack in stacks.items()}
        self._steps, self._stacks = sum(self._left.values()), len(stacks)
        self._done = 0

    def finish(self, number: int) -> None:
        self._done += self._left.pop(number)

    def look(self, reported: Mapping[int, int]) -> None:
        """Report the progress; jobs of other calls are among those that reported."""
        at_work = {number: steps for number, steps in reported.items() if number in self._left}
        self._status(self._stacks - len(self._left), self._stacks, len(at_work))
        if self._progress is not None:
            self._progress(self._done + sum(at_work.values()), self._steps)


def _describe_lost(lost: Sequence[tuple[Sequence[RunSpec], str]], retries: int) -> str:
    (first, reason), runs = lost[0], sum(len(stack) for stack, _ in lost)
    others = f" and {runs - 1} more runs" if runs > 1 else ""
    return (
        f"Ray gave up {first[0].place}{others} after {retries + 1} tries "
        f"({reason}); all other runs are in the store, and the "
        "same command tries these again. If memory was short, give more --memory or start fewer "
        "workers"
    )
