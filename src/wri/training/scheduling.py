"""Scheduling of stacks: order, threads and processes.

`finished_stacks` trains stacks on this machine and yields each when it is done; `train` collects
them. Stacks train in threads of this process or, if it pays, in processes
(`wri.training.processes`). Sweeps may train on other machines instead (`wri.sweep.backend`).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from threading import Lock
from typing import NamedTuple

import torch

from wri.progress import Progress
from wri.training.loop import Measures, choose_device, train_stack
from wri.training.memory import keep_freed_memory
from wri.training.processes import StackWorkers, pays_for_processes, takes_side_steps
from wri.training.records import Record
from wri.training.runs import Run
from wri.training.stacks import plan_stacks


class FinishedStack(NamedTuple):
    """Trained stack: numbers of its runs, and their records in the same order.

    Attributes
    ----------
    numbers : sequence of int
        Numbers of the runs.
    records : list of Record
        Their records.

    Examples
    --------
    >>> from wri.training import FinishedStack
    >>> FinishedStack([3, 5], []).numbers
    [3, 5]
    """

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
    runs : sequence of Run
        Runs to train.
    checkpoint_every : int, default=10
        Steps between checkpoints; measured after steps 0, n, 2n, … and the last, as in DomainBed.
    measures : sequence of str, "all" or None, default=None
        Names in `wri.measures`, or "all" that the targets allow. None: the first of these.
    device : str, default="auto"
        PyTorch device, for instance "auto", "cpu" or "cuda".
    progress : callable or None, default=None
        Called with (steps done, steps in all) over all stacks, from the threads that train.
    side_by_side : bool, default=True
        Whether to train several stacks at the same time on the CPU. The number of PyTorch's threads
        is changed meanwhile and restored, and on Linux the process then keeps freed memory. Density
        steps of half a minute or more are trained in worker processes, which end with the call. If
        False, stacks train one after the other in the calling thread, and nothing else is changed.
    threads : int or None, default=None
        Threads per stack. None: divided among the stacks.

    Returns
    -------
    records : list of Record
        One per run, in the order of `runs`.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, train
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> sites = [np.arange(4), np.arange(4, 8)]
    >>> runs = [Run(ModelSpec.of(name, steps=5), bank, sites) for name in ("erm", "vrex")]
    >>> records = train(runs, side_by_side=False)
    >>> [record.steps.tolist() for record in records]
    [[0, 4], [0, 4]]
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
    runs : sequence of Run
        Runs to train.
    stacks : sequence of sequence of int
        Numbers of the runs that share each stack.
    checkpoint_every : int, default=10
        Steps between checkpoints.
    measures : sequence of str, "all" or None, default=None
        Names in `wri.measures`, or "all" that the targets allow. None: the first of these.
    device : str, default="auto"
        PyTorch device.
    progress : callable or None, default=None
        Called with (steps done, steps in all) over all stacks.
    side_by_side : bool, default=True
        Whether to train several stacks at the same time on the CPU; see `train`.
    threads : int or None, default=None
        Threads per stack on the CPU, so that sums have the same order whatever else trains. None:
        divided among the stacks.
    most : int or None, default=None
        Largest number of stacks at the same time on the CPU. None: the number of threads.
    processes : bool or None, default=None
        Whether stacks with density steps train in their own processes. None: if it pays. Results
        are the same.

    Yields
    ------
    stack : FinishedStack
        A trained stack, in the order of completion.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, finished_stacks
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> runs = [Run(ModelSpec.of("erm", steps=2), bank, [np.arange(8)], seed=s) for s in (0, 1)]
    >>> [stack.numbers for stack in finished_stacks(runs, [[0], [1]], side_by_side=False)]
    [[0], [1]]
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
    """Settings of the training of every stack."""

    checkpoint_every: int
    measures: Measures
    device: str

    def train(
        self, runs: Sequence[Run], board: "_Board", workers: StackWorkers | None
    ) -> list[Record]:
        """Train a stack in the calling thread, or in a worker if it has density steps."""
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
    """Return the number of stacks at the same time, each with its share of threads."""
    threads = torch.get_num_threads()
    return min(stacks, most or threads, max(1, threads // (each or 1)))


class _Board:
    """Board on which stacks that train at the same time report steps and find changes."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self.stopped = False
        self.share: int | None = None  # threads for each stack; None leaves them as they are
        self._steps, self._done = steps, 0
        self._progress, self._lock = progress, Lock()

    def advance(self) -> None:
        """Report a step of a stack that trains in the calling thread."""
        # PyTorch sets this number per calling thread
        if self.share is not None and torch.get_num_threads() != self.share:
            torch.set_num_threads(self.share)
        self._report(1)

    def follow(self) -> Callable[[int], int]:
        """Return a function for a stack elsewhere: from its steps to its number of threads."""
        seen = 0

        def advance(steps: int) -> int:
            nonlocal seen
            self._report(max(0, steps - seen))  # a stack that is tried again starts at 0
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
    """Train several stacks at the same time, each with its share of the threads.

    The operations of a step are small: two stacks on one thread each take less time than one after
    the other on two. The last stacks share all threads.
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
