"""Sweeps in this process: plan, forecast, train what is missing, and keep it in a store."""

from collections.abc import Mapping, Sequence
from math import sqrt
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from wri.errors import InputError
from wri.sweep.data import Data
from wri.sweep.plan import Planned, Question
from wri.sweep.store import Store
from wri.training import Run, plan_stacks, train, train_stack
from wri.training.loop import Progress
from wri.training.stacks import MOST_ROWS, stack_cost

PROBE = 4  # steps that are timed for a forecast
MEMORY = 2e9  # bytes
COPIES = 12  # values of four bytes that a step keeps for each unit and row of a batch


class Forecast(NamedTuple):
    """What a sweep will take, before anything is written."""

    runs: int
    finished: int
    stacks: int
    seconds: float  # of the runs that are not finished
    memory: float  # bytes, at the peak

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.finished} of them finished; {self.stacks} stacks to train, "
            f"about {_duration(self.seconds)} and {self.memory / 1e9:.1f} GB"
        )


def forecast(
    question: Question, datasets: Sequence[Data], store: Store | None, memory: float = MEMORY
) -> Forecast:
    """Plan, and time a few steps of one stack of each algorithm. Writes nothing."""
    planned = question.plan(datasets)
    done = set() if store is None else store.finished()
    missing = [run for run in planned if run.id not in done]
    makers = _Makers(datasets)
    seconds, peak, count = 0.0, 0.0, 0
    threads = torch.get_num_threads()
    for data in datasets:
        for algorithm in dict.fromkeys(question.algorithms):
            mine = [r for r in missing if (r.dataset, r.algorithm) == (data.name, algorithm)]
            if not mine:
                continue
            runs = [makers.run(planned) for planned in mine]
            stacks = plan_stacks(runs, most_rows(runs, memory))
            count += len(stacks)
            costs = [stack_cost(runs, stack) for stack in stacks]
            typical = sorted(range(len(stacks)), key=lambda n: costs[n])[len(stacks) // 2]
            probe = [runs[n] for n in stacks[typical]]
            start = perf_counter()
            train_stack(probe, PROBE, checkpoint_every=question.checkpoint_every)
            rate = (perf_counter() - start) / (PROBE * costs[typical])
            seconds += rate * sum(costs) * question.steps / min(threads, len(stacks))
            peak = max(peak, *(stack_memory([runs[n] for n in stack]) for stack in stacks))
    return Forecast(len(planned), len(planned) - len(missing), count, seconds, threads * peak)


def stack_memory(runs: Sequence[Run]) -> float:
    """Bytes that a stack's step takes at most, roughly."""
    rows = max(run.batch_rows for run in runs) * len(runs[0].train) * len(runs)
    return rows * _bytes_a_row(runs[0])


def most_rows(runs: Sequence[Run], memory: float) -> int:
    """Rows of a stack's batch, so that as many stacks as there are threads fit into memory."""
    each = memory / torch.get_num_threads()
    extra = max(sqrt(run.objective.overhead) for run in runs)  # `plan_stacks` allows so much more
    return max(1, min(MOST_ROWS, int(each / (extra * max(map(_bytes_a_row, runs))))))


def _bytes_a_row(run: Run) -> float:
    return 4.0 * COPIES * sum(run.network.widths)


def sweep(
    question: Question,
    datasets: Sequence[Data],
    store: Store,
    progress: Progress | None = None,
    memory: float = MEMORY,
) -> int:
    """Train every run of the question that the store does not hold yet.

    Parameters
    ----------
    question
        What is asked for.
    datasets
        On which rows.
    store
        Open for writing. Stacks are fixed in it before they are trained, so that an interrupted
        sweep goes on as if it had not been.
    progress
        Called with (steps done, steps in all) of the stacks that are not finished.
    memory
        Bytes that all stacks at work may take, roughly; new stacks are cut to fit.

    Returns
    -------
    int
        Runs that were trained now.
    """
    planned = question.plan(datasets)
    makers = _Makers(datasets)
    known = store.known()
    stacks: list[list[Planned]] = []
    for data in datasets:  # stacks of their own, so that any data set can be swept without others
        new = [run for run in planned if run.dataset == data.name and run.id not in known]
        runs = [makers.run(run) for run in new]
        if runs:
            together = plan_stacks(runs, most_rows(runs, memory))
            stacks += [[new[n] for n in stack] for stack in together]
    store.settle(question.setting)
    for data in datasets:
        store.describe(data.fingerprint, data.described)
    store.add(stacks)
    wanted = {run.id for run in planned}
    pending = store.pending(wanted)
    if not pending:
        return 0
    specs = [run for stack in pending for run in stack]
    numbers, first = [], 0
    for stack in pending:
        numbers.append(list(range(first, first + len(stack))))
        first += len(stack)
    train(
        [makers.run(run) for run in specs],
        question.steps,
        question.checkpoint_every,
        progress=progress,
        stacks=numbers,
        threads=1,
        finished=lambda stack, records: store.finish([specs[n] for n in stack], records),
    )
    return len(specs)


class _Makers:
    """Runs from plans, with every trial's splits drawn once."""

    def __init__(self, datasets: Sequence[Data]) -> None:
        self._data: Mapping[str, Data] = {data.name: data for data in datasets}
        if len(self._data) < len(datasets):
            raise InputError("two data sets have the same name; rename one of the files")
        self._splits: dict[tuple[str, int], dict[str, np.ndarray]] = {}

    def run(self, planned: Planned) -> Run:
        data, key = self._data[planned.dataset], (planned.dataset, planned.trial_seed)
        if key not in self._splits:
            self._splits[key] = data.splits(planned.trial_seed)
        return planned.run(data, self._splits[key])


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
