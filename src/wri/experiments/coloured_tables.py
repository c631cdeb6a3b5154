"""From the runs on coloured digits to the lines of a table.

    regret   how far the accuracy lies below the ideal digit predictor's, in the worst environment

Training environments are measured on the rows that are held back (from the predictor; extractors
have seen them), the test on all others than those that choose. A checkpoint is `anti-colour` if it
loses to the constant predictor in a training environment, which the guarded oracle does not admit,
and beats it in the test: it reads the colour the wrong way round and is not invariant.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wri.datasets import ideal_accuracy
from wri.experiments.coloured import TEST, TRAINING
from wri.report.intervals import paired_interval
from wri.report.result import Row
from wri.sweep import Choice, DatasetInfo, Outcome, beats_constant, choose

IDEAL = "ideal digit predictor"
SHORT = {"oracle": "last step", "guarded-oracle": "guarded oracle"}
"""Selections that figures and the ablation show."""

COLUMNS = ("test", "+90%", "+80%", "worst regret", "anti-colour")


class Chosen(NamedTuple):
    """What a selection chose in every trial."""

    accuracy: np.ndarray  # [trial, environment], %
    anti_colour: np.ndarray  # [trial], bool
    refusals: list[str]  # of trials without a choice; these have no row above


def choose_each(
    selection: str,
    outcomes: Sequence[Outcome],
    data: DatasetInfo,
    algorithm: str,
    trials: Sequence[int],
) -> Chosen:
    """The checkpoint that counts for each trial."""
    choices = [
        choose(selection, outcomes, data, algorithm=algorithm, held_out=TEST, trial_seed=trial)
        for trial in trials
    ]
    found = [choice for choice in choices if isinstance(choice, Choice)]
    return Chosen(
        np.array([_accuracies(choice) for choice in found]).reshape(-1, TEST + 1),
        np.array([is_anti_colour(choice, data) for choice in found], bool),
        [choice for choice in choices if isinstance(choice, str)],
    )


def _accuracies(choice: Choice) -> list[float]:
    held_back = [100 * choice.splits[f"env{e}_out"] for e in TRAINING]
    return [*held_back, 100 * choice.score]


def is_anti_colour(choice: Choice, data: DatasetInfo) -> bool:
    beats = [bool(beats_constant(choice.splits, e, data)) for e in (*TRAINING, TEST)]
    return beats[TEST] and not all(beats[e] for e in TRAINING)


def regrets(accuracy: np.ndarray, dataset: str) -> np.ndarray:  # [trial, E] -> [trial]
    return (100 * ideal_accuracy(dataset) - accuracy).max(1)


def lines(
    name: str, chosen: Chosen, dataset: str, paper: tuple[float, float] | None, table: str
) -> list[Row]:
    """One line: accuracies, the regret, how many checkpoints are anti-colour."""
    if not len(chosen.accuracy):
        return []
    order = (TEST, *TRAINING)
    printed: dict[str, tuple[float | None, float | None]] = {}
    if paper is not None:
        printed["test"] = paper
    rows = [
        Row.of(name, column, chosen.accuracy[:, e], *printed.get(column, (None, None)), table=table)
        for column, e in zip(COLUMNS, order, strict=False)
    ]
    rows.append(Row.of(name, "worst regret", regrets(chosen.accuracy, dataset), table=table))
    count = float(chosen.anti_colour.sum())
    return [
        *rows,
        Row(algorithm=name, column="anti-colour", ours=count, spread=None, n=1, table=table),
    ]


def refused(name: str, chosen: Chosen, where: str) -> list[str]:
    """Why trials have no checkpoint in a line."""
    of = len(chosen.accuracy) + len(chosen.refusals)
    return [
        f"{where}, {name}: {reason} ({chosen.refusals.count(reason)} of {of} trials)."
        for reason in dict.fromkeys(chosen.refusals)
    ]


def ideal_line(dataset: str, table: str) -> list[Row]:
    ideal = 100 * ideal_accuracy(dataset)
    order = (TEST, *TRAINING)
    values = [*(ideal[e] for e in order), 0.0, 0.0]
    return [
        Row(algorithm=IDEAL, column=column, ours=float(value), spread=None, n=1, table=table)
        for column, value in zip(COLUMNS, values, strict=True)
    ]


def against(name: str, ours: Chosen, others: dict[str, Chosen], where: str) -> str:
    """Paired intervals of the test accuracy, ours minus the others'."""
    parts = []
    for other, chosen in others.items():
        if chosen.refusals or ours.refusals:
            parts.append(f"{other} (a trial has no admissible checkpoint)")
        else:
            differences = [ours.accuracy[:, TEST]], [chosen.accuracy[:, TEST]]
            parts.append(f"{other} {paired_interval(*differences)}")
    return (
        f"{where}: {name} minus {'; '.join(parts)} (test accuracy, mean and paired 95 % interval "
        f"over {len(ours.accuracy)} trials)."
    )
