"""The ablation: table 2's WRI of preset `coloured`, with one thing changed at a time.

Every line is trained with its preset's defaults on the same trials, so nothing is chosen among
draws. Beside the accuracies at the last step stands what the line's penalty says of two ideal
predictors under the logistic loss, on all training rows and with the weights as they are at the
end of training:

    digit     p(y | digit), the label noise known: the penalty should be zero
    colour    p(y | colour) of the two training environments together: it should not

Weights on all of x are not covered by the paper's Proposition 1; these columns show how much the
digit predictor is blamed for it. The lines `paper` and `published` are the paper's objective as
printed and as its code ran it, with its own defaults, on the same features and on the paper's.
A quick look has HCMNIST-CS only and no lines with other features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import cast

import numpy as np
import torch

from wri.datasets import COLOURED_MNIST, ColouredDigits
from wri.densities import Bounded, EnvironmentClassifier, FittedClassifier, Mixture
from wri.experiments.coloured import (
    EXTRACTORS,
    NAMES,
    TRAINING,
    UNEQUAL,
    WIDTHS,
    choose_extractor,
    digits,
    load_features,
)
from wri.experiments.coloured_runs import Variant, as_outcome, train_variants
from wri.experiments.coloured_tables import SHORT, choose_each, ideal_line, lines, refused
from wri.experiments.task import Task
from wri.features import Extractor
from wri.objectives import make_objective
from wri.objectives.hyperparameters import complete
from wri.objectives.weighted_risks import wri_penalty
from wri.objectives.wri import WRI
from wri.progress import Progress, part
from wri.report.result import Result, Row
from wri.sweep import Data
from wri.training import ModelSpec, Record

FULL_STEPS, QUICK_STEPS = 500, 200
FULL_TRIALS, QUICK_TRIALS = 5, 2
UNIT = 1e-3  # of the ideal predictors' penalties
BASE = cast(WRI, make_objective("wri", "coloured"))


def _variant(
    objective: WRI | None = None,
    preset: str = "coloured",
    features: str | None = None,
    **hyper: float,
) -> Variant:
    """WRI with one thing changed: an option, a hyper-parameter, the preset or the features."""
    chosen = objective or make_objective("wri", preset)
    return Variant(ModelSpec.of(chosen, preset=preset, hyper=hyper), features)


VARIANTS = {
    "wri": _variant(),
    "weights: uniform": _variant(replace(BASE, weighting="uniform")),
    "weights: tilted, two for a pair": _variant(replace(BASE, weighting="tilted")),
    "weights: classifier hardly regularised": _variant(replace(BASE, density=FittedClassifier())),
    "weights: classifier trained along": _variant(replace(BASE, density=EnvironmentClassifier())),
    "weights: classifier on Φ": _variant(
        replace(BASE, density=EnvironmentClassifier(), density_on="phi")
    ),
    "weights: classifier on the outputs": _variant(
        replace(BASE, density=EnvironmentClassifier(), density_on="outputs")
    ),
    "weights: overlap of mixtures": _variant(replace(BASE, density=Mixture(10))),
    "weights: overlap of bounded networks": _variant(replace(BASE, density=Bounded())),
    "weights: densities of bounded networks": _variant(
        replace(BASE, density=Bounded(), weighting="density")
    ),
    "penalty: not normalised": _variant(replace(BASE, normalised=False, scaling="relative")),
    "penalty: square of the batch's gap": _variant(replace(BASE, form="square")),
    "penalty: loss not divided by λ": _variant(replace(BASE, divided=False)),
    "penalty: switched on, not ramped": _variant(ramp_steps=0),
    "penalty: ramped from the first step": _variant(anneal_steps=0),
    "steps: learning rate not decayed": _variant(final_rate=1.0),
    "steps: batches of 256": _variant(batch_size=256),
    "steps: batches of 8192": _variant(batch_size=8192),
    "features: autoencoder": _variant(features="ae"),
    "features: PCA": _variant(features="pca"),
    "paper": _variant(preset="cmnist"),
    "published": _variant(preset="published"),
    "paper, autoencoder": _variant(preset="cmnist", features="ae"),
    "published, autoencoder": _variant(preset="published", features="ae"),
}


def run(task: Task) -> list[Result]:
    start = perf_counter()
    count, steps = (FULL_TRIALS, FULL_STEPS) if task.full else (QUICK_TRIALS, QUICK_STEPS)
    trials = range(task.seed, task.seed + count)
    own = choose_extractor(task, "cnn")
    shown = {
        name: Variant(replace(variant.spec, steps=steps), variant.features)
        for name, variant in VARIANTS.items()
        if task.full or variant.features is None
    }
    datasets = UNEQUAL if task.full else UNEQUAL[-1:]
    rows: list[Row] = []
    said: list[str] = []
    for n, dataset in enumerate(datasets):
        progress = part(task.progress, n, len(datasets))
        made, refusals = table(dataset, shown, own, trials, task.full, progress)
        rows += made
        said += refusals
    notes = [
        f"{steps} steps, trials {trials[0]} to {trials[-1]}; features unless named: {own!r}.",
        "penalty of digit, penalty of colour: of ideal predictors, in units of 1e-3, each line in "
        "its own scaling; their ratio is what can be compared.",
        *said,
    ]
    if len(shown) < len(VARIANTS):
        left_out = ", ".join(name for name in VARIANTS if name not in shown)
        notes.append(f"Only with --full: HCMNIST, and the lines {left_out}.")
    return [
        Result(
            experiment=task.name,
            rows=rows,
            figures=[],
            seconds=perf_counter() - start,
            notes=notes,
            repetitions="trials",
        )
    ]


def table(
    dataset: str,
    variants: Mapping[str, Variant],
    own: Extractor,
    trials: Sequence[int],
    full: bool,
    progress: Progress,
) -> tuple[list[Row], list[str]]:
    """All lines of one data set, trained at once, and which trials they lack."""
    kinds = {variant.features for variant in variants.values()}
    data = {
        kind: load_features(
            dataset,
            full,
            own if kind is None else EXTRACTORS[kind](width=WIDTHS[kind]),
            part(progress, 0, 2),
        )
        for kind in kinds
    }
    records = train_variants(data, variants, trials, part(progress, 1, 2))
    ideal = IdealLosses(digits(dataset, full), dataset)
    rows: list[Row] = []
    notes: list[str] = []
    for selection, title in SHORT.items():
        label = f"{NAMES[dataset]}, {title}"
        rows += ideal_line(dataset, label)
        for name, variant in variants.items():
            info = data[variant.features].info
            outcomes = [
                as_outcome(name, dataset, trial, record)
                for trial, record in zip(trials, records[name], strict=True)
            ]
            chosen = choose_each(selection, outcomes, info, name, trials)
            rows += lines(name, chosen, dataset, None, label)
            notes += refused(name, chosen, label)
            if selection == "oracle":
                rows += ideal.rows(name, variant, data[variant.features], records[name], label)
    return rows, notes


class IdealLosses:
    """Losses of the ideal predictors on the training environments' rows."""

    def __init__(self, environments: Sequence[ColouredDigits], dataset: str) -> None:
        chosen = [environments[e] for e in TRAINING]
        noise = COLOURED_MNIST[dataset].label_noise
        agree = float(np.mean(np.concatenate([e.colour == e.y for e in chosen])))
        self.losses = {
            "digit": [_log_loss((e.digits < 5) == e.y, 1 - noise[e.digits]) for e in chosen],
            "colour": [_log_loss(e.colour == e.y, np.full(len(e), agree)) for e in chosen],
        }

    def rows(
        self, name: str, variant: Variant, data: Data, records: Sequence[Record], table: str
    ) -> list[Row]:
        """What the variant's penalty gives them, with each trial's own weights."""
        return [
            Row.of(
                name,
                f"penalty of {predictor}",
                [penalty(variant, losses, data, record) / UNIT for record in records],
                table=table,
            )
            for predictor, losses in self.losses.items()
        ]


def _log_loss(right: np.ndarray, probability: np.ndarray) -> np.ndarray:
    return -np.log(np.where(right, probability, 1 - probability))


def penalty(variant: Variant, losses: Sequence[np.ndarray], data: Data, record: Record) -> float:
    """Of a predictor with these losses, under the weights that a run ended with."""
    objective = cast(WRI, variant.spec.objective)
    count = min(len(own) for own in losses)  # environments differ by a row
    rows = [data.rows[e][:count] for e in TRAINING]
    x = torch.as_tensor(np.stack([data.bank.features[own] for own in rows]))[None]  # [1, E, B, D]
    flat = torch.as_tensor(record.parameters)[None]
    seen = record.network.views(flat, x).seen(objective.density_on)
    numbers = complete(objective.hyperparameters(), variant.spec.hyper, variant.spec.preset)
    hyper = {key: torch.tensor([value]) for key, value in numbers.items()}
    logs = objective.density.log_density(torch.as_tensor(record.state), seen, len(rows), hyper)
    each = torch.as_tensor(np.stack([own[:count] for own in losses]), dtype=logs.dtype)[None]
    shape = objective.weighting, objective.scaling, None, objective.normalised
    return wri_penalty(each, logs, *shape).item()
