"""Lines of a table from runs on coloured digits.

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
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize

from wri.paper.experiments.coloured import SIDE, TEST, TRAINING, UNRELATED
from wri.paper.result import Printed, ResultCell, make_line
from wri.paper.simulations import COLOURED_MNIST, digit_shares, ideal_accuracy
from wri.paper.simulations.coloured_mnist import COLOUR_FLIPS, is_easy
from wri.report.intervals import paired_interval
from wri.sweep import DatasetInfo, Outcome, SelectedCheckpoint, beats_constant, choose

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
    outcomes: Sequence[Outcome],
    data: Mapping[int, DatasetInfo],
    algorithm: str,
) -> SelectedRuns:
    """Return the selected checkpoint of each draw of the data; a draw is a trial."""
    found, refusals = [], []
    for draw, info in data.items():
        choice = choose(
            selection, outcomes, info, algorithm=algorithm, held_out=TEST, trial_seed=draw
        )
        if isinstance(choice, SelectedCheckpoint):
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


def is_anti_colour(choice: SelectedCheckpoint, data: DatasetInfo) -> bool:
    beats = [bool(beats_constant(choice.splits, e, data)) for e in (*TRAINING, TEST)]
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
