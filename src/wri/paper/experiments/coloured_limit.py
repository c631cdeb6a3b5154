"""Coloured digits with infinitely many rows and perfect features: the exact minimum.

Up to symmetry a row is one of four kinds per environment and label: an easy or a hard digit, in the
colour of its side or not. A predictor is its logit towards the digit's side in these four cells,
f = (easy agree, easy disagree, hard agree, hard disagree), and minimises

    mean_e R_e + λ · (gap / mean weighted risk)²

under the logistic loss, with normalised weighted risks of the two training environments. Weights
are uniform (VREx), overlap weights of the cells (a classifier on x) or of the digit groups (of what
is invariant). The difference between runs and these numbers is estimation error.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.optimize import minimize

from wri.errors import check_option
from wri.paper.experiments.coloured import TEST, TRAINING
from wri.paper.simulations import COLOURED_MNIST, digit_shares
from wri.paper.simulations.coloured_mnist import COLOUR_FLIPS, is_easy

CellWeights = Literal["uniform", "cells", "groups"]
COIN = 0.5  # how often a colour that is unrelated to the label flips


class ExactMinimum(NamedTuple):
    """The exact minimum."""

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
    check_option("weighting", weighting, get_args(CellWeights))
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
