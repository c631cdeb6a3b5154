"""Shared parts of tables 2, 3 and the ablation: features of coloured digits, runs, lines of tables.

    regret   how far the accuracy is below the ideal digit predictor's, in the worst environment

A repetition is a draw of everything: rows and colours, extractor, split, initial weights. Training
environments are measured on held-back rows (held back from the predictor; extractors have seen
them), the test on all rows but those that choose. `unrelated` is the test environment in random
colours: reading the colour, in either direction, does not help there. `worst draw` is the smallest
test accuracy. A checkpoint is `anti-colour` if it is worse than the constant predictor in a
training environment, which the guarded oracle does not allow, and better in the test: it reads the
colour in the opposite direction and is not invariant. Lines that learned the digit's side show last
how often they predict it in the test environment.

With infinitely many rows and perfect features the minimum is exact. Up to symmetry a row is one of
four kinds per environment and label: an easy or a hard digit, in the colour of its side or not. A
predictor is its logit towards the digit's side in these four cells, f = (easy agree, easy disagree,
hard agree, hard disagree), and minimises

    mean_e R_e + λ · (gap / mean weighted risk)²

under the logistic loss, with normalised weighted risks of the two training environments. Weights
are uniform (VREx), overlap weights of the cells (a classifier on x) or of the digit groups (of what
is invariant). The difference between runs and these numbers is estimation error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize

from wri import sweep
from wri.datasets import Mnist
from wri.errors import InputError
from wri.paper.experiments import ExperimentTask
from wri.paper.features import CNN, PCA, Autoencoder, Extractor, feature_environments
from wri.paper.result import Printed, ResultCell, make_line
from wri.paper.simulations import ColouredDigits, coloured_mnist, digit_shares, ideal_accuracy
from wri.paper.simulations.coloured_mnist import COLOUR_FLIPS, COLOURED_MNIST, is_easy
from wri.progress import Progress
from wri.report.intervals import paired_interval
from wri.report.style import ALGORITHM_NAMES
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
        raise InputError(f"features {kind} are not trained in epochs; remove --epochs")
    return EXTRACTORS[kind](**size)


def choose_extractor(task: ExperimentTask, at_full_size: str) -> Extractor:
    """Make the extractor of the task; by default the given kind, and PCA for a quick run."""
    kind = task.options["features"] or (at_full_size if task.full else "pca")
    return make_extractor(kind, task.options["width"], task.options["epochs"])


def digits(name: str, full: bool, draw: int, mnist: Mnist | None = None) -> list[ColouredDigits]:
    return coloured_mnist(name, draw, mnist, rows=None if full else QUICK_ROWS)


@dataclass(frozen=True, eq=False, kw_only=True)
class ColouredData(sweep.SweepData):
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
    whole = sweep.gather(f"{name}, draw {draw}", made, classes=2)
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
        seed = sweep.seed_hash(chosen.name, "variant", draw)
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


def as_outcome(name: str, dataset: str, draw: int, record: Record) -> sweep.Outcome:
    """Return a record for the selections: a sweep with a single draw of hyper-parameters."""
    return sweep.Outcome(
        dataset=dataset,
        algorithm=name,
        test_envs=(TEST,),
        hparams_seed=0,
        trial_seed=draw,
        steps=record.steps,
        measures=record.measures,
        diverged_at=record.diverged_at,
    )


IDEAL = "ideal digit predictor"
ON_DIGITS = "same network trained on the digit's side"
PROBE = "linear predictor trained on the digit's side"
"""What the features allow: the table's network, or a linear predictor, by ERM on 1[digit < 5]."""

CellWeights = Literal["uniform", "cells", "groups"]
LIMITS: dict[str, tuple[CellWeights, float]] = {
    "infinite rows: ERM": ("uniform", 0.0),
    "infinite rows: weights uniform": ("uniform", 30.0),
    "infinite rows: weights on digit and colour": ("cells", 30.0),
    "infinite rows: weights on the digit": ("groups", 30.0),
}
"""Exact minima by their weights and λ."""

