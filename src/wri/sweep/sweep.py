"""Planned and checked sweep: its runs, which of them share a stack, and the memory of a stack.

Memory is estimated as

    rows as tensors, to train on and to measure, and as doubles while they are standardised
    + batches of a step + parameters with Adam's moments + what fitting a density takes
"""

from collections.abc import Mapping, Sequence
from math import isfinite

import numpy as np
import torch

from wri.datasets import ImageFolder
from wri.datasets.environments import Environment
from wri.errors import InputError
from wri.number_text import write_number
from wri.sweep.balance import balanced_splits
from wri.sweep.data import SweepData, as_datasets
from wri.sweep.layers import LayerPlace, apply_layer, layer_memory, outline
from wri.sweep.outcomes import DatasetInfo
from wri.sweep.plan import RunSpec, SweepSpec
from wri.sweep.store import Store
from wri.training import Run, plan_stacks
from wri.training.evaluation import check_measures
from wri.training.scheduling import MOST_ROWS

MEMORY = 2e9  # bytes
COPIES = 12  # numbers per unit and row of a batch that a step keeps
INPUTS = 3  # numbers per input and row of a batch
ADAM = 4  # numbers per parameter: itself, its gradient and two moments
BANKS = 2  # copies of the rows: to train on and to measure
DOUBLES = 2  # copies of the rows while they are standardised
DOUBLE, SINGLE = 8, 4  # bytes
FITTED = 3  # copies of a batch while a density is fitted, in single precision


class Sweep:
    """Planned sweep on some data sets; nothing is written yet.

    Parameters
    ----------
    spec : SweepSpec
        Specification of the sweep.
    data : SweepData, ImageFolder or sequence
        A data set or several; a folder of pictures; or environments of one data set, objects with
        `name`, `x` and `y`.
    memory : float, default=2000000000.0
        Bytes for all stacks that train at the same time, estimated. New stacks are made to fit; a
        run that needs more is refused.

    Attributes
    ----------
    planned : list of RunSpec
        All runs.

    Raises
    ------
    InputError
        If two data sets have the same name, or memory is too small.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import Sweep, SweepSpec, gather
    >>> sweep = Sweep(SweepSpec(("erm",)), [gather("hospitals", hospitals(20, seed=0))])
    >>> len(sweep.planned), sum(map(len, sweep.new_stacks(None)))
    (4, 4)
    """

    def __init__(
        self,
        spec: SweepSpec,
        data: SweepData | ImageFolder | Sequence[SweepData] | Sequence[Environment],
        memory: float = MEMORY,
    ) -> None:
        if not (isfinite(memory) and memory > 0):
            raise InputError(f"memory must be a positive number of bytes, not {memory}")
        datasets = as_datasets(data)
        self.spec, self.datasets, self.memory = spec, datasets, memory
        self._data: Mapping[str, SweepData] = {each.name: each for each in datasets}
        if len(self._data) < len(datasets):
            raise InputError("two data sets have the same name; rename one of the files")
        for each in datasets:
            check_measures(self.measures(each.name), each.bank)
        self._splits: dict[tuple[str, int], dict[str, np.ndarray]] = {}
        self._balanced: dict[tuple[object, ...], dict[str, np.ndarray]] = {}
        self._outlines: dict[tuple[str, int], SweepData] = {}
        self._layered: tuple[LayerPlace, SweepData] | None = None  # of the latest layer only
        self.planned = spec.plan(datasets)
        self._runs = {planned.id: self._make(planned) for planned in self.planned}
        self._check_memory()

    def _check_memory(self) -> None:
        runs = [stack_memory([run]) for run in self._runs.values()]
        largest = max([*runs, *map(layer_memory, self.datasets)], default=0.0)
        if largest > self.memory:
            raise InputError(
                f"a run needs about {write_number(largest / 1e9, 2)} GB of memory, but "
                f"{write_number(self.memory / 1e9, 2)} GB are left for training; allow more "
                "memory, or use fewer columns or rows"
            )

    def measures(self, dataset: str) -> tuple[str, ...]:
        """Return the measures recorded on a data set.

        Parameters
        ----------
        dataset : str
            Name of the data set.

        Returns
        -------
        measures : tuple of str
            Names of measures.
        """
        return self.spec.measures or self._data[dataset].measures

    @property
    def infos(self) -> dict[str, DatasetInfo]:
        """Data sets by their fingerprints."""
        return {data.fingerprint: data.info for data in self.datasets}

    def run(self, planned: RunSpec) -> Run:
        """Return the run of a plan, without balanced rows; features of a layer are not yet made.

        Parameters
        ----------
        planned : RunSpec
            The planned run.

        Returns
        -------
        run : Run
            The run.
        """
        if planned.id not in self._runs:  # planned by an earlier sweep, in a stack of this one
            self._runs[planned.id] = self._make(planned)
        return self._runs[planned.id]

    def _make(self, planned: RunSpec) -> Run:
        data = self._data[planned.dataset]
        if planned.width is not None:
            key = (planned.dataset, planned.width)
            if key not in self._outlines:
                self._outlines[key] = outline(data, planned.width)
            data = self._outlines[key]
        return planned.run(data, self._split(planned))

    def seen_by(self, planned: RunSpec) -> SweepData:
        """Return the data that a run sees; a feature layer is trained unless it was the last one.

        Parameters
        ----------
        planned : RunSpec
            The planned run.

        Returns
        -------
        data : SweepData
            The data set, behind the run's feature layer if it has one.
        """
        data, place = self._data[planned.dataset], planned.layer
        if place is None:
            return data
        if self._layered is None or self._layered[0] != place:
            self._layered = place, apply_layer(data, place, self._split(planned))
        return self._layered[1]

    def _split(self, planned: RunSpec) -> dict[str, np.ndarray]:
        key = (planned.dataset, planned.trial_seed)
        if key not in self._splits:
            self._splits[key] = self._data[planned.dataset].splits(planned.trial_seed)
        return self._splits[key]

    def run_to_train(self, planned: RunSpec) -> Run:
        """Return the run with its features and all rows it is measured on, also balanced ones.

        Parameters
        ----------
        planned : RunSpec
            The planned run.

        Returns
        -------
        run : Run
            The run.
        """
        if not planned.balanced and planned.layer is None:
            return self.run(planned)
        data, splits = self.seen_by(planned), self._split(planned)
        if not planned.balanced:
            return planned.run(data, splits)
        key = (planned.dataset, planned.trial_seed, planned.test_envs, planned.width)
        if key not in self._balanced:
            self._balanced[key] = balanced_splits(data, splits, planned.test_envs)
        return planned.run(data, splits | self._balanced[key])

    def new_stacks(self, store: Store | None) -> list[list[RunSpec]]:
        """Return stacks of the runs that a store does not hold; each of one data set and layer.

        Parameters
        ----------
        store : Store or None
            The store.

        Returns
        -------
        stacks : list of list of RunSpec
            The stacks.
        """
        known = set() if store is None else store.known()
        new: dict[object, list[RunSpec]] = {}
        for planned in self.planned:
            if planned.id not in known:
                new.setdefault((planned.dataset, planned.layer), []).append(planned)
        return [
            [same[n] for n in stack]
            for same in new.values()
            for stack in self._cut_to_fit([self.run(planned) for planned in same])
        ]

    def by_layer(self, stacks: Sequence[Sequence[RunSpec]]) -> list[list[Sequence[RunSpec]]]:
        """Divide stacks by the feature layer that they see; those without one are together.

        Parameters
        ----------
        stacks : sequence of sequence of RunSpec
            The stacks.

        Returns
        -------
        groups : list of list of sequence of RunSpec
            Stacks by layer, so that one layer's features are in memory at a time.
        """
        groups: dict[object, list[Sequence[RunSpec]]] = {}
        for stack in stacks:
            groups.setdefault(stack[0].layer, []).append(stack)
        return [*groups.values()]

    def _cut_to_fit(self, runs: Sequence[Run]) -> list[list[int]]:
        """Divide runs into stacks, smaller ones until one per thread fits into memory."""
        most, each = MOST_ROWS, self.memory / torch.get_num_threads()
        while True:
            stacks = plan_stacks(runs, most)
            peaks = [stack_memory([runs[n] for n in stack]) for stack in stacks]
            if most == 1 or max(peaks, default=0.0) <= each:
                return stacks
            most //= 2

    def side_by_side(self, stacks: Sequence[Sequence[RunSpec]]) -> tuple[int, float]:
        """Return how many of some stacks may train at the same time, and their memory together.

        Parameters
        ----------
        stacks : sequence of sequence of RunSpec
            The stacks.

        Returns
        -------
        number : int
            Number of stacks.
        memory : float
            Bytes of so many stacks, the largest.
        """
        peaks = [stack_memory([self.run(planned) for planned in stack]) for stack in stacks]
        together = count_side_by_side(peaks, self.memory)
        return together, sum(sorted(peaks)[-together:])

    def old_stacks(self, store: Store | None) -> list[list[RunSpec]]:
        """Return stacks of a store with a wanted run that is not finished.

        Parameters
        ----------
        store : Store or None
            The store.

        Returns
        -------
        stacks : list of list of RunSpec
            The stacks.
        """
        return [] if store is None else store.pending({run.id for run in self.planned})


