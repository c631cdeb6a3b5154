"""Sweep from plan to records: which runs share a stack, a forecast of the cost, and the training.

    rows and splits, sent once ─┐
    stack ──────────────────────┴► job, here or on Ray: one thread, the stack's memory ─► results

Only `run_sweep` writes to the sweep's store. Memory is estimated as

    rows as tensors, to train on and to measure, and as doubles while they are standardised
    + batches of a step + parameters with Adam's moments + rows that a density is fitted to

and time from a few steps of one stack per algorithm.
"""

import hashlib
import socket
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import isfinite
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

import wri
from wri.datasets import ImageFolder
from wri.datasets.environments import Environment
from wri.errors import InputError, LostBackendError
from wri.jobs import WORKER, LocalRunner, Report, Runner, open_runner
from wri.number_text import write_number
from wri.progress import Progress, ProgressLines, part
from wri.sweep.balance import balanced_splits
from wri.sweep.data import SweepData, apply_layer, as_datasets, layer_memory, outline
from wri.sweep.plan import RunSpec, SweepSpec
from wri.sweep.selection import DatasetInfo
from wri.sweep.store import Store
from wri.threads import resident_bytes, torch_threads
from wri.training import Run, plan_stacks, train_stack
from wri.training.evaluation import check_measures
from wri.training.runs import RunResult
from wri.training.scheduling import (
    MOST_ROWS,
    StackJob,
    run_stacks,
    share_threads,
    stack_cost,
    train_stack_job,
)

MEMORY = 2e9  # bytes
COPIES = 12  # numbers per unit and row of a batch that a step keeps
INPUTS = 3  # numbers per input and row of a batch
ADAM = 4  # numbers per parameter: itself, its gradient and two moments
BANKS = 2  # copies of the rows: to train on and to measure
STANDARDISED = 16  # bytes per feature and row while rows are standardised: two doubles
FITTED = 12  # bytes per feature and row while a density is fitted: a double and a float
PROBE = 5  # steps that are timed
LIBRARIES = 5e7  # bytes that PyTorch takes when it first trains


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
            check_measures(spec.measures or each.measures, each.bank)
        self._splits = cache(lambda name, trial: self._data[name].splits(trial))
        self._outline = cache(lambda name, width: outline(self._data[name], width))
        self._balanced: dict[tuple[object, ...], dict[str, np.ndarray]] = {}
        # of the latest layer only
        self._layered = lru_cache(1)(lambda name, *at: apply_layer(self._data[name], *at))
        self.planned = spec.plan(datasets)
        self._runs: dict[str, Run] = {}
        self._check_memory()

    def _check_memory(self) -> None:
        runs = [stack_memory([self.run(planned)]) for planned in self.planned]
        largest = max([*runs, *map(layer_memory, self.datasets)], default=0.0)
        if largest > self.memory:
            raise InputError(
                f"a run needs about {write_number(largest / 1e9, 2)} GB of memory, but "
                f"{write_number(self.memory / 1e9, 2)} GB is left for training; allow more "
                "memory, or use fewer columns or rows"
            )

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
        if planned.id not in self._runs:  # also of an earlier sweep, in a stack of this one
            data, width = self._data[planned.dataset], planned.width
            if width is not None:
                data = self._outline(planned.dataset, width)
            splits = self._splits(planned.dataset, planned.trial_seed)
            self._runs[planned.id] = planned.run(data, splits)
        return self._runs[planned.id]

    def _seen_by(self, planned: RunSpec) -> SweepData:
        """Return the data that a run sees; a feature layer is trained unless it was the last."""
        if planned.layer is None:
            return self._data[planned.dataset]
        return self._layered(*planned.layer)

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
        data = self._seen_by(planned)
        splits = self._splits(planned.dataset, planned.trial_seed)
        if planned.balanced:
            key = (planned.dataset, planned.trial_seed, planned.test_envs, planned.width)
            if key not in self._balanced:
                self._balanced[key] = balanced_splits(data, splits, planned.test_envs)
            splits = splits | self._balanced[key]
        return planned.run(data, splits)

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

    def _cut_to_fit(self, runs: Sequence[Run]) -> list[list[int]]:
        """Divide runs into stacks, smaller ones until one per thread fits into memory."""
        most, each = MOST_ROWS, self.memory / torch.get_num_threads()
        while True:
            stacks = plan_stacks(runs, most)
            peaks = [stack_memory([runs[n] for n in stack]) for stack in stacks]
            if most == 1 or max(peaks, default=0.0) <= each:
                return stacks
            most //= 2

    def _side_by_side(self, stacks: Sequence[Sequence[RunSpec]]) -> tuple[int, float]:
        """Return how many of some stacks may train at the same time, and their memory together."""
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
    run, size, cells = runs[0], runs[0].dtype.itemsize, runs[0].bank.features.size
    inputs, *units = run.network.widths
    rows = len(runs) * len(run.train) * max(each.batch_rows for each in runs)
    batches = rows * size * (INPUTS * inputs + COPIES * sum(units))
    parameters = len(runs) * size * ADAM * run.network.packing.size
    banks = len({each.source for each in runs}) * size * BANKS * cells
    doubles = STANDARDISED * cells if run.spec.standardise else 0
    density = run.objective.density
    fitted = FITTED * cells if density is not None and density.learning == "refit" else 0
    # memory that doubles leave is used again for batches
    return float(max(batches, doubles) + parameters + banks + fitted)


