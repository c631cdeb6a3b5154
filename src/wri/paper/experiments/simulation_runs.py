"""Runs of tables E.1 to E.3: data sets, the published filter, training in stacks.

Each cell (a column of a table) has its own data sets, drawn from (data seed, setting), and each
training its own weights, drawn from (seed, data seed, setting). So cells are independent, except
the first columns of tables E.1 and E.2, which have the same setting. 80 % of each environment's
rows are used for training; the step is chosen on 20 % of the test environment, as in the paper, and
the rest of it is shown. Rows are independent draws, so the splits are the first rows and the
others.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wri.datasets import Simulation, SimulationSetting
from wri.densities import EnvironmentClassifier, Exact
from wri.errors import InputError
from wri.objectives import Objective
from wri.objectives.erm import ERM
from wri.objectives.irm import IRM
from wri.objectives.vrex import VREx
from wri.objectives.wri import WRI
from wri.progress import Progress
from wri.sweep import gather, seed_hash
from wri.training import ModelSpec, Record, Run, train

ROWS, TRAIN, SELECT = 1000, 800, 200  # per environment; for training; test rows to choose a step
HIDDEN = (10, 5)  # of 20 features, and the same for the oracle's 10
MOST_ROUNDS = 20

ORACLE, TRUE = "Oracle", "WRI true densities"
OBJECTIVES: dict[str, tuple[Objective, dict[str, float]]] = {
    "ERM": (ERM(), {}),
    "IRM": (IRM(), {}),
    "VREx": (VREx(), {}),
    "VREx relative, λ = 30": (
        WRI(weighting="uniform", scaling="relative"),
        {"penalty_weight": 30.0},
    ),
    "WRI": (WRI(scaling="relative", running_mean=True), {}),
    "WRI published": (WRI(weighting="published", scaling="relative", running_mean=True), {}),
    "WRI, λ = 3": (WRI(scaling="relative", running_mean=True), {"penalty_weight": 3.0}),
    "WRI overlap, λ = 3": (
        WRI(
            weighting="overlap",
            scaling="relative",
            density=EnvironmentClassifier(),
            density_on="phi",
        ),
        {"penalty_weight": 3.0},
    ),
}
"""Lines that see all features, with what differs from the preset `simulation`."""

LINES = (*OBJECTIVES, TRUE, ORACLE)


class SimulationSize(NamedTuple):
    datasets: int  # of a cell
    seeds: int  # on each data set
    steps: int = 100


class Dataset:
    """One draw of parameters and rows; equal arguments give equal data."""

    def __init__(self, setting: SimulationSetting, seed: int) -> None:
        self.seed, self._draw = seed, seed_hash(seed, repr(setting))
        self.simulation, environments = Simulation.balanced(setting, ROWS, self._draw)
        data = gather("simulation", environments, setting.classes)
        self.all_features = data.bank
        self.invariant_features = replace(
            data.bank, features=data.bank.features[:, : setting.d_inv]
        )
        *training, test = data.rows
        self.train = [rows[:TRAIN] for rows in training]
        self.evaluate = {"select": test[:SELECT], "shown": test[SELECT:]}
        self.true_densities = Exact(lambda x: self.simulation.log_invariant(x)[..., :-1])

    def run(self, line: str, seed: int | str, steps: int = 100) -> Run:
        """Make the training of one line; equal seeds on one data set start from equal weights."""
        bank = self.all_features
        hyper: dict[str, float] = {}
        objective: Objective = ERM()
        if line == ORACLE:
            bank = self.invariant_features
        elif line == TRUE:
            objective = WRI(density=self.true_densities, scaling="relative", running_mean=True)
        else:
            objective, hyper = OBJECTIVES[line]
        spec = ModelSpec.of(objective, preset="simulation", hidden=HIDDEN, hyper=hyper, steps=steps)
        own = seed_hash(seed, self._draw)
        return Run(spec, bank, self.train, seed=own, evaluate=self.evaluate)


def accuracies(
    datasets: Sequence[Dataset],
    lines: Sequence[str],
    size: SimulationSize,
    seed: int,
    progress: Progress,
) -> dict[str, np.ndarray]:
    """Return the accuracy (%) in the test environment of each line, `[data set, seed]`."""
    seeds = range(seed, seed + size.seeds)
    runs = [d.run(line, s, size.steps) for line in lines for d in datasets for s in seeds]
    records = train(runs, checkpoint_every=1, progress=progress)
    shown = np.array([100 * chosen_accuracy(record) for record in records])
    return dict(zip(lines, shown.reshape(len(lines), len(datasets), size.seeds), strict=True))


def chosen_accuracy(record: Record) -> float:
    """Return the accuracy at the first step that is best on the rows to choose by; NaN never is."""
    accuracy = record.measures["accuracy"]
    chosen = np.where(np.isnan(accuracy["select"]), -1.0, accuracy["select"]).argmax()
    return float(accuracy["shown"][chosen])


def passing(
    settings: Sequence[SimulationSetting], first: int, size: SimulationSize
) -> list[list[Dataset]]:
    """Return for each setting the first data sets, by seed, that pass the published filter."""
    kept: list[list[Dataset]] = [[] for _ in settings]
    for _ in range(MOST_ROUNDS):
        wanting = [n for n, found in enumerate(kept) if len(found) < size.datasets]
        if not wanting:
            return kept
        seeds = range(first, first + size.datasets)
        candidates = [(n, Dataset(settings[n], seed)) for n in wanting for seed in seeds]
        lines = ("ERM", ORACLE)
        runs = [d.run(line, "filter", size.steps) for line in lines for _, d in candidates]
        records = train(runs, checkpoint_every=1)
        pairs = zip(records[: len(candidates)], records[len(candidates) :], strict=True)
        for (n, dataset), (erm, oracle) in zip(candidates, pairs, strict=True):
            if len(kept[n]) < size.datasets and passes(erm, oracle):
                kept[n].append(dataset)
        first += size.datasets
    short = settings[next(n for n, found in enumerate(kept) if len(found) < size.datasets)]
    raise InputError(
        f"fewer than {size.datasets} of {MOST_ROUNDS * size.datasets} data seeds pass the "
        f"published filter for {short}; use --unfiltered"
    )


def passes(erm: Record, oracle: Record) -> bool:
    """Return whether a data set passes the filter of the paper's tables, which it does not mention.

    ERM's best test accuracy must be between 1.5 times chance and 90 %, occur at step 3 or later,
    and be at least a tenth below the best of a classifier on the true invariant features.
    """
    curves = [
        (SELECT * r.measures["accuracy"]["select"] + TRAIN * r.measures["accuracy"]["shown"]) / ROWS
        for r in (erm, oracle)
    ]
    best, ceiling = (curve.max() for curve in curves)
    chance = 1 / erm.network.widths[-1]
    return bool(1.5 * chance < best < min(0.9, 0.9 * ceiling) and curves[0].argmax() >= 3)
