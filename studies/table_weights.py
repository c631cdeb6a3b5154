"""Weights for tables: densities of WRI on simulated hospitals that no table shows.

    python studies/table_weights.py [--hospitals drawn] [--patients 800] [--noise 1] [--sites 4]

Linear predictors of the preset `table`, which has 800 of 1000 patients to learn from in an
estimator. Those with the preset's own weights are solved; the others are trained in steps. Seeds
count from 1000 on, as in `estimator_defaults.py`. Printed for every density and λ are the
accuracies at the three kinds of hospital and the mean of their log-losses, mean ± standard error
over seeds, and the advantage at the reversed marker over the first line with the same λ.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from wri.datasets.environments import joined
from wri.datasets.hospitals import Hospital, HospitalDraw, drawn_hospitals, hospitals
from wri.densities import Exact, FittedClassifier, LabelAwareClassifier, LabelLogistic
from wri.paper.experiments.hospitals import FIXED
from wri.report.intervals import standard_error
from wri.stacked import LOGISTIC
from wri.training import Bank, ModelSpec, Record, Run, train

FIRST_SEED, TESTED = 1000, 3000
KINDS = ("reversed", "unrelated", "training")
LOGISTIC_FIT = {"hidden": 0, "second_hidden": 0, "learning_rate": 0.03}
DENSITIES = {
    "on x: 50 steps, decay 1e-2": FittedClassifier(steps=50, weight_decay=1e-2),
    "on x: 400 steps, decay 1e-4": FittedClassifier(),
    "label: 64, 32, 1000 steps": LabelAwareClassifier(),
    "label: 32, 16, 100 steps, decay 1e-2": LabelAwareClassifier(
        hidden=32, second_hidden=16, steps=100, weight_decay=1e-2, refit_steps=100
    ),
    "label: logistic, plain": LabelAwareClassifier(
        **LOGISTIC_FIT, steps=100, weight_decay=1e-3, refit_steps=100
    ),
    "label: logistic, plain, decay 3e-2": LabelAwareClassifier(
        **LOGISTIC_FIT, steps=100, weight_decay=3e-2, refit_steps=100
    ),
    "label: logistic, squares": LabelAwareClassifier(
        **LOGISTIC_FIT, terms="squares", steps=100, weight_decay=1e-3, refit_steps=100
    ),
    "label: logistic, products": LabelAwareClassifier(
        **LOGISTIC_FIT, terms="products", steps=100, weight_decay=1e-3, refit_steps=100
    ),
    "label: the preset's own": LabelLogistic(),
}
CAUSE, UNIFORM = "true density of the cause", "uniform"


class Data:
    """Patients of one draw: those to learn from, and others at the three kinds of hospital."""

    def __init__(self, chosen: HospitalDraw, seed: int, patients: int, noise: int) -> None:
        self.chosen, self.seed = chosen, seed
        training = hospitals(patients, seed, chosen.training, noise)
        known = hospitals(TESTED // len(training), 1_000_000 + seed, chosen.training, noise)
        new = hospitals(TESTED, seed, (chosen.reversed_marker, chosen.unrelated_marker), noise)
        x, y, _ = joined([*training, *new, *known])
        self.bank = Bank(x, y, loss=LOGISTIC)
        ends = np.cumsum(
            [patients] * len(training) + [TESTED, TESTED, len(known) * len(known[0].x)]
        )
        parts = np.split(np.arange(len(x)), ends[:-1])
        self.train, self.evaluate = parts[:-3], dict(zip(KINDS, parts[-3:], strict=True))

    def run(self, options: Mapping[str, Any], penalty_weight: float) -> Run:
        spec = ModelSpec.of(
            "wri", preset="table", hyper={"penalty_weight": penalty_weight}, options=options
        )
        return Run(spec, self.bank, self.train, seed=self.seed, evaluate=self.evaluate)

    def cause(self) -> Exact:
        """Log densities of smoking, from the units that a run sees."""
        units = self.run({}, 1.0).units.inputs
        means = torch.tensor([each.smoking for each in self.chosen.training])

        def function(x: torch.Tensor) -> torch.Tensor:  # [..., D] -> [..., E]
            smoking = x[..., :1] * float(units.scale[0]) + float(units.mean[0])
            return -(smoking - means.to(x)).square() / 2

        return Exact(function)


def draw(kind: str, seed: int, sites: int) -> HospitalDraw:
    """Fixed or drawn hospitals; more than four training ones come from further draws."""
    if kind == "fixed":
        return FIXED
    first = drawn_hospitals(seed)
    training: list[Hospital] = []
    for k in range(-(-sites // len(first.training))):
        more = drawn_hospitals(seed + 10_000 * k).training
        training += [replace(each, name=f"{each.name}, draw {k}") for each in more]
    return first._replace(training=tuple(training[:sites]))


def measured(record: Record) -> list[float]:
    """Accuracies in per cent by kind, and the mean log-loss over kinds."""
    accuracy, loss = record.measures["accuracy"], record.measures["loss"]
    return [
        *(100 * accuracy[kind][-1] for kind in KINDS),
        float(np.mean([loss[kind][-1] for kind in KINDS])),
    ]


def trained(name: str, data: list[Data], lambdas: list[float]) -> np.ndarray:  # [λ, seeds, 4]
    """One line of the table for all λ."""
    if name == CAUSE:
        options = [{"density": each.cause()} for each in data]
    elif name == UNIFORM:
        options = [{"weighting": "uniform"} for _ in data]
    else:
        options = [{"density": DENSITIES[name]} for _ in data]
    runs = [
        each.run(own, weight) for weight in lambdas for each, own in zip(data, options, strict=True)
    ]
    records = train(
        runs, checkpoint_every=10_000, measures=("accuracy", "loss"), side_by_side=False
    )
    return np.array([measured(record) for record in records]).reshape(len(lambdas), len(data), 4)


def shown(values: np.ndarray, digits: int = 1) -> str:
    error = standard_error(values) or 0.0
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hospitals", choices=("drawn", "fixed"), default="drawn")
    parser.add_argument("--patients", type=int, default=800, help="of each training hospital")
    parser.add_argument("--noise", type=int, default=1, help="noise columns")
    parser.add_argument("--sites", type=int, default=4, help="training hospitals, if drawn")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--lambdas", type=float, nargs="*", default=[3.0, 10.0, 30.0, 100.0])
    parser.add_argument("--lines", nargs="*", help="beginnings of lines; all when not given")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    data = [
        Data(draw(given.hospitals, seed, given.sites), seed, given.patients, given.noise)
        for seed in seeds
    ]
    lines = [
        name
        for name in (*DENSITIES, UNIFORM, CAUSE)
        if given.lines is None or name.startswith(tuple(given.lines))
    ]
    where = f"{given.sites} {given.hospitals} hospitals × {given.patients} patients"
    noise = f"{given.noise} noise column{'s' * (given.noise > 1)}"
    print(f"*{where}, {noise}: accuracy in %, mean ± standard error over ", end="")
    print(f"seeds {seeds[0]} to {seeds[-1]}*\n")
    print(f"| density | λ | {' | '.join(KINDS)} | log-loss | reversed, gain | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    first: np.ndarray | None = None
    for name in lines:
        start = perf_counter()
        found = trained(name, data, given.lambdas)
        seconds = perf_counter() - start
        first = found if first is None else first
        for weight, values, base in zip(given.lambdas, found, first, strict=True):
            cells = [shown(values[:, k]) for k in range(3)] + [shown(values[:, 3], 3)]
            gain = shown((values - base)[:, 0])
            print(f"| {name} | {weight:g} | {' | '.join(cells)} | {gain} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
