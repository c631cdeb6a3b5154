"""λ for the coloured digits, the same grid offered to all: on draws that no table shows.

    python studies/coloured_lambda.py [--dataset hcmnist-cs] [--first 0] [--draws 10]

Every line is the preset `coloured` with a λ: accuracies in the training environments and the test
at the last step and under the guarded oracle, mean over draws of everything (± standard error of
the test and its worst draw), and last the accuracy with unrelated colours.
"VREx relative" is WRI with uniform weights: all of its repairs but the weights.
"""

import argparse
from dataclasses import replace

from wri.objectives import make_objective
from wri.paper.experiments.ablation import BASE
from wri.paper.experiments.coloured import (
    TEST,
    SelectedRuns,
    Variant,
    as_outcome,
    choose_each,
    load_features,
    make_extractor,
    train_variants,
)
from wri.paper.result import ResultCell
from wri.progress import silent
from wri.training import ModelSpec

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
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    extractor = make_extractor("cnn")
    variants = {"ERM": Variant(ModelSpec.of(OBJECTIVES["ERM"], preset="coloured"))}
    for name, objective in OBJECTIVES.items():
        for weight in LAMBDAS if name != "ERM" else ():
            hyper = {"penalty_weight": weight}
            spec = ModelSpec.of(objective, preset="coloured", hyper=hyper)
            variants[f"{name}, λ = {weight:g}"] = Variant(spec)
    infos, outcomes = {}, []
    for draw in range(given.first, given.first + given.draws):
        data = load_features(given.dataset, True, extractor, silent, draw)
        infos[draw] = data.info
        records = train_variants({None: data}, variants, draw, silent)
        outcomes += [as_outcome(name, data.name, draw, record) for name, record in records.items()]
    for name in variants:
        shown = []
        for selection in ("oracle", "guarded-oracle"):
            chosen = choose_each(selection, outcomes, infos, name)
            shown.append(as_text(chosen))
        print(f"{name:28s} last {shown[0]}   guarded {shown[1]}")


def as_text(chosen: SelectedRuns) -> str:
    if not len(chosen.accuracy):
        return "nothing admissible"
    means, test = chosen.accuracy.mean(0), ResultCell.of("", "", chosen.accuracy[:, TEST])
    worst = chosen.accuracy[:, TEST].min()
    return (
        f"{means[0]:5.1f} {means[1]:5.1f} {test.ours:5.1f} ± {test.spread or 0.0:3.1f} "
        f"({worst:4.1f}) {chosen.unrelated.mean():5.1f}"
    )


if __name__ == "__main__":
    main()
