"""Which λ the tuned lines of tables E.1 to E.3 have, chosen on data that the tables never show.

    python studies/simulation_lambda.py

Three of the tables' settings, data seeds from 1000 on, two trainings on each data set, the same λ
for every objective. Printed is the mean gain in accuracy over ERM at the chosen step, in points;
the λ with the largest mean over the settings is the one to take.
"""

import argparse
from dataclasses import replace

import numpy as np

from wri.paper.experiments.simulation import OBJECTIVES, SERIES, Dataset, chosen_accuracy
from wri.training import ModelSpec, Run, train

SETTINGS = {
    "σ_inv = 0.15": SERIES["tableE1"].at(0.15),
    "σ_inv = 0.3": SERIES["tableE1"].at(0.3),
    "θ = 85": SERIES["tableE3"].at(85.0),
}
OBJECTIVE_OF = {
    "IRM": OBJECTIVES["IRM"][0],
    "VREx": OBJECTIVES["VREx"][0],
    "VREx relative": OBJECTIVES["VREx relative, λ = 30"][0],
    "WRI": OBJECTIVES["WRI"][0],
    "WRI overlap": OBJECTIVES["WRI overlap, λ = 3"][0],
}
LAMBDAS = (1.0, 3.0, 10.0, 30.0, 100.0)
FIRST_SEED, TRAININGS = 1000, 2


def with_objective(run: Run, name: str, penalty_weight: float) -> Run:
    spec = ModelSpec.of(
        OBJECTIVE_OF[name],
        preset=run.spec.preset,
        hidden=run.spec.hidden,
        hyper={"penalty_weight": penalty_weight},
    )
    return replace(run, spec=spec)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=int, default=15, help="data sets of each setting")
    datasets = parser.parse_args().datasets
    data = [
        Dataset(setting, FIRST_SEED + n) for setting in SETTINGS.values() for n in range(datasets)
    ]
    runs = [each.run("ERM", seed) for each in data for seed in range(TRAININGS)]
    cells = [(name, weight) for name in OBJECTIVE_OF for weight in LAMBDAS]
    tried = [with_objective(run, *cell) for cell in cells for run in runs]
    records = train(runs + tried, checkpoint_every=1)
    accuracy = np.array([100 * chosen_accuracy(record) for record in records])
    accuracy = accuracy.reshape(1 + len(cells), len(SETTINGS), datasets, TRAININGS).mean(-1)
    gains = accuracy[1:] - accuracy[0]  # [cell, setting, data set]
    print(f"gain over ERM, mean ± standard error over {datasets} data sets of each setting")
    print(f"{'':22}" + "".join(f"{setting:>18}" for setting in SETTINGS) + f"{'mean':>8}")
    for (name, weight), gain in zip(cells, gains, strict=True):
        error = gain.std(-1, ddof=1) / datasets**0.5
        shown = "".join(f"{m:+12.2f} ±{e:4.2f}" for m, e in zip(gain.mean(-1), error, strict=True))
        print(f"{name:14} λ = {weight:<4g}{shown}{gain.mean():+8.2f}")


if __name__ == "__main__":
    main()
