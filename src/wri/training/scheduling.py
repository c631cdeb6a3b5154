"""Stacks of runs: which runs share one, and where they are trained or solved.

Runs of one bucket differ in batch size, and a stack pads every batch to its largest. Sorted by
size, the bucket is cut where the cost is smallest:

    cost of a stack = overhead + runs · rows of its largest batch + rows of side steps

The overhead of a step does not grow with the rows, so small batches form large stacks and large
batches small stacks. More rows than fit the cache do not pay, unless the overhead is large. Runs
whose side steps (WRI's density steps) have different batch sizes are in different stacks, because
these are padded too. No stack has more than a given share of all work, so that processors finish at
the same time. The numbers were fitted to measured times.

A stack is a job, here or on Ray. `finished_stacks` trains stacks on this machine and yields each
when it is done; `train` collects them. Stacks train in threads of this process or, if it pays, in
processes: density steps are many small operations that wait for Python's lock, and two such stacks
in two threads take 15 to 25 % longer than in two processes. Sweeps may train on Ray instead
(`wri.sweep.sweep`).
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import sqrt
from threading import Lock
from typing import Any, Literal

import numpy as np
import torch

from wri.errors import InputError
from wri.jobs import Ended, Jobs, LocalRunner, Report, Runner
from wri.measures import applicable_measures
from wri.progress import Progress, silent
from wri.threads import give_back_freed_memory, keep_freed_memory, torch_threads
from wri.training.loop import train_in_steps
from wri.training.runs import Record, Run
from wri.training.solver import solve_stack

OVERHEAD = 2_500  # rows whose arithmetic takes as long as a step's fixed cost
SIDE_OVERHEAD = 0.2  # fixed cost of a side step, relative to that of a step
SIDE_ROW = 0.4  # cost of a row in a side step, relative to a row in a step
MOST_ROWS = 32_768  # rows of a batch over all runs of a stack
SHARES = 5  # no stack has more than one fifth of all work,
WORTH = 4  # unless its work is less than 4 times its overhead
ROW_SECONDS = 1e-6  # of a core for a stack's step, per row of `stack_cost`
LEAST_SECONDS = 30  # of work per worker, below which its start costs more than it gains

Measures = Sequence[str] | Literal["all"] | None
"""Names in `wri.measures`, "all" that the targets allow, or None for the first of these."""


def plan_stacks(runs: Sequence[Run], most_rows: int = MOST_ROWS) -> list[list[int]]:
    """Divide runs into stacks of small total cost.

    Parameters
    ----------
    runs : sequence of Run
        Runs to train.
    most_rows : int, default=32768
        Largest number of rows of a batch over all runs of a stack.

    Returns
    -------
    stacks : list of list of int
        Numbers of the runs in each stack; each run is in one.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, plan_stacks
    >>> bank = Bank(np.zeros((8, 1)), np.array([0, 1] * 4))
    >>> sites = [np.arange(4), np.arange(4, 8)]
    >>> runs = [Run(ModelSpec.of(name), bank, sites) for name in ("erm", "vrex", "erm")]
    >>> sorted(plan_stacks(runs))
    [[0, 2], [1]]
    """
    buckets: dict[tuple[Hashable, Hashable, int], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        side_rows = run.objective.side_steps(run.hyper).rows
        # solved runs with the same rows share a path of λ
        path = run.split if run.spec.is_solved else None
        buckets[run.bucket, path, (side_rows - 1).bit_length()].append(number)
    share = sum(_rows(run) + _side_rows(run) for run in runs) / SHARES
    stacks = []
    for (_, path, _), numbers in buckets.items():
        if path is not None:
            stacks.append(numbers)
            continue
        numbers.sort(key=lambda n: (-runs[n].batch_rows, n))
        alike = [runs[n] for n in numbers]
        overhead = overhead_of(alike)
        cuts = cheapest_cuts(
            [_rows(run) for run in alike],
            overhead * OVERHEAD,
            sqrt(overhead) * most_rows,
            [_side_rows(run) for run in alike],
            max(share, WORTH * overhead * OVERHEAD),
        )
        stacks += [sorted(numbers[start:stop]) for start, stop in cuts]
    return sorted(stacks, key=lambda stack: -stack_cost([runs[n] for n in stack]))


def stack_cost(runs: Sequence[Run]) -> float:
    """Return the work of a stack's step; the largest stack starts first."""
    padded = len(runs) * max(map(_rows, runs))
    return overhead_of(runs) * OVERHEAD + padded + sum(map(_side_rows, runs))


def overhead_of(runs: Sequence[Run]) -> float:
    """Return the fixed cost of a stack's step, in steps of ERM."""
    sides = [run.objective.side_steps(run.hyper) for run in runs]
    due = np.zeros(max(side.every for side in sides))  # steps of the stack at each phase
    for side in sides:
        np.maximum.at(due, np.arange(0, len(due), side.every), side.steps)
    return max(run.objective.overhead for run in runs) + SIDE_OVERHEAD * float(due.mean())


