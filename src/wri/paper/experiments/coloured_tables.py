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
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wri.paper.experiments.coloured import SIDE, TEST, TRAINING, UNRELATED
from wri.paper.experiments.coloured_limit import CellWeights, exact_minimum
from wri.paper.result import ResultCell, make_line
from wri.paper.simulations import ideal_accuracy
from wri.report.intervals import paired_interval
from wri.sweep import DatasetInfo, Outcome, SelectedCheckpoint, beats_constant, choose

IDEAL = "ideal digit predictor"
ON_DIGITS = "same network trained on the digit's side"
PROBE = "linear predictor trained on the digit's side"
"""What the features allow: the table's network, or a linear predictor, by ERM on 1[digit < 5]."""

LIMITS: dict[str, tuple[CellWeights, float]] = {
    "infinite rows: ERM": ("uniform", 0.0),
    "infinite rows: weights uniform": ("uniform", 30.0),
    "infinite rows: weights on digit and colour": ("cells", 30.0),
    "infinite rows: weights on the digit": ("groups", 30.0),
}
"""Exact minima by their weights and λ (see `coloured_limit`)."""

SHORT = {"oracle": "last step", "guarded-oracle": "guarded oracle"}
"""Selections that figures and the ablation show."""

COLUMNS = ("test", "unrelated", "+90%", "+80%", "worst draw", "worst regret", "anti-colour")


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectedRuns:
    """Choice of a selection in each draw of the data."""

    accuracy: np.ndarray  # [draw, environment], %
    unrelated: np.ndarray  # [draw], %
    anti_colour: np.ndarray  # [draw], bool
    side: np.ndarray  # [draw], % of the digits' sides that are right in the test, or empty
    refusals: list[str]  # of draws without a choice; these have no row above


def choose_each(
    selection: str,
    outcomes: Sequence[Outcome],
    data: Mapping[int, DatasetInfo],
    algorithm: str,
) -> SelectedRuns:
    """Return the selected checkpoint of each draw of the data; a draw is a trial."""
    choices = [
        choose(selection, outcomes, info, algorithm=algorithm, held_out=TEST, trial_seed=draw)
        for draw, info in data.items()
    ]
    found = [
        (choice, info)
        for choice, info in zip(choices, data.values(), strict=True)
        if isinstance(choice, SelectedCheckpoint)
    ]
    return SelectedRuns(
        accuracy=np.array([_accuracies(choice) for choice, _ in found]).reshape(-1, TEST + 1),
        unrelated=np.array([100 * choice.splits[UNRELATED] for choice, _ in found]),
        anti_colour=np.array([is_anti_colour(choice, info) for choice, info in found], bool),
        side=np.array([100 * choice.splits[SIDE] for choice, _ in found if SIDE in choice.splits]),
        refusals=[choice for choice in choices if isinstance(choice, str)],
    )


def _accuracies(choice: SelectedCheckpoint) -> list[float]:
    held_back = [100 * choice.splits[f"env{e}_out"] for e in TRAINING]
    return [*held_back, 100 * choice.score]


def is_anti_colour(choice: SelectedCheckpoint, data: DatasetInfo) -> bool:
    beats = [bool(beats_constant(choice.splits, e, data)) for e in (*TRAINING, TEST)]
    return beats[TEST] and not all(beats[e] for e in TRAINING)


def regrets(accuracy: np.ndarray, dataset: str) -> np.ndarray:  # [draw, E] -> [draw]
    return (100 * ideal_accuracy(dataset) - accuracy).max(1)


def lines(
    name: str, chosen: SelectedRuns, dataset: str, paper: tuple[float, float] | None, table: str
) -> list[ResultCell]:
    """Return one line: accuracies, worst draw, regret, number of anti-colour checkpoints."""
    if not len(chosen.accuracy):
        return []
    test = chosen.accuracy[:, TEST]
    accuracies = (test, chosen.unrelated, *(chosen.accuracy[:, e] for e in TRAINING))
    regret, anti_colour = regrets(chosen.accuracy, dataset), float(chosen.anti_colour.sum())
    values = dict(zip(COLUMNS, (*accuracies, test.min(), regret, anti_colour), strict=True))
    side = {SIDE: chosen.side} if len(chosen.side) else {}
    return make_line(name, values | side, table, {} if paper is None else {"test": paper})


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
        refusals=[],
    )
    return lines(name, exact, dataset, None, table)


def against(name: str, ours: SelectedRuns, others: dict[str, SelectedRuns], where: str) -> str:
    """Return paired intervals of the test accuracy, ours minus the others'."""
    parts = []
    for other, chosen in others.items():
        if chosen.refusals or ours.refusals:
            parts.append(f"{other} (a draw has no admissible checkpoint)")
        else:
            differences = [ours.accuracy[:, TEST]], [chosen.accuracy[:, TEST]]
            parts.append(f"{other} {paired_interval(*differences)}")
    return (
        f"{where}: {name} minus {'; '.join(parts)} (test accuracy, mean and paired 95 % interval "
        f"over {len(ours.accuracy)} draws)."
    )
