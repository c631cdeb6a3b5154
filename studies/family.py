"""All objectives side by side: two simulations, tuned by one rule, and the time of a stack.

    python studies/family.py             # both tables, seeds 0-9
    python studies/family.py --times     # CPU time of a stack of 50 runs beside ERM's

Hospitals: four to train on, and three futures: other patients of the same hospitals, a new hospital
whose marker is unrelated to the diagnosis, one whose marker is reversed
(`wri.datasets.hospitals.drawn_hospitals`). Gaussians: environments 1 and 2 of the paper's figure 1,
and two futures: new rows of the same, and environment 3, whose spurious feature is reversed.
Predictors are linear, but those of objectives that need Φ(x) have hidden layers.
Each objective but ERM has one hyper-parameter to tune, on a grid. On seeds 1000-1002 the value with
the least log-loss is chosen, the mean over the futures; the table has the log-loss on other seeds.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wri.datasets import Environment, Gaussian2D
from wri.datasets.hospitals import drawn_hospitals, hospitals
from wri.objectives import OBJECTIVES
from wri.registry import OBJECTIVES as ENTRIES
from wri.training import Bank, ModelSpec, Run, train_stack

TUNED, REPORTED = range(1000, 1003), range(10)
ROWS, TESTED, NOISE = 500, 3000, 5  # rows per environment, in tests, columns of noise
LAMBDAS = tuple(float(f"{10**power:.2g}") for power in np.arange(-3, 5.1, 0.5))
GRIDS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "erm": ("", ()),
    "groupdro": ("eta", (1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)),
    "mixup": ("alpha", (0.1, 0.3, 1.0, 3.0, 10.0)),
    "mldg": ("beta", (0.1, 0.3, 1.0, 3.0, 10.0)),
    "eqrm": ("quantile", (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)),
}
"""Tuned hyper-parameter of objectives without λ."""
BATCH = 64  # rows per environment and step with hidden layers; MMD compares all pairs of rows


class Sites(NamedTuple):
    """Environments to train on, and those of each future."""

    train: list[Environment]
    futures: dict[str, list[Environment]]


def draw_hospitals(seed: int) -> Sites:
    drawn = drawn_hospitals(seed)
    new = hospitals(TESTED, seed, (drawn.unrelated_marker, drawn.reversed_marker), NOISE)
    return Sites(
        hospitals(ROWS, seed, drawn.training, NOISE),
        {
            "like": hospitals(TESTED // 4, 1_000_000 + seed, drawn.training, NOISE),
            "unrelated": new[:1],
            "reversed": new[1:],
        },
    )


def draw_gaussians(seed: int) -> Sites:
    seen, new = Gaussian2D().sample(ROWS, seed), Gaussian2D().sample(TESTED, 1_000_000 + seed)
    return Sites(seen[:2], {"like": new[:2], "reversed": new[2:]})


SIMULATIONS = {"hospitals": draw_hospitals, "gaussians": draw_gaussians}


def make_run(name: str, sites: Sites, value: float | None, seed: int) -> Run:
    parameter, _ = grid(name)
    hyper = {} if value is None else {parameter: value}
    if OBJECTIVES[name].needs_hidden:
        hyper["batch_size"] = BATCH
    futures = [each for own in sites.futures.values() for each in own]
    everything = [*sites.train, *futures]
    ends = np.cumsum([0, *(len(each.y) for each in everything)])
    rows = [np.arange(first, last) for first, last in pairwise(ends)]
    evaluate, used = {}, len(sites.train)
    for future, own in sites.futures.items():
        evaluate[future] = np.concatenate(rows[used : used + len(own)])
        used += len(own)
    x, y = (np.concatenate([getattr(each, part) for each in everything]) for part in "xy")
    spec = ModelSpec.of(name, preset="table", hyper=hyper)
    return Run(spec, Bank(x, y), rows[: len(sites.train)], seed=seed, evaluate=evaluate)


def grid(name: str) -> tuple[str, tuple[float, ...]]:
    return GRIDS.get(name, ("penalty_weight", LAMBDAS))


def log_losses(runs: Sequence[Run]) -> np.ndarray:  # [runs, futures]
    """Return log-losses at the end of training; infinite for a run that diverges."""
    records = train_stack(runs, checkpoint_every=10**6, measures=("loss",))
    found = [[split[-1] for split in each.measures["loss"].values()] for each in records]
    return np.nan_to_num(np.array(found), nan=np.inf)


def tune(name: str, simulation: str) -> float | None:
    """Return the value with the least mean log-loss over the futures and seeds."""
    values = grid(name)[1]
    if not values:
        return None
    sites = {seed: SIMULATIONS[simulation](seed) for seed in TUNED}
    runs = [make_run(name, own, value, seed) for value in values for seed, own in sites.items()]
    found = log_losses(runs).reshape(len(values), -1).mean(1)
    return values[int(found.argmin())]


def print_table(simulation: str, names: Sequence[str]) -> None:
    sites = [SIMULATIONS[simulation](seed) for seed in REPORTED]
    futures = [*sites[0].futures]
    print(f"| {simulation} | hyper-parameter | {' | '.join(futures)} | mean |")
    print("|" + "---|" * (len(futures) + 3))
    for name in names:
        value = tune(name, simulation)
        runs = [make_run(name, own, value, s) for s, own in zip(REPORTED, sites, strict=True)]
        found = log_losses(runs)  # [seeds, futures]
        every = np.column_stack([found, found.mean(1)])
        errors = every.std(0, ddof=1) / len(every) ** 0.5
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(every.mean(0), errors, strict=True)]
        mark = " (Φ)" if OBJECTIVES[name].needs_hidden else ""
        parameter = grid(name)[0].replace("penalty_weight", "λ")
        told = "" if value is None else f"{parameter} = {value:g}"
        print(f"| {ENTRIES[name].label}{mark} | {told} | {' | '.join(cells)} |", flush=True)


def print_times(names: Sequence[str], steps: int = 30, count: int = 50) -> None:
    random = np.random.default_rng(0)
    bank = Bank(random.normal(size=(900, 64)), random.integers(4, size=900))
    train = [np.arange(300 * e, 300 * e + 300) for e in range(3)]

    def seconds(name: str) -> float:
        hyper = {"batch_size": 64}
        known = {parameter.name for parameter in OBJECTIVES[name].hyperparameters()}
        hyper |= {each: 0 for each in known if each.endswith("anneal_steps")}
        spec = ModelSpec.of(name, steps=steps, hyper=hyper)
        runs = [Run(spec, bank, train, seed=s) for s in range(count)]
        before = time.process_time()
        train_stack(runs, checkpoint_every=steps)
        return time.process_time() - before

    seconds("erm")  # the first stack pays for starting up
    rounds = [{name: seconds(name) for name in names} for _ in range(3)]
    found = {name: min(each[name] for each in rounds) for name in names}
    print(f"| objective | CPU seconds of {steps} steps of {count} runs | times ERM |")
    print("|---|---|---|")
    for name, taken in found.items():
        print(f"| {ENTRIES[name].label} | {taken:.2f} | {taken / found['erm']:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", action="store_true", help="CPU time of a stack of 50 runs")
    parser.add_argument("--algorithms", nargs="+", default=list(OBJECTIVES))
    parser.add_argument("--simulations", nargs="+", default=list(SIMULATIONS))
    options = parser.parse_args()
    if options.times:
        print_times(options.algorithms)
        return
    for simulation in options.simulations:
        print_table(simulation, options.algorithms)
        print()


if __name__ == "__main__":
    main()