def count_side_by_side(peaks: Sequence[float], memory: float) -> int:
    """Return how many stacks may train at the same time: one per thread, if they fit."""
    largest = sorted(peaks, reverse=True)[: torch.get_num_threads()]
    fitting = [n for n in range(1, len(largest) + 1) if sum(largest[:n]) <= memory]
    return max(fitting, default=1)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Forecast of a sweep's cost.

    Attributes
    ----------
    runs : int
        Number of runs asked for.
    finished : int
        Number of finished runs among them.
    to_train : int
        Number of runs to train, with those that share a stack with them.
    stacks : int
        Number of stacks.
    seconds : float
        Duration.
    memory : float
        Peak memory of the process in bytes, with the rows and PyTorch.

    Examples
    --------
    >>> from wri.sweep import Forecast
    >>> cost = Forecast(runs=8, finished=0, to_train=8, stacks=2, seconds=30.0, memory=1e9)
    >>> print(cost)
    8 runs, 0 of them finished; 8 to train in 2 stacks, about 30 s and 1.0 GB
    """

    runs: int
    finished: int
    to_train: int
    stacks: int
    seconds: float
    memory: float

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.finished} of them finished; {self.to_train} to train in "
            f"{self.stacks} stacks, about {_duration(self.seconds)} and {self.memory / 1e9:.1f} GB"
        )


def forecast(sweep: Sweep, store: Store | None) -> Forecast:
    """Forecast a sweep's cost by timing a few steps of one stack per algorithm, on one thread.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    store : Store or None
        Store with finished runs; nothing is written to it.

    Returns
    -------
    cost : Forecast
        Number of runs, duration and memory.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import Sweep, SweepSpec, forecast, gather
    >>> sweep = Sweep(SweepSpec(("erm",), steps=2), [gather("hospitals", hospitals(20, seed=0))])
    >>> forecast(sweep, None).runs
    4
    """
    if store is not None:
        store.check(sweep.spec.setting, sweep.infos)
    resident = resident_bytes() + LIBRARIES
    done = set() if store is None else store.finished()
    stacks = sweep.old_stacks(store) + sweep.new_stacks(store)
    by_algorithm: dict[str, list[list[RunSpec]]] = {}
    for stack in stacks:
        by_algorithm.setdefault(stack[0].algorithm, []).append(stack)
    with torch_threads(1):
        layers = _layer_seconds(sweep, stacks)
        times = [_seconds(sweep, alike) for alike in by_algorithm.values()]
    together, needed = sweep._side_by_side(stacks)
    return Forecast(
        runs=len(sweep.planned),
        finished=sum(run.id in done for run in sweep.planned),
        to_train=sum(map(len, stacks)),
        stacks=len(stacks),
        seconds=layers + sum(times) / together,
        memory=resident + max([needed, *map(layer_memory, sweep.datasets)]),
    )


def _layer_seconds(sweep: Sweep, stacks: Sequence[Sequence[RunSpec]]) -> float:
    """Estimate the duration of the feature layers from one that is timed."""
    layers = {stack[0].layer: stack[0] for stack in stacks if stack[0].layer is not None}
    start = perf_counter()
    for planned in [*layers.values()][:1]:
        sweep._seen_by(planned)
    return len(layers) * (perf_counter() - start)


def _seconds(sweep: Sweep, stacks: Sequence[Sequence[RunSpec]]) -> float:
    """Estimate the duration of all stacks of one algorithm from the median one, which is timed."""
    costs = [stack_cost([sweep.run(planned) for planned in stack]) for stack in stacks]
    chosen = sorted(range(len(stacks)), key=lambda n: costs[n])[len(stacks) // 2]
    layered = stacks[chosen][0].layer is not None
    runs = [sweep.run_to_train(each) if layered else sweep.run(each) for each in stacks[chosen]]
    steps = runs[0].spec.last_step
    once = _time(runs, 1)  # set-up and a checkpoint
    probe = min(PROBE, steps - 1)
    step = max(0.0, _time(runs, 1 + probe) - 2 * once) / probe if probe else 0.0
    each = (step or once / PROBE) + once / sweep.spec.checkpoint_every / 2
    return steps * each * sum(costs) / costs[chosen]


def _time(runs: Sequence[Run], steps: int) -> float:
    """Time the first steps of a stack, with a checkpoint at the first and at the last."""
    short = [replace(run, spec=replace(run.spec, stop_after=steps)) for run in runs]
    start = perf_counter()
    train_stack(short, checkpoint_every=steps)
    return perf_counter() - start


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def open_backend(name: str = "local") -> Runner:
    """Open a back end by its name, for a `with` statement.

    Parameters
    ----------
    name : {"local", "ray"}, default="local"
        "local" trains in threads of this process. "ray" trains in processes that Ray starts on this
        machine, or on the cluster that `RAY_ADDRESS` names.

    Returns
    -------
    backend : Runner
        The back end. Its attribute `status` may be set to a function, which is called with a line
        about finished and running stacks.

    Raises
    ------
    InputError
        If the name is unknown or Ray is not installed.

    Examples
    --------
    >>> from wri.sweep import open_backend
    >>> with open_backend() as backend:
    ...     backend.overhead(0.0)  # bytes needed outside of this process
    0.0
    """
    return open_runner(name, "backend")


def run_sweep(
    sweep: Sweep,
    store: Store,
    progress: Progress | None = None,
    backend: Runner | None = None,
) -> int:
    """Train all runs that the store does not hold yet.

    Stacks are fixed in the store before they are trained, so that an interrupted sweep continues as
    if it had not been interrupted, on any back end. Each stack trains on one thread, so that sums
    have the same order whatever else trains.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    store : Store
        Store that is open for writing. Only this process writes to it.
    progress : callable or None, default=None
        Called with (steps done, steps in all) of the unfinished stacks. None: a line on standard
        error every half minute.
    backend : Runner or None, default=None
        From `open_backend`. None: threads of this process.

    Returns
    -------
    trained : int
        Number of trained runs.

    Raises
    ------
    LostBackendError
        If Ray ends on the way; finished runs are in the store.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import Store, Sweep, SweepSpec, gather, run_sweep
    >>> sweep = Sweep(SweepSpec(("erm",), steps=2), [gather("hospitals", hospitals(20, seed=0))])
    >>> with TemporaryDirectory() as folder, Store(Path(folder, "s.db"), write=True) as store:
    ...     first, second = run_sweep(sweep, store), run_sweep(sweep, store)
    >>> first, second
    (4, 0)
    """
    store.plan(sweep.spec.setting, sweep.infos, sweep.new_stacks(store))
    pending = sweep.old_stacks(store)
    groups = defaultdict(list)  # one layer's features are in memory at a time
    for stack in pending:
        groups[stack[0].layer].append(stack)
    progress, backend = progress or ProgressLines("sweep"), backend or LocalRunner()
    try:
        for n, stacks in enumerate(groups.values()):
            progress_here = part(progress, n, len(groups))
            with closing(_train_stacks(sweep, stacks, backend, progress_here)) as trained:
                for runs, results in trained:
                    store.finish(runs, results)
    except LostBackendError as error:
        raise LostBackendError(
            f"Ray was lost ({error}); {len(store.finished())} finished runs are in {store.path}: "
            "run the same command to continue"
        ) from error
    return sum(map(len, pending))


def _train_stacks(
    sweep: Sweep, stacks: Sequence[Sequence[RunSpec]], backend: Runner, progress: Progress
) -> Generator[tuple[Sequence[RunSpec], list[RunResult]], None, None]:
    """Train stacks on one thread each, as jobs, and yield each when it is done."""
    # here, many density steps go to worker processes if there is memory for them
    is_local, lost = isinstance(backend, LocalRunner), []
    jobs = [
        StackJob(
            runs=[sweep.run_to_train(planned) for planned in stack],
            checkpoint_every=sweep.spec.checkpoint_every,
            measures=sweep.spec.measures or "all",
            device="auto" if is_local else "cpu",
            threads=1,
        )
        for stack in stacks
    ]
    runner = backend
    if is_local:
        together, needed = sweep._side_by_side(stacks)
        processes = None if needed + together * WORKER <= sweep.memory else False
        runner, jobs = share_threads(jobs, 1, together, processes)
    runner.memory = sweep.memory
    work = partial(train_stack_for_store, versions=None if is_local else find_versions())
    memory = [stack_memory(job.runs) + WORKER for job in jobs]

    def show(done: int, of: int, at_work: int) -> None:
        backend.status(f"{done} of {of} stacks done, {at_work} running")

    with closing(run_stacks(runner, work, jobs, progress, show, memory)) as trained:
        for ended in trained:
            if ended.lost is None:
                yield stacks[ended.number], ended.result
            else:
                lost.append((stacks[ended.number], ended.lost))
    if lost:
        raise InputError(_describe_lost(lost, runner))


def train_stack_for_store(
    job: StackJob, report: Report, versions: Mapping[str, str] | None
) -> list[RunResult]:
    """Train a stack; refuse where results could differ from those of the sender's versions."""
    if versions is not None:
        check_versions(versions)
    records = train_stack_job(job, report)
    return [  # parameters stay where they were trained
        RunResult(steps=each.steps, measures=each.measures, diverged_at=each.diverged_at)
        for each in records
    ]


