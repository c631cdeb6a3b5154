"""Ablation: WRI of table 2 with the preset `coloured`, with one change at a time.

Each line is trained with its preset's defaults on the same draws of everything (rows and colours,
extractor, split, initial weights), so nothing is chosen. `--seed N` is the number of the first
draw; the settings were chosen on draws 0 to 9. Beside the accuracies at the last step are the
penalties that the line gives two ideal predictors under the logistic loss, on all training rows and
with the weights at the end of training:

    digit     p(y | digit), the label noise known: the penalty should be zero
    colour    p(y | colour) of the two training environments together: it should not

Weights on all of x are not covered by the paper's Proposition 1; these columns show how large a
penalty the digit predictor gets for that reason. The line `weights: true digit group` has the exact
weights of easy and hard digits, which no density on x can have. The lines `paper` and `published`
are the paper's objective as printed and as in its code, with its own defaults, on the same features
(`--features ae` has all lines on the paper's). The first lines show what can be reached: the ideal
digit predictor, the exact minima with infinitely many rows, and the table's network and a linear
one trained by ERM on the digit's side. A quick run has HCMNIST-CS only, and no other features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from wri.densities import Bounded, EnvironmentClassifier, Exact, FittedClassifier, Mixture
from wri.objectives import make_objective
from wri.objectives.hyperparameters import complete
from wri.objectives.weighted_risks import wri_penalty
from wri.objectives.wri import WRI
from wri.paper.experiments import ExperimentTask, coloured
from wri.paper.experiments.coloured import (
    NAMES,
    ON_DIGITS,
    PROBE,
    SHORT,
    TRAINING,
    ColouredData,
    Variant,
    choose_each,
)
from wri.paper.features import Extractor
from wri.paper.result import Result, ResultCell, make_line
from wri.paper.simulations import COLOURED_MNIST, ColouredDigits, digit_shares
from wri.progress import Progress, part
from wri.sweep import DatasetInfo, Outcome, SweepData
from wri.training import ModelSpec, Record

FULL_STEPS, QUICK_STEPS = 500, 200
UNIT = 1e-3  # of the ideal predictors' penalties
GROUP = "group"  # the table's features with a column of the digit group's log-odds
TINY = 1e-6  # unit of that column: the predictor cannot use it
BASE = cast(WRI, make_objective("wri", "coloured"))


def _wri(
    features: str | None = None, hyper: Mapping[str, float] | None = None, **changed: Any
) -> Variant:
    """Return WRI with one change: an option, a hyper-parameter or the features."""
    objective = replace(BASE, **changed)
    return Variant(ModelSpec.of(objective, preset="coloured", hyper=hyper or {}), features)


def _group_log_odds(x: Tensor) -> Tensor:  # [..., D] -> [..., E]
    column = x[..., -1] / TINY
    return torch.stack([column, torch.zeros_like(column)], dim=-1)


_ALONG = EnvironmentClassifier()
VARIANTS = {
    ON_DIGITS: Variant(ModelSpec.of("erm", preset="coloured"), on_digits=True),
    PROBE: Variant(ModelSpec.of("erm", preset="coloured", hidden=()), on_digits=True),
    "wri": _wri(),
    "weights: classifier strongly regularised": _wri(density=FittedClassifier(weight_decay=1e-2)),
    "weights: deeper classifier": _wri(density=FittedClassifier(second_hidden=32, steps=1000)),
    "weights: true digit group": _wri(GROUP, density=Exact(_group_log_odds)),
    "weights: uniform": _wri(weighting="uniform"),
    "weights: tilted, two for a pair": _wri(weighting="tilted"),
    "weights: classifier hardly regularised": _wri(density=FittedClassifier()),
    "weights: classifier trained along": _wri(density=_ALONG),
    "weights: classifier on Φ": _wri(density=_ALONG, density_on="phi"),
    "weights: classifier on the outputs": _wri(density=_ALONG, density_on="outputs"),
    "weights: overlap of mixtures": _wri(density=Mixture(10)),
    "weights: overlap of bounded networks": _wri(density=Bounded()),
    "weights: densities of bounded networks": _wri(density=Bounded(), weighting="density"),
    "penalty: not normalised": _wri(normalised=False, scaling="relative"),
    "penalty: square of the batch's gap": _wri(form="square"),
    "penalty: loss not divided by λ": _wri(divided=False),
    "penalty: switched on, not ramped": _wri(hyper={"ramp_steps": 0}),
    "penalty: ramped from the first step": _wri(hyper={"anneal_steps": 0}),
    "steps: learning rate not decayed": _wri(hyper={"final_rate": 1.0}),
    "steps: batches of 256": _wri(hyper={"batch_size": 256}),
    "steps: batches of 8192": _wri(hyper={"batch_size": 8192}),
    "features: PCA": _wri("pca"),
    "paper": Variant(ModelSpec.of("wri", preset="cmnist")),
    "published": Variant(ModelSpec.of("wri", preset="published")),
}


def run(task: ExperimentTask) -> list[Result]:
    steps, draws = FULL_STEPS if task.full else QUICK_STEPS, task.seeds(10, 2)
    own = coloured.choose_extractor(task, "cnn")
    shown = {
        name: variant._replace(spec=replace(variant.spec, steps=steps))
        for name, variant in VARIANTS.items()
        if task.full or variant.features not in coloured.EXTRACTORS
    }
    datasets = coloured.UNEQUAL if task.full else coloured.UNEQUAL[-1:]
    rows: list[ResultCell] = []
    notes = [
        f"{steps} steps, draws {draws[0]} to {draws[-1]}; features unless named: {own!r}.",
        "The penalties of digit and colour are those of ideal predictors, in units of 1e-3. Each "
        "line has its own scaling, so only their ratio can be compared.",
    ]
    for n, dataset in enumerate(datasets):
        progress = part(task.progress, n, len(datasets))
        made, refusals = table(dataset, shown, own, draws, task.full, progress)
        rows += made
        notes += refusals
    if len(shown) < len(VARIANTS):
        left_out = ", ".join(name for name in VARIANTS if name not in shown)
        notes.append(f"Only with --full: HCMNIST, and the lines {left_out}.")
    return [task.make_result(rows, notes, repetitions="draws")]


def table(
    dataset: str,
    variants: Mapping[str, Variant],
    own: Extractor,
    draws: Sequence[int],
    full: bool,
    progress: Progress,
) -> tuple[list[ResultCell], list[str]]:
    """Return all lines of one data set, and the draws they lack."""
    outcomes: list[Outcome] = []
    infos: dict[str, dict[int, DatasetInfo]] = {name: {} for name in variants}
    penalties: dict[str, dict[str, list[float]]] = {name: {} for name in variants}
    for n, draw in enumerate(draws):
        data, records = train_draw(
            dataset, variants, own, draw, full, part(progress, n, len(draws))
        )
        ideal = ideal_losses(coloured.digits(dataset, full, draw), dataset)
        for name, record in records.items():
            here = data[variants[name].features]
            outcomes.append(coloured.as_outcome(name, here.name, draw, record))
            infos[name][draw] = here.info
            if isinstance(variants[name].spec.objective, WRI):
                for predictor, losses in ideal.items():
                    found = penalty(variants[name], losses, here, record) / UNIT
                    penalties[name].setdefault(f"penalty of {predictor}", []).append(found)
    rows: list[ResultCell] = []
    notes: list[str] = []
    for selection, title in SHORT.items():
        label = f"{NAMES[dataset]}, {title}"
        rows += coloured.ideal_line(dataset, label)
        if selection == "oracle":
            rows += coloured.limit_lines(dataset, label)
        for name in variants:
            chosen = choose_each(selection, outcomes, infos[name], name)
            rows += coloured.make_lines(name, chosen, dataset, label, None)
            notes += coloured.refused(name, chosen, label)
            if selection == "oracle":
                rows += make_line(name, penalties[name], label)
    return rows, notes


def train_draw(
    dataset: str,
    variants: Mapping[str, Variant],
    own: Extractor,
    draw: int,
    full: bool,
    progress: Progress,
) -> tuple[dict[str | None, ColouredData], dict[str, Record]]:
    """Train one run per line on one draw, all at once; return the features by kind, and records."""
    kinds = {variant.features for variant in variants.values()} - {GROUP}
    data: dict[str | None, ColouredData] = {}
    for n, kind in enumerate(kinds):
        extractor = own if kind is None else coloured.make_extractor(kind)
        loading = part(progress, n, 2 * len(kinds))
        data[kind] = coloured.load_features(dataset, full, extractor, loading, draw)
    data[GROUP] = with_group(data[None], dataset)
    return data, coloured.train_variants(data, variants, draw, part(progress, 1, 2))


def with_group(data: ColouredData, dataset: str) -> ColouredData:
    """Return the features with the exact log-odds of the digit group between environments."""
    first, second = np.log(digit_shares(dataset))[list(TRAINING)]  # [10] each
    column = TINY * (first - second)[data.digits]
    features = np.concatenate([data.bank.features, column[:, None]], axis=1, dtype=np.float32)
    return replace(data, bank=replace(data.bank, features=features))


def ideal_losses(
    environments: Sequence[ColouredDigits], dataset: str
) -> dict[str, list[np.ndarray]]:
    """Return losses of the ideal predictors on the rows of each training environment."""
    chosen = [environments[e] for e in TRAINING]
    noise = COLOURED_MNIST[dataset].label_noise
    agree = float(np.mean(np.concatenate([e.colour == e.y for e in chosen])))
    return {
        "digit": [_log_loss((e.digits < 5) == e.y, 1 - noise[e.digits]) for e in chosen],
        "colour": [_log_loss(e.colour == e.y, np.full(len(e), agree)) for e in chosen],
    }


def _log_loss(right: np.ndarray, probability: np.ndarray) -> np.ndarray:
    return -np.log(np.where(right, probability, 1 - probability))


def penalty(
    variant: Variant, losses: Sequence[np.ndarray], data: SweepData, record: Record
) -> float:
    """Return the penalty of a predictor with these losses, with the weights at the end of a run."""
    objective = cast(WRI, variant.spec.objective)
    count = min(len(own) for own in losses)  # environments differ by a row
    rows = [data.rows[e][:count] for e in TRAINING]
    x = torch.as_tensor(np.stack([data.bank.features[own] for own in rows]))[None]  # [1, E, B, D]
    flat = torch.as_tensor(record.parameters)[None]
    seen = record.network.views(flat, x).view(objective.density_on)
    numbers = complete(objective.hyperparameters(), variant.spec.hyper, variant.spec.preset)
    hyper = {key: torch.tensor([value]) for key, value in numbers.items()}
    logs = objective.density.log_density(torch.as_tensor(record.state), seen, len(rows), hyper)
    each = torch.as_tensor(np.stack([own[:count] for own in losses]), dtype=logs.dtype)[None]
    shape = objective.weighting, objective.scaling, None, objective.normalised
    return wri_penalty(each, logs, *shape).item()
