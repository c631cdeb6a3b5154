"""Rules that choose λ without the test environment, on the coloured digits.

    python studies/coloured_selection.py [--dataset hcmnist-cs] [--first 20] [--draws 5]

Every algorithm of preset `coloured` is trained with each λ of its ladder, 0 (ERM) included, on
draws of everything, and judged at its last step. Rules that use training environments only:

    accuracy, held-back rows    best mean accuracy on rows that do not train
    gap, held-back rows         smallest λ with |z| < 2, z = weighted gap / its standard error
    gap, training rows          the same on the rows that train
    accuracy, balanced rows     best accuracy in the worst environment on balanced held-back rows
                                (the selection `invariance`)
    log-loss, balanced rows     the same by log-loss

Beside them the default λ, and the best accuracy in the test environment itself. The gap's weights
are WRI's, for all algorithms. Shown: test accuracy (%), mean ± standard error and worst draw;
accuracy with unrelated colours; how often each λ was chosen.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from coloured_lambda import describe, each_draw, mean_text, print_row, read_options, start_table
from wri.objectives.wri import WRI
from wri.paper.experiments.coloured import (
    ALGORITHMS,
    NAMES,
    TEST,
    TRAINING,
    UNRELATED,
    ColouredData,
    Variant,
    load_features,
    make_extractor,
    train_variants,
)
from wri.progress import silent
from wri.sweep.balance import balanced_splits
from wri.training import ModelSpec, Record

LADDERS = {
    "irm": (0.0, 1e2, 1e3, 1e4, 1e5, 1e6),
    "vrex": (0.0, 10.0, 100.0, 1e3, 1e4, 1e5),
    "wri": (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
}
DEFAULTS = {"irm": 1e5, "vrex": 1e3, "wri": 30.0}


class Judged(NamedTuple):
    """One predictor at its last step."""

    test: float
    unrelated: float
    values: dict[str, float]  # of every rule, more is better
    gaps: dict[str, float]  # |z| on the rows "in" and "out"


def main() -> None:
    given = read_options(__doc__, first=20, draws=5)
    chosen: dict[tuple[str, str], list[tuple[float, Judged]]] = {}
    for draw in each_draw(given):
        data = load_features(given.dataset, True, make_extractor("cnn"), silent, draw)
        judged = judge(data, draw)
        for name, ladder in LADDERS.items():
            own = {
                weight: judged["erm" if weight == 0 else f"{name} {weight}"] for weight in ladder
            }
            for rule, weight in choose(own, DEFAULTS[name]).items():
                chosen.setdefault((name, rule), []).append((weight, own[weight]))
    title = f"{NAMES[given.dataset]}, by rule: {describe(given)}"
    start_table(title, "", "λ is chosen by", "test", "worst draw", "unrelated", "λ: draws")
    for (name, rule), found in chosen.items():
        test, unrelated = ([getattr(each, of) for _, each in found] for of in Judged._fields[:2])
        times = ", ".join(f"{w:,.0f}: {n}" for w, n in sorted(Counter(w for w, _ in found).items()))
        worst = f"{min(test):.1f}"
        print_row(ALGORITHMS[name], rule, mean_text(test), worst, mean_text(unrelated), times)


def judge(data: ColouredData, draw: int) -> dict[str, Judged]:
    """Every predictor of one draw, by algorithm and λ."""
    variants = {"erm": Variant(ModelSpec.of("erm", preset="coloured"))}
    for name, ladder in LADDERS.items():
        for weight in ladder[1:]:
            spec = ModelSpec.of(name, preset="coloured", hyper={"penalty_weight": weight})
            variants[f"{name} {weight}"] = Variant(spec)
    records = train_variants({None: data}, variants, draw, silent)
    splits = data.splits(draw)
    splits |= balanced_splits(data, splits, [TEST])
    like = "wri 30.0"
    weights = {kind: overlap(variants[like], records[like], data, splits, kind) for kind in KINDS}
    return {name: judge_one(record, data, splits, weights) for name, record in records.items()}


KINDS = ("in", "out")


def overlap(
    variant: Variant,
    record: Record,
    data: ColouredData,
    splits: Mapping[str, np.ndarray],
    kind: str,
) -> list[np.ndarray]:
    """WRI's weights on rows of the training environments, each of mean 1."""
    assert isinstance(variant.spec.objective, WRI)
    density, found = variant.spec.objective.density, []
    for e, other in zip(TRAINING, reversed(TRAINING), strict=True):
        x = torch.as_tensor(data.bank.features[splits[f"env{e}_{kind}"]])[None]
        flat = torch.as_tensor(record.state, dtype=x.dtype).reshape(1, -1)
        logs = density.log_density(flat, x, len(TRAINING), {})[0, other]
        weights = logs.exp().double().numpy()
        found.append(weights / weights.mean())
    return found


def judge_one(
    record: Record,
    data: ColouredData,
    splits: Mapping[str, np.ndarray],
    weights: Mapping[str, list[np.ndarray]],
) -> Judged:
    flat = torch.as_tensor(record.parameters, dtype=torch.float64)[None]
    x = torch.as_tensor(data.bank.features, dtype=torch.float64)[None]
    outputs = record.network.outputs(flat, x)[0].log_softmax(-1).numpy()
    y = data.bank.targets.astype(int)
    right, losses = 100 * (outputs.argmax(1) == y), -outputs[np.arange(len(y)), y]

    def mean(values: np.ndarray, kind: str) -> list[float]:
        return [float(values[splits[f"env{e}_{kind}"]].mean()) for e in TRAINING]

    return Judged(
        test=float(right[splits[f"env{TEST}_in"]].mean()),
        unrelated=float(right[splits[UNRELATED]].mean()),
        values={
            "accuracy": float(np.mean(mean(right, "out"))),
            "balanced": min(mean(right, "balanced")),
            "balanced loss": -max(mean(losses, "balanced")),
        },
        gaps={
            kind: abs_z([losses[splits[f"env{e}_{kind}"]] for e in TRAINING], weights[kind])
            for kind in KINDS
        },
    )


def abs_z(losses: list[np.ndarray], weights: list[np.ndarray]) -> float:
    """|gap| of the weighted risks in its standard errors."""
    risks = [float(np.mean(w * own)) for w, own in zip(weights, losses, strict=True)]
    variances = [
        np.var(w * (own - risk)) / len(own)
        for w, own, risk in zip(weights, losses, risks, strict=True)
    ]
    return float(abs(risks[0] - risks[1]) / np.sqrt(sum(variances)))


def choose(judged: Mapping[float, Judged], default: float) -> dict[str, float]:
    """The λ that each rule takes."""
    ladder = list(judged)

    def smallest(kind: str) -> float:
        return next((w for w in ladder if judged[w].gaps[kind] < 2), ladder[-1])

    def best(rule: str) -> float:
        return max(ladder, key=lambda w: judged[w].values[rule])

    return {
        "nothing: the default": default,
        "accuracy, held-back rows": best("accuracy"),
        "gap, held-back rows": smallest("out"),
        "gap, training rows": smallest("in"),
        "accuracy, balanced rows": best("balanced"),
        "log-loss, balanced rows": best("balanced loss"),
        "accuracy, test environment": max(ladder, key=lambda w: judged[w].test),
    }


if __name__ == "__main__":
    main()
