"""Numbers of the preset `table`, on simulated hospitals that no page of results shows otherwise.

    python studies/estimator_defaults.py OBJECTIVE … [--hidden 32 16] [--lambdas 1 3 10] [--json]

Hospitals are drawn for every seed, from 1000 on (`wri.datasets.hospitals.drawn_hospitals`): four to
train on, a new one whose marker has nothing to do with the diagnosis, and one whose marker points
the other way. They have four sizes, with noise columns; a seed's loss is the mean over the sizes.
Printed for each λ, and for each weight decay of ERM, in rows, are the log-loss for other patients
of the training hospitals ("like") and at the two new ones, and the mean of the three.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import wri
from wri.datasets import joined
from wri.datasets.hospitals import drawn_hospitals, hospitals
from wri.registry import OBJECTIVES
from wri.report.intervals import standard_error

SIZES = ((150, 12), (500, 1), (500, 12), (1500, 5))  # patients of a hospital, noise columns
FIRST_SEED, TESTED = 1000, 3000
LAMBDAS = (0.3, 1.0, 1.6, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4)
ROWS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
FUTURES = ("like", "unrelated", "reversed")
KINDS = {"irm": wri.IRMClassifier, "vrex": wri.VRExClassifier, "wri": wri.WRIClassifier}
Make = Callable[[int, int], Any]
"""A classifier from a seed and the number of rows that it learns from."""


def settings(
    name: str, hidden: tuple[int, ...], lambdas: Sequence[float]
) -> Iterator[tuple[float, Make]]:
    common = {"hidden": hidden, "site_spread": False}
    if name == "erm":
        for rows in ROWS:
            yield (
                rows,
                lambda seed, n, rows=rows: wri.ERMClassifier(
                    random_state=seed, weight_decay=rows / n, **common
                ),
            )
        return
    for weight in lambdas:
        yield (
            weight,
            lambda seed, n, weight=weight: KINDS[name](
                random_state=seed, penalty_weight=weight, **common
            ),
        )


def log_loss(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    probability = model.predict_proba(x)[np.arange(len(y)), y]
    return float(-np.log(probability.clip(1e-9)).mean())


def measure(make: Make, seed: int) -> np.ndarray:  # [3]
    """Log-loss of each future, mean over sizes."""
    found = []
    for patients, noise in SIZES:
        drawn = drawn_hospitals(seed)
        x, y, site = joined(hospitals(patients, seed, drawn.training, noise))
        model = make(seed, round(0.8 * len(x))).fit(x, y, groups=site)
        others = hospitals(TESTED // 4, 1_000_000 + seed, drawn.training, noise)
        new = (drawn.unrelated_marker, drawn.reversed_marker)
        losses = [log_loss(model, *own[1:]) for own in hospitals(TESTED, seed, new, noise)]
        found.append([np.mean([log_loss(model, *own[1:]) for own in others]), *losses])
    return np.mean(found, 0)


def print_settings(name: str, hidden: Sequence[int], found: dict[float, np.ndarray]) -> None:
    form = f"hidden layers of {' and '.join(map(str, hidden))}" if hidden else "linear"
    seeds = f"{len(next(iter(found.values())))} seeds from {FIRST_SEED}"
    print(f"*{OBJECTIVES[name].label}, {form}: log-loss, mean ± standard error over {seeds}*\n")
    head = "weight decay, in rows" if name == "erm" else "λ"
    print(f"| {head} | {' | '.join(FUTURES)} | mean of the three |\n|---|---|---|---|---|")
    for value, losses in found.items():
        cells = [
            f"{own.mean():.3f} ± {standard_error(own):.3f}" for own in (*losses.T, losses.mean(1))
        ]
        print(f"| {value:g} | {' | '.join(cells)} |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objectives", nargs="+", choices=("erm", *KINDS))
    parser.add_argument("--hidden", type=int, nargs="*", default=[], help="a network's widths")
    parser.add_argument("--lambdas", type=float, nargs="+", default=LAMBDAS)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", ".*holds a single class")
    seeds, every = range(FIRST_SEED, FIRST_SEED + given.seeds), {}
    for name in given.objectives:
        found: dict[float, np.ndarray] = {}
        for value, make in settings(name, tuple(given.hidden), given.lambdas):
            found[value] = np.array([measure(make, seed) for seed in seeds])
            print(name, value, found[value].mean(0), file=sys.stderr, flush=True)
        every[name] = {f"{value:g}": losses.tolist() for value, losses in found.items()}
        if not given.json:
            print_settings(name, given.hidden, found)
    if given.json:
        print(json.dumps(every))


if __name__ == "__main__":
    main()
