"""Shared parts of tables 2, 3 and the ablation: coloured digits as features, and their runs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wri.datasets import Mnist
from wri.errors import InputError
from wri.paper.experiments import ExperimentTask
from wri.paper.features import CNN, PCA, Autoencoder, Extractor, feature_environments
from wri.paper.simulations import ColouredDigits, coloured_mnist
from wri.progress import Progress
from wri.report.style import ALGORITHM_NAMES
from wri.sweep import Outcome, SweepData, gather, seed_hash
from wri.training import Bank, ModelSpec, Record, Run, train

NAMES = {"cmnist": "CMNIST", "hcmnist": "HCMNIST", "hcmnist-cs": "HCMNIST-CS"}
ALGORITHMS = {name: ALGORITHM_NAMES[name] for name in ("erm", "irm", "vrex", "wri")}
PRESETS = {"paper": "cmnist", "published": "published", "coloured": "coloured"}
"""Names of the presets in the tables, and in the objectives."""

UNEQUAL = ("hcmnist", "hcmnist-cs")  # digits of unequal difficulty, without and with shift
TEST = 2  # the environment that is held out
TRAINING = (0, 1)
UNRELATED = "unrelated"
"""Split of the test environment's digits and labels in random colours."""

SIDE = "digit's side"
"""The test environment with 1[digit < 5] as the target, for runs that learn it."""

QUICK_ROWS = 9_000  # of 70,000
EXTRACTORS = {"ae": Autoencoder, "cnn": CNN, "pca": PCA}
WIDTHS = {"ae": 64, "cnn": 32, "pca": 64}
EPOCHS = {"ae": 5, "cnn": 2}
"""The paper's autoencoder has 20, which is too long for ten draws."""


def make_extractor(kind: str, width: int | None = None, epochs: int | None = None) -> Extractor:
    """Make an extractor with the tables' width and epochs unless others are given."""
    size = {"width": width or WIDTHS[kind]}
    if kind in EPOCHS:
        size["epochs"] = epochs or EPOCHS[kind]
    elif epochs is not None:
        raise InputError(f"features {kind} are not fitted in epochs; leave --epochs out")
    return EXTRACTORS[kind](**size)


def choose_extractor(task: ExperimentTask, at_full_size: str) -> Extractor:
    """Make the extractor of the task; by default the given kind, and PCA for a quick run."""
    kind = task.options["features"] or (at_full_size if task.full else "pca")
    return make_extractor(kind, task.options["width"], task.options["epochs"])


def digits(name: str, full: bool, draw: int, mnist: Mnist | None = None) -> list[ColouredDigits]:
    return coloured_mnist(name, draw, mnist, rows=None if full else QUICK_ROWS)


@dataclass(frozen=True, eq=False, kw_only=True)
class ColouredData(SweepData):
    """One draw of a data set of coloured digits, for a sweep.

    After the environments' rows the bank has those of the test environment in colours that are
    unrelated to the label. They are measured and never used for training.
    """

    digits: np.ndarray  # [N], the digit of each row of the bank

    def splits(self, trial_seed: int) -> dict[str, np.ndarray]:
        recoloured = np.arange(sum(self.sizes), len(self.bank.features))
        return super().splits(trial_seed) | {UNRELATED: recoloured}


def load_features(
    name: str,
    full: bool,
    extractor: Extractor,
    progress: Progress,
    draw: int,
    mnist: Mnist | None = None,
) -> ColouredData:
    """Return a data set of a sweep; the extractor has seen the training environments only.

    Draws differ in everything: rows and colours, the extractor's seed, and the name of the data, on
    which the seeds of a sweep's runs depend.
    """
    environments = digits(name, full, draw, mnist)
    shown = [*environments, recoloured(environments[TEST], draw)]
    made = feature_environments(shown, extractor, TRAINING, draw, progress=progress)
    whole = gather(f"{name}, draw {draw}", made, classes=2)
    return ColouredData(
        name=whole.name,
        names=whole.names[:-1],
        bank=whole.bank,
        sizes=whole.sizes[:-1],
        digits=np.concatenate([each.digits for each in shown]),
    )


def recoloured(environment: ColouredDigits, draw: int) -> ColouredDigits:
    """Return the same digits and labels in random colours."""
    random = np.random.default_rng([draw, 1])
    return replace(environment, name=UNRELATED, colour=random.integers(0, 2, len(environment)))


class Variant(NamedTuple):
    """Line of a table: what is trained, and on which features."""

    spec: ModelSpec
    features: str | None = None  # others than the table's
    on_digits: bool = False  # learn the digit's side instead of the label


def train_variants(
    data: Mapping[str | None, ColouredData],
    variants: Mapping[str, Variant],
    draw: int,
    progress: Progress,
) -> dict[str, Record]:
    """Train one run per variant; split, initial weights and batches are the same."""
    kinds = {variant.features for variant in variants.values() if variant.on_digits}
    sides = {kind: with_digit_sides(data[kind]) for kind in kinds}
    runs = []
    for variant in variants.values():
        chosen = data[variant.features]
        splits = chosen.splits(draw)
        train_on = [splits[f"env{e}_in"] for e in TRAINING]
        bank = chosen.bank
        if variant.on_digits:
            count = len(bank.targets)
            bank, train_on = sides[variant.features], [rows + count for rows in train_on]
            splits |= {SIDE: chosen.rows[TEST] + count}
        seed = seed_hash(chosen.name, "variant", draw)
        runs.append(Run(variant.spec, bank, train_on, seed=seed, evaluate=splits))
    return dict(zip(variants, train(runs, progress=progress), strict=True))


def with_digit_sides(data: ColouredData) -> Bank:
    """Return the bank, and all its rows again with the digit's side, 1[digit < 5], as target."""
    bank, sides = data.bank, (data.digits < 5).astype(data.bank.targets.dtype)
    return replace(
        bank,
        features=np.concatenate([bank.features, bank.features]),
        targets=np.concatenate([bank.targets, sides]),
    )


def as_outcome(name: str, dataset: str, draw: int, record: Record) -> Outcome:
    """Return a record for the selections: a sweep with a single draw of hyper-parameters."""
    return Outcome(
        dataset=dataset,
        algorithm=name,
        test_envs=(TEST,),
        hparams_seed=0,
        trial_seed=draw,
        steps=record.steps,
        measures=record.measures,
        diverged_at=record.diverged_at,
    )
