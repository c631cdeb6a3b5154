"""Sweeps in this process: prepare, forecast, train what is missing, and keep it in a store."""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from wri.errors import InputError
from wri.progress import Progress
from wri.sweep.data import Data
from wri.sweep.outcomes import Described
from wri.sweep.plan import Planned, Question
from wri.sweep.store import Store
from wri.training import Run, plan_stacks, train, train_stack
from wri.training.stacks import MOST_ROWS, stack_cost

PROBE = 5  # steps that are timed for a forecast
MEMORY = 2e9  # bytes
COPIES = 12  # numbers that a step keeps for each unit and row of a batch
ADAM = 4  # numbers for each parameter: itself, its gradient and two moments


class Sweep:
    """A question about data sets, planned and checked; nothing is written yet.

    Parameters
    ----------
    question
        What is asked for.
    datasets
        On which rows.
    memory
        Bytes that all stacks at work may take, roughly; new stacks are cut to fit.
    """

    def __init__(
        self, question: Question, datasets: Sequence[Data], memory: float = MEMORY
    ) -> None:
        if not (isfinite(memory) and memory > 0):
            raise InputError(f"memory must be a positive number of bytes, not {memory}")
        self.question, self.datasets, self.memory = question, datasets, memory
        self._data: Mapping[str, Data] = {data.name: data for data in datasets}
        if len(self._data) < len(datasets):
            raise InputError("two data sets have the same name; rename one of the files")
        self._splits: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        self.planned = question.plan(datasets)
        self._runs = {planned.id: self._make(planned) for planned in self.planned}

    @property
    def described(self) -> dict[str, Described]:
        """By the data's fingerprints."""
        return {data.fingerprint: data.described for data in self.datasets}

    def run(self, planned: Planned) -> Run:
        if planned.id not in self._runs:  # planned by an earlier question, in a stack of ours
            self._runs[planned.id] = self._make(planned)
        return self._runs[planned.id]

    def _make(self, planned: Planned) -> Run:
        data, key = self._data[planned.dataset], (planned.dataset, planned.trial_seed)
        if key not in self._splits:
            self._splits[key] = data.splits(planned.trial_seed)
        return planned.run(data, self._splits[key])

    def new_stacks(self, store: Store | None) -> list[list[Planned]]:
        """Stacks of the runs that a store does not know; each of one data set."""
        known = set() if store is None else store.known()
        stacks = []
        for data in self.datasets:
            new = [run for run in self.planned if run.dataset == data.name and run.id not in known]
            runs = [self.run(planned) for planned in new]
            if runs:
                together = plan_stacks(runs, most_rows(runs, self.memory))
                stacks += [[new[n] for n in stack] for stack in together]
        return stacks

    def old_stacks(self, store: Store | None) -> list[list[Planned]]:
        """Stacks that a store knows and in which a wanted run is not finished."""
        return [] if store is None else store.pending({run.id for run in self.planned})


class Forecast(NamedTuple):
    """What a sweep will take."""

    runs: int  # that are asked for
    finished: int
    to_train: int  # with what shares a stack with them
    stacks: int
    seconds: float
    memory: float  # bytes, at the peak

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.finished} of them finished; {self.to_train} to train in "
            f"{self.stacks} stacks, about {_duration(self.seconds)} and {self.memory / 1e9:.1f} GB"
        )


def forecast(sweep: Sweep, store: Store | None) -> Forecast:
    """Time a few steps of one stack of each algorithm, on one thread. Writes nothing."""
    if store is not None:
        store.check(sweep.question.setting, sweep.described)
    done = set() if store is None else store.finished()
    stacks = sweep.old_stacks(store) + sweep.new_stacks(store)
    by_algorithm: dict[str, list[list[Run]]] = {}
    for stack in stacks:
        runs = [sweep.run(planned) for planned in stack]
        by_algorithm.setdefault(stack[0].algorithm, []).append(runs)
    threads = torch.get_num_threads()
    work = 0.0
    torch.set_num_threads(1)
    try:
        for alike in by_algorithm.values():
            work += sweep.question.steps * _seconds_a_step(alike, sweep.question.checkpoint_every)
    finally:
        torch.set_num_threads(threads)
    peaks = sorted(stack_memory(runs) for alike in by_algorithm.values() for runs in alike)
    return Forecast(
        len(sweep.planned),
        sum(run.id in done for run in sweep.planned),
        sum(map(len, stacks)),
        len(stacks),
        work / max(1, min(threads, len(stacks))),
        sum(peaks[-threads:]),
    )


def _seconds_a_step(stacks: Sequence[Sequence[Run]], checkpoint_every: int) -> float:
    """Of all stacks of one algorithm one after the other, from one that is timed."""
    costs = [stack_cost(runs, range(len(runs))) for runs in stacks]
    chosen = sorted(range(len(stacks)), key=lambda n: costs[n])[len(stacks) // 2]

    def seconds(steps: int) -> float:
        start = perf_counter()
        train_stack(stacks[chosen], steps, checkpoint_every=steps)
        return perf_counter() - start

    once = seconds(1)  # set-up and a checkpoint
    step = max(0.0, seconds(1 + PROBE) - 2 * once) / PROBE or once / PROBE
    return (step + once / checkpoint_every / 2) * sum(costs) / costs[chosen]


def run_sweep(sweep: Sweep, store: Store, progress: Progress | None = None) -> int:
    """Train every run that the store does not hold yet; how many were trained.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep goes on as
    if it had not been. Each trains on one thread: sums are then taken in the same order whatever
    trains beside it.

    Parameters
    ----------
    sweep
        What to train.
    store
        Open for writing.
    progress
        Called with (steps done, steps in all) of the stacks that are not finished.
    """
    store.plan(sweep.question.setting, sweep.described, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    if not pending:
        return 0
    planned = [run for stack in pending for run in stack]
    ends = np.cumsum([len(stack) for stack in pending])
    train(
        [sweep.run(each) for each in planned],
        sweep.question.steps,
        sweep.question.checkpoint_every,
        progress=progress,
        stacks=[list(range(e - len(s), e)) for e, s in zip(ends, pending, strict=True)],
        finished=lambda stack, records: store.finish([planned[n] for n in stack], records),
        threads=1,
    )
    return len(planned)


def stack_memory(runs: Sequence[Run]) -> float:
    """Bytes that a stack takes at most, roughly: a step's batches, parameters, two banks."""
    rows = max(run.batch_rows for run in runs) * len(runs[0].train) * len(runs)
    return rows * _bytes_a_row(runs[0]) + len(runs) * _bytes_a_run(runs[0]) + _bytes_of_bank(runs)


def most_rows(runs: Sequence[Run], memory: float) -> int:
    """Rows of a stack's batch, so that as many stacks as there are threads fit into memory."""
    each = memory / torch.get_num_threads() - _bytes_of_bank(runs)
    extra = max(sqrt(run.objective.overhead) for run in runs)  # `plan_stacks` allows so much more
    fewest = min(run.batch_rows * len(run.train) for run in runs)  # rows that a run brings at least
    bytes_a_row = max(_bytes_a_row(run) + _bytes_a_run(run) / fewest for run in runs)
    return max(1, min(MOST_ROWS, int(each / (extra * bytes_a_row))))


def _bytes_a_row(run: Run) -> float:
    return 4.0 * COPIES * sum(run.network.widths)


def _bytes_a_run(run: Run) -> float:
    return 4.0 * ADAM * run.network.packing.size


def _bytes_of_bank(runs: Sequence[Run]) -> float:
    return 2 * 4.0 * runs[0].bank.features.size


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