@cache
def find_versions() -> dict[str, str]:
    """Return the versions behind a result: wri with a digest of its code, PyTorch, NumPy."""
    digest = hashlib.sha256()
    folder = Path(wri.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    code = f"{wri.__version__} (code {digest.hexdigest()[:8]})"
    return {"wri": code, "torch": str(torch.__version__), "numpy": np.__version__}


def check_versions(sender: Mapping[str, str]) -> None:
    """Refuse to train for a process whose results could differ from ours."""
    for package, ours in find_versions().items():
        if ours != sender[package]:
            raise InputError(
                f"a Ray worker on {socket.gethostname()} has {package} {ours}, and the sweep has "
                f"{sender[package]}; install the same on all machines of the cluster, and start "
                "Ray there again"
            )


def _describe_lost(lost: Sequence[tuple[Sequence[RunSpec], str]], runner: Runner) -> str:
    (first, reason), runs = lost[0], sum(len(stack) for stack, _ in lost)
    others = f" and {runs - 1} more runs" if runs > 1 else ""
    return (
        f"{runner.name} gave up {first[0].place}{others} after {runner.retries + 1} attempts "
        f"({reason}); all other runs are in the store, and the "
        "same command tries these again. If memory was short, give more --memory or start fewer "
        "workers"
    )
