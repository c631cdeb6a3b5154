"""λ for the coloured digits, the same grid offered to all: on draws that no table shows.

    python benchmarks/coloured_lambda.py [--dataset hcmnist-cs] [--features cnn] [--width 32]

Every line is the preset `coloured` with a λ: accuracies at the last step and under the guarded
oracle, mean over draws 100 to 104 of everything, and last the accuracy with unrelated colours.
"VREx relative" is WRI with uniform weights: all of its repairs but the weights.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from wri.experiments.ablation import BASE
from wri.experiments.coloured import TEST, choose_extractor, load_features
from wri.experiments.coloured_runs import Variant, as_outcome, train_variants
from wri.experiments.coloured_tables import choose_each
from wri.experiments.task import Task
from wri.objectives import make_objective
from wri.progress import silent
from wri.training import ModelSpec

DRAWS = range(100, 105)
LAMBDAS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 1e4, 1e5)
OBJECTIVES = {
    "ERM": make_objective("erm", "coloured"),
    "IRM": make_objective("irm", "coloured"),
    "VREx": make_objective("vrex", "coloured"),
    "VREx relative": replace(BASE, weighting="uniform"),
    "WRI": BASE,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="hcmnist-cs")
    parser.add_argument("--features", default="cnn")
    parser.add_argument("--width", type=int)
    given = parser.parse_args()
    options = {"features": given.features, "width": given.width}
    task = Task(name="table2", folder=Path(), full=True, options=options)
    variants = {"ERM": Variant(ModelSpec.of(OBJECTIVES["ERM"], preset="coloured"))}
    for name, objective in OBJECTIVES.items():
        for weight in LAMBDAS if name != "ERM" else ():
            hyper = {"penalty_weight": weight}
            spec = ModelSpec.of(objective, preset="coloured", hyper=hyper)
            variants[f"{name}, λ = {weight:g}"] = Variant(spec)
    infos, outcomes = {}, []
    for draw in DRAWS:
        data = load_features(given.dataset, True, choose_extractor(task, "cnn"), silent, draw)
        infos[draw] = data.info
        records = train_variants({None: data}, variants, draw, silent)
        outcomes += [as_outcome(name, data.name, draw, record) for name, record in records.items()]
    for name in variants:
        shown = []
        for selection in ("oracle", "guarded-oracle"):
            chosen = choose_each(selection, outcomes, infos, name)
            means = chosen.accuracy.mean(0) if len(chosen.accuracy) else np.full(3, np.nan)
            spread = chosen.accuracy[:, TEST].std() if len(chosen.accuracy) else np.nan
            unrelated = chosen.unrelated.mean() if len(chosen.unrelated) else np.nan
            shown.append(
                f"{means[0]:5.1f} {means[1]:5.1f} {means[TEST]:5.1f} ± {spread:4.1f} "
                f"{unrelated:5.1f}"
            )
        print(f"{name:28s} last {shown[0]}   guarded {shown[1]}")


if __name__ == "__main__":
    main()
