"""Where the estimators' defaults for tables come from: simulated hospitals that no table shows.

    python studies/estimator_defaults.py erm | irm | vrex | wri [--hidden 32 16]

Hospitals are drawn for every seed, from 1000 on (`wri.datasets.hospitals.drawn_hospitals`): four to
train on, a new one whose marker has nothing to do with the diagnosis, and one whose marker points
the other way. Four sizes, with noise columns.
Printed for each setting, size by size: the log-loss for other patients of the training hospitals,
and log-loss and accuracy at the two new ones. The weight decay, in rows, is the one with the least
log-loss of ERM at the training hospitals; with it, each λ is the one with the least log-loss over
the three kinds of hospital and the four sizes, all counted alike.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import wri
from wri.datasets import joined
from wri.datasets.hospitals import drawn_hospitals, hospitals

SIZES = ((150, 12), (500, 1), (500, 12), (1500, 5))  # patients of a hospital, noise columns
FIRST_SEED, TESTED = 1000, 3000
LAMBDAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5)
ROWS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
Make = Callable[[int, int], Any]
"""A classifier from a seed and the number of rows that it learns from."""


def settings(name: str, hidden: tuple[int, ...]) -> Iterator[tuple[str, Make]]:
    if name == "erm":
        for rows in ROWS:
            yield (
                f"decay of {rows:g} rows",
                lambda seed, n, rows=rows: wri.ERMClassifier(
                    random_state=seed, weight_decay=rows / n, hidden=hidden
                ),
            )
        return
    kind = {"irm": wri.IRMClassifier, "vrex": wri.VRExClassifier, "wri": wri.WRIClassifier}[name]
    for weight in LAMBDAS:
        yield (
            f"λ = {weight:g}",
            lambda seed, n, weight=weight: kind(
                random_state=seed, penalty_weight=weight, hidden=hidden
            ),
        )


def losses_and_accuracy(model: Any, x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    probability = model.predict_proba(x)[np.arange(len(y)), y]
    return float(-np.log(probability.clip(1e-9)).mean()), float(model.score(x, y))


def measured(make: Make, seeds: range) -> np.ndarray:  # [sizes, 5]
    """Log-loss at the training hospitals, then log-loss and accuracy at the two new ones."""
    found = []
    for patients, noise in SIZES:
        each = []
        for seed in seeds:
            drawn = drawn_hospitals(seed)
            x, y, site = joined(hospitals(patients, seed, drawn.training, noise))
            model = make(seed, round(0.8 * len(x))).fit(x, y, groups=site)
            others = hospitals(TESTED // 4, 1_000_000 + seed, drawn.training, noise)
            known = np.mean([losses_and_accuracy(model, *site[1:])[0] for site in others])
            new = (drawn.unrelated_marker, drawn.reversed_marker)
            tested = [
                losses_and_accuracy(model, *site[1:])
                for site in hospitals(TESTED, seed, new, noise)
            ]
            each.append([known, *tested[0], *tested[1]])
        found.append(np.mean(each, 0))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objective", choices=("erm", "irm", "vrex", "wri"))
    parser.add_argument("--hidden", type=int, nargs="*", default=[], help="a network's widths")
    parser.add_argument("--seeds", type=int, default=6)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", ".*holds a single class")
    for title, make in settings(given.objective, tuple(given.hidden)):
        found = measured(make, range(FIRST_SEED, FIRST_SEED + given.seeds))
        sizes = " | ".join(
            f"{row[0]:.3f}  {row[1]:.3f} {row[2]:.1%}  {row[3]:.3f} {row[4]:.1%}" for row in found
        )
        known, every = found[:, 0].mean(), found[:, [0, 1, 3]].mean()
        print(f"{title:22} {sizes} | training {known:.3f}, all {every:.3f}", flush=True)


if __name__ == "__main__":
    main()