SHORT = {"oracle": "last step", "guarded-oracle": "guarded oracle"}
"""Selections that figures and the ablation show."""

COLUMNS = ("test", "unrelated", "+90%", "+80%", "worst draw", "worst regret", "anti-colour")
COIN = 0.5  # how often a colour that is unrelated to the label flips


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectedRuns:
    """Choice of a selection in each draw of the data."""

    accuracy: np.ndarray  # [draw, environment], %
    unrelated: np.ndarray  # [draw], %
    anti_colour: np.ndarray  # [draw], bool
    side: np.ndarray  # [draw], % of the digits' sides that are right in the test, or empty
    refusals: Sequence[str] = ()  # of draws without a choice; these have no row above


def choose_each(
    selection: str,
    outcomes: Sequence[sweep.Outcome],
    data: Mapping[int, sweep.DatasetInfo],
    algorithm: str,
) -> SelectedRuns:
    """Return the selected checkpoint of each draw of the data; a draw is a trial."""
    found, refusals = [], []
    for draw, info in data.items():
        choice = sweep.choose(
            selection, outcomes, info, algorithm=algorithm, held_out=TEST, trial_seed=draw
        )
        if isinstance(choice, sweep.SelectedCheckpoint):
            found.append((choice, info))
        else:
            refusals.append(choice)
    accuracy = [
        [*(100 * choice.splits[f"env{e}_out"] for e in TRAINING), 100 * choice.score]
        for choice, _ in found
    ]
    return SelectedRuns(
        accuracy=np.array(accuracy).reshape(-1, TEST + 1),
        unrelated=np.array([100 * choice.splits[UNRELATED] for choice, _ in found]),
        anti_colour=np.array([is_anti_colour(choice, info) for choice, info in found], bool),
        side=np.array([100 * choice.splits[SIDE] for choice, _ in found if SIDE in choice.splits]),
        refusals=refusals,
    )


def is_anti_colour(choice: sweep.SelectedCheckpoint, data: sweep.DatasetInfo) -> bool:
    beats = [bool(sweep.beats_constant(choice.splits, e, data)) for e in (*TRAINING, TEST)]
    return beats[TEST] and not all(beats[e] for e in TRAINING)


def regrets(accuracy: np.ndarray, dataset: str) -> np.ndarray:  # [draw, E] -> [draw]
    return (100 * ideal_accuracy(dataset) - accuracy).max(1)


def make_lines(
    name: str, chosen: SelectedRuns, dataset: str, table: str, printed: Mapping[str, Printed] | None
) -> list[ResultCell]:
    """Return one line: accuracies, worst draw, regret, number of anti-colour checkpoints."""
    if not len(chosen.accuracy):
        return []
    test = chosen.accuracy[:, TEST]
    accuracies = (test, chosen.unrelated, *(chosen.accuracy[:, e] for e in TRAINING))
    regret, anti_colour = regrets(chosen.accuracy, dataset), float(chosen.anti_colour.sum())
    values = dict(zip(COLUMNS, (*accuracies, test.min(), regret, anti_colour), strict=True))
    side = {SIDE: chosen.side} if len(chosen.side) else {}
    return make_line(name, values | side, table, printed)


def refused(name: str, chosen: SelectedRuns, where: str) -> list[str]:
    """Return why draws have no checkpoint in a line."""
    of = len(chosen.accuracy) + len(chosen.refusals)
    return [
        f"{where}, {name}: {reason} ({chosen.refusals.count(reason)} of {of} draws)."
        for reason in dict.fromkeys(chosen.refusals)
    ]


def ideal_line(dataset: str, table: str) -> list[ResultCell]:
    ideal = 100 * ideal_accuracy(dataset)
    return _exact_line(IDEAL, ideal, float(ideal[TEST]), dataset, table)


def limit_lines(dataset: str, table: str) -> list[ResultCell]:
    """Return lines of WRI's objective with infinitely many rows and perfect features."""
    rows = []
    for name, (weighting, penalty_weight) in LIMITS.items():
        _, accuracy, unrelated = exact_minimum(dataset, weighting, penalty_weight)
        rows += _exact_line(name, accuracy, unrelated, dataset, table)
    return rows


