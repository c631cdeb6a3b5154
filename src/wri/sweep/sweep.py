"""A sweep, planned and checked: which runs, and which of them share a stack."""

from collections.abc import Hashable, Mapping, Sequence
from math import isfinite

import numpy as np

from wri.errors import InputError
from wri.sweep.balance import balanced_splits
from wri.sweep.data import SweepData
from wri.sweep.memory import WORKER, count_side_by_side, most_rows, stack_memory
from wri.sweep.outcomes import DatasetInfo
from wri.sweep.plan import RunSpec, SweepSpec
from wri.sweep.store import Store
from wri.training import Run, plan_stacks
from wri.training.evaluation import check_measures

MEMORY = 2e9  # bytes


class Sweep:
    """What is asked for on some data sets; nothing is written yet.

    Parameters
    ----------
    spec
        What is asked for.
    datasets
        On which rows.
    memory
        Bytes that all stacks at work may take, roughly; new stacks are cut to fit, and a run that
        would take more alone is refused.
    """

    def __init__(
        self, spec: SweepSpec, datasets: Sequence[SweepData], memory: float = MEMORY
    ) -> None:
        if not (isfinite(memory) and memory > 0):
            raise InputError(f"memory must be a positive number of bytes, not {memory}")
        self.spec, self.datasets, self.memory = spec, datasets, memory
        self._data: Mapping[str, SweepData] = {data.name: data for data in datasets}
        if len(self._data) < len(datasets):
            raise InputError("two data sets have the same name; rename one of the files")
        for data in datasets:
            check_measures(self.measures(data.name), data.bank)
        self._splits: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        self._balanced: dict[tuple[str, int, tuple[int, ...]], dict[str, np.ndarray]] = {}
        self.planned = spec.plan(datasets)
        self._runs = {planned.id: self._make(planned) for planned in self.planned}
        self._check_memory()

    def _check_memory(self) -> None:
        largest = max((stack_memory([run]) for run in self._runs.values()), default=0.0)
        if largest > self.memory:
            raise InputError(
                f"a run takes about {largest / 1e9:.2g} GB of memory, and {self.memory / 1e9:.2g} "
                "GB are left for training; allow more memory, or take fewer columns or rows"
            )

    def measures(self, dataset: str) -> tuple[str, ...]:
        """What is recorded of the runs on a data set."""
        return self.spec.measures or self._data[dataset].measures

    @property
    def infos(self) -> dict[str, DatasetInfo]:
        """By the data's fingerprints."""
        return {data.fingerprint: data.info for data in self.datasets}

    def run(self, planned: RunSpec) -> Run:
        if planned.id not in self._runs:  # planned by an earlier sweep, in a stack of this one
            self._runs[planned.id] = self._make(planned)
        return self._runs[planned.id]

    def _make(self, planned: RunSpec) -> Run:
        return planned.run(self._data[planned.dataset], self._split(planned))

    def _split(self, planned: RunSpec) -> dict[str, np.ndarray]:
        key = (planned.dataset, planned.trial_seed)
        if key not in self._splits:
            self._splits[key] = self._data[planned.dataset].splits(planned.trial_seed)
        return self._splits[key]

    def run_to_train(self, planned: RunSpec) -> Run:
        """The run with all rows it is measured on; balanced ones are made here, for they cost."""
        if not planned.balanced:
            return self.run(planned)
        return planned.run(self._data[planned.dataset], self.splits_to_train(planned))

    def splits_key(self, planned: RunSpec) -> Hashable:
        """Equal for runs that are trained and measured on the same rows."""
        balanced = planned.test_envs if planned.balanced else None
        return planned.dataset, planned.trial_seed, balanced

    def splits_to_train(self, planned: RunSpec) -> dict[str, np.ndarray]:
        """All rows that a run is measured on."""
        data, splits = self._data[planned.dataset], self._split(planned)
        if not planned.balanced:
            return splits
        key = (planned.dataset, planned.trial_seed, planned.test_envs)
        if key not in self._balanced:
            self._balanced[key] = balanced_splits(data, splits, planned.test_envs)
        return splits | self._balanced[key]

    def new_stacks(self, store: Store | None) -> list[list[RunSpec]]:
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

    def side_by_side(self, stacks: Sequence[Sequence[RunSpec]]) -> int:
        """How many of some stacks may train at a time."""
        peaks = [stack_memory([self.run(planned) for planned in stack]) for stack in stacks]
        return count_side_by_side(peaks, self.memory)

    def may_use_processes(self, stacks: Sequence[Sequence[RunSpec]]) -> bool:
        """Whether memory also suffices for a process for each of those that train at a time."""
        peaks = [stack_memory([self.run(planned) for planned in stack]) for stack in stacks]
        together = count_side_by_side(peaks, self.memory)
        return sum(sorted(peaks)[-together:]) + together * WORKER <= self.memory

    def old_stacks(self, store: Store | None) -> list[list[RunSpec]]:
        """Stacks that a store knows and in which a wanted run is not finished."""
        return [] if store is None else store.pending({run.id for run in self.planned})
