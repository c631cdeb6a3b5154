"""Which stack trains when, in which thread or process, and on how many threads.

`finished_stacks` trains stacks on this machine and yields each when it is done; `train` collects
what it yields. Stacks train in threads of this process, or, where it pays, in processes
(`wri.training.processes`). Sweeps may train on other machines instead (`wri.sweep.backend`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from threading import Lock
from typing import NamedTuple

import torch

from wri.progress import Progress
from wri.training.loop import Measures, Record, choose_device, train_stack
from wri.training.memory import keep_freed_memory
from wri.training.processes import StackWorkers, pays_for_processes, takes_side_steps
from wri.training.runs import Run
from wri.training.stacks import plan_stacks


class FinishedStack(NamedTuple):
    """A stack that is trained: numbers of its runs, and their records in the same order."""

    numbers: Sequence[int]
    records: list[Record]


def train(
    runs: Sequence[Run],
    *,
    checkpoint_every: int = 10,
    measures: Measures = None,
    device: str = "auto",
    progress: Progress | None = None,
    side_by_side: bool = True,
    threads: int | None = None,
) -> list[Record]:
    """Train runs of any kind: they are sorted into stacks and trained.

    Parameters
    ----------
    runs
        What to train.
    checkpoint_every
        Measures are taken after steps 0, n, 2n, … and the last, DomainBed's convention.
    measures
        Names in `wri.measures`, or "all" that the targets have; the first of these when not given.
    device
        "auto", "cpu", "cuda", …
    progress
        Called with (steps done, steps in all) over all stacks, from the threads that train.
    side_by_side
        Train several stacks at a time on the CPU. The number of PyTorch's threads is changed
        meanwhile and given back, and on Linux the process keeps freed memory from then on. Half a
        minute of density steps or more are trained in worker processes, which end with the call.
        Without it stacks train one after the other in the calling thread, and nothing else is
        touched.
    threads
        Of each stack that trains beside others; shared out among them when not given.

    Returns
    -------
    records
        One for each run, in the order of `runs`.
    """
    stacks = plan_stacks(runs)
    records: dict[int, Record] = {}
    finished = finished_stacks(
        runs,
        stacks,
        checkpoint_every=checkpoint_every,
        measures=measures,
        device=device,
        progress=progress,
        side_by_side=side_by_side,
        threads=threads,
    )
    for stack in finished:
        records.update(zip(stack.numbers, stack.records, strict=True))
    return [records[n] for n in range(len(runs))]


def finished_stacks(
    runs: Sequence[Run],
    stacks: Sequence[Sequence[int]],
    *,
    checkpoint_every: int = 10,
    measures: Measures = None,
    device: str = "auto",
    progress: Progress | None = None,
    side_by_side: bool = True,
    threads: int | None = None,
    most: int | None = None,
    processes: bool | None = None,
) -> Iterator[FinishedStack]:
    """Train stacks and yield each when it is done.

    An error or an interruption, here or where the stacks are consumed, ends the others at their
    next step.

    Parameters
    ----------
    runs
        What to train.
    stacks
        Numbers of the runs that share each stack.
    checkpoint_every, measures, device, progress, side_by_side
        As in `train`.
    threads
        Of each stack on the CPU, so that sums are taken in the same order whatever trains beside
        it; shared out among the stacks when not given.
    most
        Stacks that may train at a time on the CPU; as many as there are threads when not given.
    processes
        Whether stacks with density steps train in processes of their own; where it pays when not
        given. Results are the same.
    """
    steps = sum(runs[stack[0]].spec.last_step for stack in stacks if len(stack))
    board = _Board(steps, progress)

    settings = _Settings(checkpoint_every, measures, device)

    def work(stack: Sequence[int], workers: StackWorkers | None = None) -> FinishedStack:
        chosen = [runs[n] for n in stack]
        return FinishedStack(stack, settings.train(chosen, board, workers))

    if not (side_by_side and stacks):
        yield from map(work, stacks)
        return
    keep_freed_memory()
    on_cpu = choose_device(device) == "cpu"
    n = _count_workers(len(stacks), most if on_cpu else 1, threads)
    if processes is None:
        processes = pays_for_processes([[runs[k] for k in stack] for stack in stacks], n)
    if n < 2 and threads is None:
        yield from map(work, stacks)
        return
    with StackWorkers(n) if processes and on_cpu else nullcontext() as workers:
        yield from _side_by_side(lambda stack: work(stack, workers), stacks, board, n, threads)


class _Settings(NamedTuple):
    """How every stack is trained."""

    checkpoint_every: int
    measures: Measures
    device: str

    def train(
        self, runs: Sequence[Run], board: "_Board", workers: StackWorkers | None
    ) -> list[Record]:
        """A stack in the calling thread, or in a worker if that is what it is for."""
        every, measures = self.checkpoint_every, self.measures
        if workers is not None and takes_side_steps(runs):
            return workers.train(runs, every, measures, board.follow())
        return train_stack(
            runs,
            checkpoint_every=every,
            measures=measures,
            device=self.device,
            progress=lambda step, of: board.advance(),
        )


def _count_workers(stacks: int, most: int | None, each: int | None) -> int:
    """Stacks that train at a time, each on its share of the processor's threads."""
    threads = torch.get_num_threads()
    return min(stacks, most or threads, max(1, threads // (each or 1)))


class _Board:
    """Where stacks that train side by side report a step, and learn what has changed."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self.stopped = False
        self.share: int | None = None  # threads for each stack; None leaves them as they are
        self._steps, self._done = steps, 0
        self._progress, self._lock = progress, Lock()

    def advance(self) -> None:
        """A step of a stack that trains in the calling thread."""
        # PyTorch counts for each thread that calls
        if self.share is not None and torch.get_num_threads() != self.share:
            torch.set_num_threads(self.share)
        self._report(1)

    def follow(self) -> Callable[[int], int]:
        """For a stack elsewhere: from the steps it has made to the threads it may use."""
        seen = 0

        def advance(steps: int) -> int:
            nonlocal seen
            self._report(max(0, steps - seen))  # one that is tried again starts anew
            seen = max(seen, steps)
            return self.share or 1

        return advance

    def _report(self, steps: int) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        with self._lock:
            self._done += steps
            if steps and self._progress is not None:
                self._progress(self._done, self._steps)


def _side_by_side(
    work: Callable[[Sequence[int]], FinishedStack],
    stacks: Sequence[Sequence[int]],
    board: _Board,
    workers: int,
    each: int | None,
) -> Iterator[FinishedStack]:
    """Several stacks at a time, each on its share of the processor's threads.

    The operations of a step are small: two stacks on one thread each take less time than one
    after the other on two. The last ones to train share all threads.
    """
    threads = torch.get_num_threads()

    def share(left: int) -> int:
        return each or max(1, threads // max(1, min(workers, left)))

    board.share = share(len(stacks))
    torch.set_num_threads(board.share)
    try:
        with ThreadPoolExecutor(workers) as pool:
            jobs = [pool.submit(work, stack) for stack in stacks]
            try:
                for done, job in enumerate(as_completed(jobs), 1):
                    finished = job.result()
                    board.share = share(len(jobs) - done)
                    yield finished
            except BaseException:  # an error or Ctrl-C: the others end at their next step
                board.stopped = True
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    finally:
        torch.set_num_threads(threads)