def stack_memory(runs: Sequence[Run]) -> float:
    """Estimate the peak memory of a stack in bytes."""
    run, size = runs[0], runs[0].dtype.itemsize
    inputs, *units = run.network.widths
    rows = len(runs) * len(run.train) * max(each.batch_rows for each in runs)
    batches = rows * size * (INPUTS * inputs + COPIES * sum(units))
    parameters = len(runs) * size * ADAM * run.network.packing.size
    banks = len({each.source for each in runs}) * size * BANKS * run.bank.features.size
    doubles = DOUBLE * DOUBLES * run.bank.features.size if run.spec.standardise else 0.0
    # memory that doubles leave is used again for batches
    return max(batches, doubles) + parameters + banks + _density_memory(run)


def _density_memory(run: Run) -> float:
    """Return the bytes of fitting a density to whole environments: rows and batches."""
    density = run.objective.density
    if density is None or density.learning != "refit":
        return 0.0
    width = run.network.view_width(run.objective.density_on)
    drawn = density.batch_size * len(run.train)
    kept = SINGLE * len(run.learned) * len(run.train)  # log densities at all rows
    return kept + width * (len(run.learned) * (DOUBLE + SINGLE) + FITTED * SINGLE * drawn)


def count_side_by_side(peaks: Sequence[float], memory: float) -> int:
    """Return how many stacks may train at the same time: one per thread, if they fit."""
    largest = sorted(peaks, reverse=True)[: torch.get_num_threads()]
    fitting = [n for n in range(1, len(largest) + 1) if sum(largest[:n]) <= memory]
    return max(fitting, default=1)