def _rows(run: Run) -> int:
    """Return the rows of a step."""
    return run.batch_rows * len(run.train)


def _side_rows(run: Run) -> float:
    """Return the rows of side steps, in rows of a step."""
    side = run.objective.side_steps(run.hyper)
    return SIDE_ROW * side.rows * len(run.train) * side.steps / side.every


def cheapest_cuts(
    rows: Sequence[int],
    overhead: float,
    most_rows: float,
    side: Sequence[float] | None = None,
    most_work: float = float("inf"),
) -> list[tuple[int, int]]:
    """Cut a descending list into groups `[start, stop)` of smallest total cost.

    A group of several has at most `most_rows` rows, padded, and with its `side` rows at most
    `most_work`.
    """
    side = [0.0] * len(rows) if side is None else side
    cost = [0.0]  # of the first k runs
    start_of: list[int] = [0]  # where the last group of the first k runs starts
    for stop in range(1, len(rows) + 1):
        best, best_start = float("inf"), stop - 1
        beside = 0.0
        for start in range(stop - 1, -1, -1):
            padded = (stop - start) * rows[start]
            beside += side[start]
            too_much = padded > most_rows or padded + beside > most_work
            if too_much and start < stop - 1:
                break
            if cost[start] + overhead + padded < best:
                best, best_start = cost[start] + overhead + padded, start
        cost.append(best)
        start_of.append(best_start)
    groups, stop = [], len(rows)
    while stop:
        groups.append((start_of[stop], stop))
        stop = start_of[stop]
    return groups[::-1]


def choose_device(device: str = "auto") -> str:
    """Return the PyTorch device to use.

    Parameters
    ----------
    device : str, default="auto"
        Device; "auto" is CUDA if it is available, otherwise the CPU.

    Returns
    -------
    device : str
        The device.

    Raises
    ------
    InputError
        If the device cannot be used.

    Examples
    --------
    >>> from wri.training import choose_device
    >>> choose_device("cpu")
    'cpu'
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {device!r} cannot be used here: {error}") from error
    return device


def train_stack(
    runs: Sequence[Run],
    *,
    checkpoint_every: int = 10,
    measures: Measures = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Record]:
    """Train runs of one bucket together, or solve them, in the calling thread.

    Parameters
    ----------
    runs : sequence of Run
        Runs with the same `bucket`.
    checkpoint_every : int, default=10
        Steps between checkpoints; measured after steps 0, n, 2n, … and the last.
    measures : sequence of str, "all" or None, default=None
        Names in `wri.measures`, or "all" that the targets allow. None: the first of these.
    device : str, default="auto"
        PyTorch device.
    progress : callable or None, default=None
        Called with (steps done, steps in all).

    Returns
    -------
    records : list of Record
        One per run.

    Raises
    ------
    InputError
        If the runs cannot share a stack.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, train_stack
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> runs = [Run(ModelSpec.of("erm", steps=5), bank, [np.arange(8)], seed=s) for s in (0, 1)]
    >>> [record.steps.tolist() for record in train_stack(runs)]
    [[0, 4], [0, 4]]
    """
    if checkpoint_every < 1:
        raise InputError(f"checkpoint_every must be at least 1, not {checkpoint_every}")
    if not runs:
        raise InputError("there are no runs to train")
    if len({run.bucket for run in runs}) != 1:
        raise InputError("these runs cannot share a stack; let plan_stacks() sort them")
    if measures is None or measures == "all":
        possible = applicable_measures(runs[0].bank.n_classes)
        measures = possible if measures == "all" else possible[:1]
    device = choose_device(device)
    if runs[0].spec.is_solved:
        return solve_stack(runs, measures, device, progress)
    return train_in_steps(runs, measures, device, checkpoint_every, progress)


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
    for numbers, found in finished:
        records.update(zip(numbers, found, strict=True))
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
) -> Iterator[tuple[Sequence[int], list[Record]]]:
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
    numbers : sequence of int
        Numbers of the runs of a stack; stacks come in the order of completion.
    records : list of Record
        Their records.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, finished_stacks
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> runs = [Run(ModelSpec.of("erm", steps=2), bank, [np.arange(8)], seed=s) for s in (0, 1)]
    >>> [numbers for numbers, _ in finished_stacks(runs, [[0], [1]], side_by_side=False)]
    [[0], [1]]
    """
    jobs = [
        StackJob(
            runs=[runs[n] for n in stack],
            checkpoint_every=checkpoint_every,
            measures=measures,
            device=device,
        )
        for stack in stacks
    ]
    runner = LocalRunner()
    if side_by_side and stacks:
        keep_freed_memory()
        runner, jobs = share_threads(jobs, threads, most, processes)
    with closing(run_stacks(runner, train_stack_job, jobs, progress or silent)) as finished:
        for ended in finished:
            if ended.lost is not None:
                lost = jobs[ended.number].runs
                raise InputError(
                    f"a worker process died {runner.retries + 1} times while it trained "
                    f"{len(lost)} runs of {lost[0].objective.name}; memory may be short: train "
                    "fewer at a time"
                )
            yield stacks[ended.number], ended.result


