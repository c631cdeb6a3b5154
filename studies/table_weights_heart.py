"""Weights for tables on heart disease: each hospital held out in turn, log-loss of its patients.

    WRI_DATA=… python studies/table_weights_heart.py [--seeds 5]

The densities of `table_weights.py`, linear predictors of the preset `table`. Seeds count from 1000
on and draw 80 % of every training hospital's patients, as in `wri.paper.experiments.heart`. Printed
are the log-losses by hospital, mean ± standard error over seeds, and the mean of the four minus
that of the first line with the same λ, paired by seed.
"""

import argparse

import numpy as np

from table_weights import DENSITIES, FIRST_SEED, shown
from wri.datasets import load_heart
from wri.paper.experiments.heart import split
from wri.stacked import LOGISTIC
from wri.training import Bank, ModelSpec, Run, train

NEW = "new"


def make_runs(name: str, penalty_weight: float, seeds: range) -> list[Run]:
    """A run for every seed and hospital."""
    table, runs = load_heart(), []
    spec = ModelSpec.of(
        "wri",
        preset="table",
        hyper={"penalty_weight": penalty_weight},
        options={"density": DENSITIES[name]},
    )
    for seed in seeds:
        for hospital in table["hospital"].unique():
            known, new = split(table, hospital, seed)
            x, y = (np.concatenate([getattr(known, k), getattr(new, k)]) for k in ("x", "y"))
            train_rows = [np.flatnonzero(known.site == site) for site in np.unique(known.site)]
            tested = {NEW: np.arange(len(known.y), len(y))}
            bank = Bank(x, y, loss=LOGISTIC)
            runs.append(Run(spec, bank, train_rows, seed=seed, evaluate=tested))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--lambdas", type=float, nargs="*", default=[3.0, 10.0])
    parser.add_argument("--lines", nargs="*", default=[""], help="beginnings of lines")
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    hospitals = load_heart()["hospital"].unique().tolist()
    print("*Heart disease: log-loss at the hospital left out, mean ± standard error over ", end="")
    print(f"seeds {seeds[0]} to {seeds[-1]}*\n")
    print(f"| density | λ | {' | '.join(hospitals)} | mean of four | minus the first |")
    print("|---" * (len(hospitals) + 4) + "|")
    for weight in given.lambdas:
        first: np.ndarray | None = None
        for name in (name for name in DENSITIES if name.startswith(tuple(given.lines))):
            runs = make_runs(name, weight, seeds)
            records = train(runs, checkpoint_every=10_000, measures=("loss",), side_by_side=False)
            found = np.array([record.measures["loss"][NEW][-1] for record in records])
            found = found.reshape(len(seeds), len(hospitals))
            first = found if first is None else first
            cells = [shown(own, 3) for own in (*found.T, found.mean(1), (found - first).mean(1))]
            print(f"| {name} | {weight:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
