"""Problems of `family.py`: rows to train on and, for each future, rows to measure on.

    gaussians     figure 1: environments 1 and 2; new rows of these, and environment 3 (reversed)
    hospitals     four simulated hospitals; other patients, and new hospitals whose marker is
                  unrelated or reversed (`wri.datasets.hospitals.drawn_hospitals`)
    sites         simulated sites of `insured_sites.py`, classes, three designs with a marker that
                  varies; new sites where it is unchanged, unrelated or reversed
    sites-fixed   the same designs with a marker that is the same everywhere: nothing changes
    simulation    figure E.5's: three of its settings; the step is chosen on 200 rows of the test
                  environment, as in the paper
    hcmnist, hcmnist-cs
                  coloured digits on the features of a CNN of each draw, as in table 2; held-back
                  rows of the training environments, the test environment in random colours
                  (unrelated), and the test environment (reversed)
    pacs          EfficientNet-Lite0's features behind a layer of 64 that ERM trained on the
                  training domains; every domain is held out in turn, as in table E.4

Problems with several parts (designs, settings, held-out domains) are averaged over these. A draw
draws everything anew: rows, features, split and initial weights; PACS has one set of pictures.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from insured_sites import KINDS, Design, sample_table
from wri.datasets import Environment, Gaussian2D
from wri.datasets.hospitals import drawn_hospitals, hospitals
from wri.datasets.image_sets import load_images
from wri.features import FeatureLayer, extract
from wri.features.extraction import as_environments
from wri.objectives import Objective, make_objective
from wri.paper.experiments.coloured import (
    TEST,
    TRAINING,
    UNRELATED,
    load_features,
    make_extractor,
)
from wri.paper.experiments.simulation import HIDDEN, OBJECTIVES, SERIES, TRAIN, Dataset
from wri.progress import silent
from wri.sweep import SweepData, gather, seed_hash
from wri.sweep.data import apply_layer, with_layer
from wri.training import Bank, Record

ROWS, TESTED, NOISE = 500, 3000, 5  # rows per environment, in tests, columns of noise
WIDTH = 64  # of the feature layer
LIKE, REVERSED, NEW = "like", "reversed", "new"
LADDER = tuple(float(f"{10**power:.2g}") for power in np.arange(-3, 5.1, 0.5))
DECADES = tuple(10.0**power for power in range(-2, 6))


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """Rows of one part of a draw."""

    bank: Bank
    train: Sequence[np.ndarray]  # row numbers of each training environment
    futures: Mapping[str, np.ndarray]  # row numbers
    seed: int  # of initial weights and batches


def last_step(record: Record, measure: str) -> dict[str, float]:
    return {future: float(found[-1]) for future, found in record.measures[measure].items()}


def best_step(record: Record, measure: str) -> dict[str, float]:
    """Return the measures at the first step that is best on the rows to choose by."""
    found = dict(record.measures[measure])
    chosen = np.nan_to_num(found.pop("select"), nan=-1.0).argmax()
    return {future: float(values[chosen]) for future, values in found.items()}


def preset_objective(name: str, preset: str) -> Objective:
    return make_objective(name, preset)


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Draws of a problem, and how its runs are trained, tuned and measured."""

    label: str
    preset: str
    draw: Callable[[int], list[Part]]
    tuned: Sequence[int]  # draws that choose hyper-parameters
    reported: Sequence[int]
    measure: Literal["loss", "accuracy"]
    values: Sequence[float] = LADDER  # of λ
    tuned_like: str | None = None  # a problem whose hyper-parameters it takes
    hidden: tuple[int, ...] | None = None
    checkpoint_every: int = 10**6
    read: Callable[[Record, str], dict[str, float]] = last_step
    objective: Callable[[str, str], Objective] = preset_objective
    batches: Mapping[str, int] | None = None  # rows per environment and step, other than usual


def part_of(train: Sequence[Environment], futures: Mapping[str, Sequence[Any]], seed: int) -> Part:
    """Return a part whose bank has the training rows first, then those of the futures."""
    everything = [*train, *(each for own in futures.values() for each in own)]
    ends = np.cumsum([0, *(len(each.y) for each in everything)])
    rows = [np.arange(first, last) for first, last in pairwise(ends)]
    evaluate, used = {}, len(train)
    for future, own in futures.items():
        evaluate[future] = np.concatenate(rows[used : used + len(own)])
        used += len(own)
    x, y = (np.concatenate([getattr(each, part) for each in everything]) for part in "xy")
    return Part(bank=Bank(x, y), train=rows[: len(train)], futures=evaluate, seed=seed)