def _exact_line(
    name: str, accuracy: np.ndarray, unrelated: float, dataset: str, table: str
) -> list[ResultCell]:
    exact = SelectedRuns(
        accuracy=accuracy[None],
        unrelated=np.array([unrelated]),
        anti_colour=np.zeros(1, bool),
        side=np.empty(0),
    )
    return make_lines(name, exact, dataset, table, None)


def against(name: str, found: Mapping[str, SelectedRuns], where: str) -> str:
    """Return paired intervals of the test accuracy, ours minus the others'."""
    ours, parts = found[name], []
    for other, chosen in found.items():
        if other == name:
            continue
        if chosen.refusals or ours.refusals:
            parts.append(f"{other} (a draw has no admissible checkpoint)")
        else:
            differences = [ours.accuracy[:, TEST]], [chosen.accuracy[:, TEST]]
            parts.append(f"{other} {paired_interval(*differences)}")
    return (
        f"{where}: {name} minus {'; '.join(parts)} (test accuracy, mean and paired 95 % interval "
        f"over {len(ours.accuracy)} draws)."
    )


class ExactMinimum(NamedTuple):
    """Exact minimum for infinitely many rows."""

    logits: np.ndarray  # [4]
    accuracy: np.ndarray  # [E], %
    unrelated: float  # %, in the test environment with colours by a coin


def cell_shares(dataset: str, environment: int, flips: float) -> np.ndarray:  # [right, 4]
    """Return how often the label is the digit's side (row 0) or not (row 1) in each cell."""
    easy = is_easy(np.arange(10))
    shares, noise = digit_shares(dataset)[environment], COLOURED_MNIST[dataset].label_noise
    table = []
    for group in (easy, ~easy):
        share, wrong = shares[group].sum(), float(noise[group][0])
        right = [(1 - wrong) * (1 - flips), (1 - wrong) * flips]
        table.append(share * np.array([right, [wrong * flips, wrong * (1 - flips)]]))
    return np.concatenate(table, axis=1)


def exact_minimum(dataset: str, weighting: CellWeights, penalty_weight: float) -> ExactMinimum:
    """Return the predictor for infinitely many rows."""
    flips = list(COLOUR_FLIPS.values())
    tables = [cell_shares(dataset, e, flips[e]) for e in range(len(flips))]
    pair = [tables[e] for e in TRAINING]
    weights = _overlap(pair, weighting)

    def objective(logits: np.ndarray) -> float:
        losses = np.logaddexp(0, np.stack([-logits, logits]))  # [right, 4]
        risk = np.mean([(table * losses).sum() for table in pair])
        first, second = (
            (table * weight * losses).sum() / (table * weight).sum()
            for table, weight in zip(pair, weights, strict=True)
        )
        return float(risk + penalty_weight * ((first - second) / ((first + second) / 2)) ** 2)

    starts = (np.zeros(4), np.ones(4), np.array([3.0, 3.0, 1.0, 1.0]))
    tolerance = {"gtol": 1e-8}
    found = min(
        (minimize(objective, start, method="BFGS", options=tolerance) for start in starts),
        key=lambda each: float(each.fun),
    ).x
    accuracy = np.array([_accuracy(table, found) for table in tables])
    return ExactMinimum(found, accuracy, _accuracy(cell_shares(dataset, TEST, COIN), found))


def _overlap(pair: Sequence[np.ndarray], weighting: CellWeights) -> list[np.ndarray]:  # [4] each
    """Return p_other / (p_0 + p_1) of each cell, or of its group."""
    cells = np.stack([table.sum(0) for table in pair])  # [2, 4]
    if weighting == "uniform":
        return [np.ones(4), np.ones(4)]
    if weighting == "groups":
        cells = cells.reshape(2, 2, 2).sum(-1).repeat(2, axis=1)
    return [cells[1] / cells.sum(0), cells[0] / cells.sum(0)]


def _accuracy(table: np.ndarray, logits: np.ndarray) -> float:  # [right, 4], [4]
    return float(100 * np.where(logits > 0, table[0], table[1]).sum())