@dataclass(frozen=True, eq=False, kw_only=True)
class StackJob:
    """Stack to train, and how."""

    runs: Sequence[Run]
    checkpoint_every: int
    measures: Measures
    device: str = "auto"
    threads: int | None = None  # None: nothing is changed in the process

    @property
    def last_step(self) -> int:
        return self.runs[0].spec.last_step


def train_stack_job(job: StackJob, report: Report) -> list[Record]:
    """Train a stack in the calling thread."""
    if job.threads is not None:
        keep_freed_memory()
        torch.set_num_threads(job.threads)  # PyTorch keeps this number per calling thread
    records = train_stack(
        job.runs,
        checkpoint_every=job.checkpoint_every,
        measures=job.measures,
        device=job.device,
        progress=lambda step, of: report(step),
    )
    if job.threads is not None:
        give_back_freed_memory()  # idle workers hold no more than PyTorch
    return records


def run_stacks(
    runner: Runner,
    work: Callable[[StackJob, Report], Any],
    jobs: Sequence[StackJob],
    progress: Progress,
    status: Callable[[int, int, int], None] = lambda done, of, at_work: None,
    memory: Sequence[float] | None = None,
) -> Generator[Ended, None, None]:
    """Run work on stacks; banks and row numbers are sent to workers once.

    Parameters
    ----------
    progress
        Called with (steps done, steps in all).
    status
        Called with finished stacks, all stacks, and stacks at work.
    """
    steps, shared = StackProgress(jobs, progress, status), {}
    for run in (run for job in jobs for run in job.runs):
        for each in (run.bank, *run.train, *run.evaluate.values()):
            shared[id(each)] = each
    sent = Jobs(
        work=work, jobs=jobs, shared=[*shared.values()], on_steps=steps.report, memory=memory
    )
    with torch_threads(jobs[0].threads if jobs else None), closing(runner.run(sent)) as finished:
        for ended in finished:
            steps.finish(ended.number)
            yield ended


class StackProgress:
    """Steps of all stacks together; several threads may report them."""

    def __init__(
        self,
        jobs: Sequence[StackJob],
        progress: Progress,
        status: Callable[[int, int, int], None],
    ) -> None:
        self._progress, self._status, self._lock = progress, status, Lock()
        self._last = [job.last_step for job in jobs]
        self._steps: dict[int, int] = {}  # of stacks that have started
        self._done = self._ended = 0

    def report(self, number: int, steps: int, ended: bool = False) -> None:
        with self._lock:
            if ended or number not in self._steps:
                self._ended += ended
                at_work = len({*self._steps, number}) - self._ended
                self._status(self._ended, len(self._last), at_work)
            more = steps - self._steps.get(number, 0)
            self._steps[number] = self._steps.get(number, 0) + max(0, more)
            if more > 0:  # a stack that is tried again starts at 0
                self._done += more
                self._progress(self._done, sum(self._last))

    def finish(self, number: int) -> None:
        self.report(number, self._last[number], ended=True)


def share_threads(
    jobs: Sequence[StackJob], threads: int | None, most: int | None, processes: bool | None
) -> tuple[LocalRunner, list[StackJob]]:
    """Return how many stacks train at the same time and where, and stacks with their threads.

    The operations of a step are small: two stacks on one thread each take less time than one after
    the other on two.
    """
    on_cpu, all_threads = choose_device(jobs[0].device) == "cpu", torch.get_num_threads()
    at_once = (most or all_threads) if on_cpu else 1
    workers = min(len(jobs), at_once, max(1, all_threads // (threads or 1)))
    if processes is None:
        processes = pays_for_processes(jobs, workers)
    each = threads or max(1, all_threads // workers)
    in_process = takes_side_steps if processes and on_cpu else lambda job: False
    return LocalRunner(workers, in_process), [replace(job, threads=each) for job in jobs]


def takes_side_steps(job: StackJob) -> bool:
    """Return whether a stack makes many small steps beside the predictor's."""
    return any(run.objective.side_steps(run.hyper).steps for run in job.runs)


def pays_for_processes(jobs: Sequence[StackJob], workers: int) -> bool:
    """Return whether stacks with side steps have enough work for this number of workers."""
    seconds = sum(
        ROW_SECONDS * stack_cost(job.runs) * job.last_step for job in jobs if takes_side_steps(job)
    )
    return workers > 1 and seconds >= workers * LEAST_SECONDS
