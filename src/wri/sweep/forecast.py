"""Forecast of a sweep's cost, from a few steps of one stack per algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from wri.sweep.layers import layer_memory
from wri.sweep.plan import RunSpec
from wri.sweep.store import Store
from wri.sweep.sweep import Sweep
from wri.threads import resident_bytes, torch_threads
from wri.training import Run, train_stack
from wri.training.scheduling import stack_cost

PROBE = 5  # steps that are timed
LIBRARIES = 5e7  # bytes that PyTorch takes when it first trains


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

    runs: int  # that are asked for
    finished: int
    to_train: int  # with what shares a stack with them
    stacks: int
    seconds: float
    memory: float  # bytes of the process at the peak, with the rows and PyTorch

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
    together, needed = sweep.side_by_side(stacks)
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
    places = {stack[0].layer: stack[0] for stack in stacks if stack[0].layer is not None}
    start = perf_counter()
    for planned in [*places.values()][:1]:
        sweep.seen_by(planned)
    return len(places) * (perf_counter() - start)


def _seconds(sweep: Sweep, stacks: Sequence[Sequence[RunSpec]]) -> float:
    """Estimate the duration of all stacks of one algorithm from one that is timed."""
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