def draw_hospitals(seed: int) -> list[Part]:
    drawn = drawn_hospitals(seed)
    new = hospitals(TESTED, seed, (drawn.unrelated_marker, drawn.reversed_marker), NOISE)
    like = hospitals(TESTED // 4, 1_000_000 + seed, drawn.training, NOISE)
    futures = {LIKE: like, UNRELATED: new[:1], REVERSED: new[1:]}
    return [part_of(hospitals(ROWS, seed, drawn.training, NOISE), futures, seed)]


def draw_gaussians(seed: int) -> list[Part]:
    seen, new = Gaussian2D().sample(ROWS, seed), Gaussian2D().sample(TESTED, 1_000_000 + seed)
    return [part_of(seen[:2], {LIKE: new[:2], REVERSED: new[2:]}, seed)]


def draw_sites(marker: str) -> Callable[[int], list[Part]]:
    designs = [
        Design("classes", sites, overlap, rows, marker=marker)
        for sites, overlap, rows in ((4, "partial", 300), (12, "partial", 100), (6, "none", 200))
    ]

    def draw(seed: int) -> list[Part]:
        tables = [sample_table(design, seed) for design in designs]
        names = dict(zip(KINDS, (LIKE, UNRELATED, REVERSED), strict=True))
        return [
            part_of(train, {names[kind]: own for kind, own in new.items()}, seed)
            for train, new in tables
        ]

    return draw


def draw_simulation(seed: int) -> list[Part]:
    settings = [SERIES["tableE1"].at(0.15), SERIES["tableE1"].at(0.3), SERIES["tableE3"].at(85.0)]
    parts = []
    for setting in settings:
        data = Dataset(setting, seed)
        held_back = np.concatenate([rows[-1] + 1 + np.arange(1000 - TRAIN) for rows in data.train])
        futures = {
            "select": data.evaluate["select"],
            LIKE: held_back,
            NEW: data.evaluate["shown"],
        }
        own = seed_hash("family", seed, repr(setting))
        parts.append(Part(bank=data.all_features, train=data.train, futures=futures, seed=own))
    return parts


def simulation_objective(name: str, preset: str) -> Objective:
    """Return the preset's objective; WRI with overlap weights on Φ(x), its best in figure E.5."""
    return OBJECTIVES["WRI overlap, λ = 3"][0] if name == "wri" else make_objective(name, preset)


def draw_coloured(name: str) -> Callable[[int], list[Part]]:
    def draw(number: int) -> list[Part]:
        data = load_features(name, True, make_extractor("cnn"), silent, number)
        splits = data.splits(number)
        futures = {
            LIKE: np.concatenate([splits[f"env{e}_out"] for e in TRAINING]),
            UNRELATED: splits[UNRELATED],
            REVERSED: data.rows[TEST],
        }
        train = [splits[f"env{e}_in"] for e in TRAINING]
        own = seed_hash(data.name, "family", number)
        return [Part(bank=data.bank, train=train, futures=futures, seed=own)]

    return draw


@cache
def pacs_features() -> SweepData:
    folder = load_images("PACS")
    environments = as_environments(folder, extract(folder))
    found = gather("PACS", environments, classes=len(folder.classes))
    return with_layer(found, FeatureLayer((WIDTH,), steps=500))


def draw_pacs(trial: int) -> list[Part]:
    parts = []
    for held_out in range(4):
        whole = pacs_features()
        splits = whole.splits(trial)
        data = apply_layer(whole, trial, (held_out,), WIDTH)
        seen = [e for e in range(4) if e != held_out]
        futures = {
            LIKE: np.concatenate([splits[f"env{e}_out"] for e in seen]),
            NEW: data.rows[held_out],
        }
        train = [splits[f"env{e}_in"] for e in seen]
        own = seed_hash(data.name, "family", trial)
        parts.append(Part(bank=data.bank, train=train, futures=futures, seed=own))
    return parts


SEEDS, OTHER_SEEDS = range(10), range(1000, 1003)
PROBLEMS = {
    "gaussians": Problem(
        label="Gaussians",
        preset="table",
        draw=draw_gaussians,
        tuned=OTHER_SEEDS,
        reported=SEEDS,
        measure="loss",
    ),
    "hospitals": Problem(
        label="Hospitals",
        preset="table",
        draw=draw_hospitals,
        tuned=OTHER_SEEDS,
        reported=SEEDS,
        measure="loss",
    ),
    "sites": Problem(
        label="Sites",
        preset="table",
        draw=draw_sites("varying"),
        batches={"mmd": 16},
        tuned=OTHER_SEEDS,
        reported=SEEDS,
        measure="loss",
    ),
    "sites-fixed": Problem(
        label="Sites, nothing changes",
        preset="table",
        draw=draw_sites("fixed"),
        batches={"mmd": 16},
        tuned=(),
        reported=SEEDS,
        measure="loss",
        tuned_like="sites",
    ),
    "simulation": Problem(
        label="Simulation",
        preset="simulation",
        draw=draw_simulation,
        tuned=OTHER_SEEDS[:2],
        reported=SEEDS,
        measure="accuracy",
        values=DECADES,
        hidden=HIDDEN,
        checkpoint_every=1,
        read=best_step,
        objective=simulation_objective,
        batches={"mmd": 64},
    ),
    **{
        name: Problem(
            label=label,
            preset="coloured",
            draw=draw_coloured(name),
            tuned=(10,),
            reported=range(20, 25),
            measure="accuracy",
            values=DECADES,
            batches={"mmd": 64},
        )
        for name, label in (("hcmnist", "HCMNIST"), ("hcmnist-cs", "HCMNIST-CS"))
    },
    "pacs": Problem(
        label="PACS",
        preset="domainbed",
        draw=draw_pacs,
        tuned=(10,),
        reported=range(3),
        measure="accuracy",
        values=DECADES,
        batches={"mmd": 64},
    ),
}
