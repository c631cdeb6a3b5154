"""Rows held out of an environment, drawn by their contents.

Which rows are held out must not depend on the order of rows, columns and environments, on names, on
units or on other environments. So each row gets a number from its contents among the rows of its
environment, and these are drawn in the order of their numbers:

    signature of a column = Σ over distinct pairs (value, target) of hash(rank of value, of target)
    number of a row       = Σ over columns of hash(rank of value, signature) + hash(rank of target)

Ranks do not depend on units, and sums not on the order of what is added. In tables of more than
`RANKED` rows the values themselves take the place of ranks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wri.rows import scramble
from wri.training.runs import FEWEST_ROWS

FEWEST_SPLIT = 25  # rows of an environment from which some are held out
FEWEST_HELD = 5  # smallest number of rows to hold out
MOST_LIGHT = 1.5  # most held-out rows, as a multiple of the share, if they weigh little
RANKED = 5_000


class RowSplit(NamedTuple):
    """Row numbers of each environment: fitted and held out."""

    fitted: list[np.ndarray]  # training rows
    held_out: list[np.ndarray]  # other rows; empty if an environment is small

    @property
    def calibrating(self) -> list[np.ndarray]:
        """Rows that set thresholds: the held-out rows, or the fitted ones if none were held out."""
        pairs = zip(self.held_out, self.fitted, strict=True)
        return [held if len(held) else fitted for held, fitted in pairs]

    @property
    def every(self) -> list[np.ndarray]:
        """All rows of each environment."""
        pairs = zip(self.fitted, self.held_out, strict=True)
        return [np.sort(np.concatenate(both)) for both in pairs]


def hold_out(
    environments: Sequence[np.ndarray],
    columns: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    share: float,
    seed: int,
) -> RowSplit:
    """Hold out a random share of the rows of each environment.

    Rows with the same contents stay together, so that a repeated row is in one part only and counts
    like one row with weight 2.
    """
    held = np.zeros(len(targets), bool)
    for rows in environments:
        numbers = hash_rows(columns[rows], targets[rows], seed)
        distinct, lots = np.unique(numbers, return_inverse=True)
        n = len(distinct)
        weight = np.bincount(lots, None if weights is None else weights[rows])
        middle = (weight.cumsum() - weight / 2) / weight.sum()
        # neither a few heavy rows nor many light ones
        chosen = (middle < share) & (np.arange(n) < min(share * n * MOST_LIGHT, n - FEWEST_ROWS))
        if n >= FEWEST_SPLIT and chosen.sum() >= FEWEST_HELD:
            held[rows] = chosen[lots]
    return RowSplit(
        [rows[~held[rows]] for rows in environments], [r[held[r]] for r in environments]
    )


def hash_rows(columns: np.ndarray, targets: np.ndarray, seed: int) -> np.ndarray:  # [n] uint64
    """Return a random number of each row that depends on its contents and the seed only."""
    target = scramble(_codes(targets)[0])
    total = target.copy()
    for column in columns.T:
        ranks, distinct = _codes(column)
        codes = scramble(ranks)
        pairs = codes * np.uint64(3) + target
        if distinct < len(pairs):  # a row that is repeated counts once
            pairs.sort()
            pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])]
        signature = scramble(pairs).sum(dtype=np.uint64)
        total += scramble(codes ^ signature)
    return scramble(total + np.uint64(seed % 2**63))


def _codes(values: np.ndarray) -> tuple[np.ndarray, int]:  # [n] -> [n] uint64
    """Return a number per value, and of how many distinct values, if that was counted."""
    if len(values) > RANKED:
        return (np.asarray(values, np.float64) + 0.0).view(np.uint64), 0  # −0.0 becomes 0.0
    order = values.argsort()
    new = np.diff(values[order], prepend=values[order[:1]]) != 0
    ranks = np.empty(len(values), np.uint64)
    ranks[order] = new.cumsum()
    return ranks, int(np.count_nonzero(new)) + 1
