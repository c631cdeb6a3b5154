"""Which stack trains when, and on how many threads.

`finished_stacks` trains stacks in this process and yields each when it is done; a back end on other
machines takes its place. `train` collects what it yields.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock
from typing import NamedTuple

import torch

from wri.progress import Progress
from wri.training.loop import Measures, Record, choose_device, train_stack
from wri.training.memory import keep_freed_memory
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
        meanwhile and given back, and on Linux the process keeps freed memory from then on. Without
        it stacks train one after the other in the calling thread, and nothing else is touched.

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
    """
    steps = sum(runs[stack[0]].spec.last_step for stack in stacks if len(stack))
    board = _Board(steps, progress)

    def work(stack: Sequence[int]) -> FinishedStack:
        records = train_stack(
            [runs[n] for n in stack],
            checkpoint_every=checkpoint_every,
            measures=measures,
            device=device,
            progress=lambda step, of: board.advance(),
        )
        return FinishedStack(stack, records)

    if not (side_by_side and stacks):
        yield from map(work, stacks)
        return
    keep_freed_memory()
    most = 1 if choose_device(device) != "cpu" else most
    yield from _side_by_side(work, stacks, board, most, threads)


class _Board:
    """Where stacks that train side by side report a step, and learn what has changed."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self.stopped = False
        self.share: int | None = None  # threads for each stack; None leaves them as they are
        self._steps, self._done = steps, 0
        self._progress, self._lock = progress, Lock()

    def advance(self) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        # PyTorch counts for each thread that calls
        if self.share is not None and torch.get_num_threads() != self.share:
            torch.set_num_threads(self.share)
        with self._lock:
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, self._steps)


def _side_by_side(
    work: Callable[[Sequence[int]], FinishedStack],
    stacks: Sequence[Sequence[int]],
    board: _Board,
    most: int | None,
    each: int | None,
) -> Iterator[FinishedStack]:
    """Several stacks at a time, each on its share of the processor's threads.

    The operations of a step are small: two stacks on one thread each take less time than one
    after the other on two. The last ones to train share all threads.
    """
    threads = torch.get_num_threads()
    workers = min(len(stacks), most or threads, max(1, threads // (each or 1)))
    if workers < 2 and each is None:
        yield from map(work, stacks)
        return

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
