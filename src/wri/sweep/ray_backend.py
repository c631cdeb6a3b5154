"""Back end on Ray: a stack is a task, which is tried again if its worker dies.

    rows ─► object store, once ─┐
    stack ──────────────────────┴► task: 1 CPU, the stack's memory ─► checkpoints ─► this process

Tasks get the runs' specifications and refer to rows in the object store. Only this process writes
to the sweep's store. An actor counts the workers' steps; without it only the progress is lost.
"""

import warnings
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from itertools import count
from time import sleep
from typing import Any, NamedTuple

import torch

from wri.errors import InputError
from wri.progress import Progress
from wri.sweep.backend import Backend, TrainedStack
from wri.sweep.data import SweepData
from wri.sweep.memory import WORKER, stack_memory
from wri.sweep.plan import RunSpec
from wri.sweep.ray_session import POLL, RETRIES, RaySession, check_ray, fetch_result, starts_here
from wri.sweep.ray_worker import StackJob, StackResult, find_versions
from wri.sweep.sweep import Sweep


class SubmittedStack(NamedTuple):
    """Stack that was submitted to Ray."""

    number: int  # in this session
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
        self._board: Any = None
        self._numbers = count()
        self._warned: set[tuple[type[Warning], str]] = set()

    def train(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], progress: Progress | None = None
    ) -> Generator[TrainedStack, None, None]:
        if not stacks:
            return
        ray = self.start(sweep).ray
        waiting = self._submit(sweep, stacks)
        watch = _Watch(ray, self._board, list(waiting.values()), progress, self.show_status)
        lost: list[tuple[Sequence[RunSpec], Exception]] = []
        try:
            while waiting:
                ready, _ = ray.wait([*waiting], timeout=0)
                if not ready:
                    sleep(POLL)  # not in Ray, which would turn SIGTERM into Ctrl-C
                for ref in ready:
                    stack = waiting.pop(ref)
                    result = self._collect(ray, ref)
                    watch.finish(stack)
                    if isinstance(result, Exception):
                        lost.append((stack.runs, result))
                    else:
                        yield TrainedStack(stack.runs, result.runs)
                watch.look()
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)
        if lost:
            raise InputError(_describe_lost(lost, self._retries))

    def overhead(self, datasets: Sequence[SweepData]) -> float:
        return self._workers * WORKER + _count_bytes(datasets) if starts_here() else 0.0

    def close(self) -> None:
        if self._session is not None:
            if self._board is not None:
                self._session.ray.kill(self._board)
            self._session.close()
        self._session = self._board = None

    def start(self, sweep: Sweep) -> RaySession:
        if self._session is None:
            self._session = RaySession(self._workers, sweep.memory, _count_bytes(sweep.datasets))
            self._board = _start_board(self._session.ray)
        return self._session

    def _submit(
        self, sweep: Sweep, stacks: Sequence[Sequence[RunSpec]]
    ) -> dict[Any, SubmittedStack]:
        """Submit all stacks; rows and splits are put into the object store once."""
        session = self.start(sweep)
        most, task = session.node_memory, _make_task(session.ray)
        rows = {data.name: session.ray.put(data) for data in sweep.datasets}
        splits: dict[Hashable, Any] = {}
        waiting = {}
        for stack in stacks:
            for planned in stack:
                if sweep.splits_key(planned) not in splits:
                    put = session.ray.put(sweep.splits_to_train(planned))
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
            memory = min(stack_memory(runs) + WORKER, most)  # a larger request would never start
            options = {"num_cpus": 1, "memory": int(memory), "max_retries": self._retries}
            submitted = SubmittedStack(next(self._numbers), stack, runs[0].spec.last_step)
            ref = task.options(**options).remote(
                job, self._board, submitted.number, rows[stack[0].dataset], *map(splits.get, keys)
            )
            waiting[ref] = submitted
        return waiting

    def _collect(self, ray: Any, ref: Any) -> StackResult | Exception:
        """Return the result of a task, or the reason why Ray gave it up."""
        try:
            result: StackResult = fetch_result(ray, ref)
        except ray.exceptions.RayError as error:
            return error
        for category, text in result.warnings:
            if (category, text) not in self._warned:
                self._warned.add((category, text))
                warnings.warn(text, category, stacklevel=2)
        return result


def _count_bytes(datasets: Sequence[SweepData]) -> int:
    return sum(data.bank.features.nbytes for data in datasets)


def _make_task(ray: Any) -> Any:
    """Make the task as a closure: Ray sends its code, and a worker without wri can report it."""

    def train_stack(job: Any, board: Any, number: int, data: Any, *splits: Any) -> Any:
        from wri.sweep.ray_worker import train_job

        return train_job(job, data, splits, lambda step: board.report.remote(number, step))

    return ray.remote(train_stack)


def _start_board(ray: Any) -> Any:
    """Start the actor that counts steps; a closure too, so it needs no PyTorch."""

    class Board:
        def __init__(self) -> None:
            self._steps: dict[int, int] = {}

        def report(self, number: int, steps: int) -> None:
            self._steps[number] = steps

        def read(self) -> dict[int, int]:
            return self._steps

    return ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()


class _Watch:
    """Progress of the stacks, from finished ones and from the board."""

    def __init__(
        self,
        ray: Any,
        board: Any,
        stacks: Sequence[SubmittedStack],
        progress: Progress | None,
        status: Callable[[int, int, int], None],
    ) -> None:
        self._ray, self._board = ray, board
        self._progress, self._status = progress, status
        self._steps, self._stacks = sum(stack.steps for stack in stacks), len(stacks)
        self._left = {stack.number: stack for stack in stacks}
        self._done = 0
        self._asked: Any = None
        self._seen: Mapping[int, int] = {}

    def finish(self, stack: SubmittedStack) -> None:
        del self._left[stack.number]
        self._done += stack.steps

    def look(self) -> None:
        """Report the progress, and ask the board for more without waiting."""
        if self._asked is None:
            self._asked = self._board.read.remote()
        elif self._ray.wait([self._asked], timeout=0)[0]:
            try:
                self._seen = self._ray.get(self._asked)
            except self._ray.exceptions.RayError:
                self._seen = {}  # the board is started again
            self._asked = None
        at_work = {number: steps for number, steps in self._seen.items() if number in self._left}
        self._status(self._stacks - len(self._left), self._stacks, len(at_work))
        if self._progress is not None:
            self._progress(self._done + sum(at_work.values()), self._steps)


def _describe_lost(lost: Sequence[tuple[Sequence[RunSpec], Exception]], retries: int) -> str:
    (first, reason), runs = lost[0], sum(len(stack) for stack, _ in lost)
    others = f" and {runs - 1} more runs" if runs > 1 else ""
    return (
        f"Ray gave up {first[0].place}{others} after {retries + 1} tries "
        f"({type(reason).__name__}); all other runs are in the store, and the "
        "same command tries these again. If memory was short, give more --memory or start fewer "
        "workers"
    )
