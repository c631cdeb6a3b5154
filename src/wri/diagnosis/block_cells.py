"""Blocks of dependent rows, such as the weeks of a site or the visits of a patient.

Rows of different blocks are independent, rows of one block need not be. A cell is the part of a
block in one environment; it counts as one observation. Without blocks every row is its own block.
Many blocks are merged at random: sums of independent blocks are independent, and 2,000 of them per
environment estimate a variance to 3 %.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from wri.errors import InputError
from wri.rows import Environments, number_environments

MOST_CELLS = 2000
"""Cells per environment beyond which blocks are merged."""


class BlockCells(NamedTuple):
    """Cells: the parts of the blocks in each environment."""

    of_row: np.ndarray  # [n], each row's cell
    environment: np.ndarray  # [m], each cell's environment, in ascending order
    block: np.ndarray  # [m], each cell's block, from 0 on
    independent: bool  # whether rows of one cell are, too: they were merged at random

    def of_environment(self, e: int) -> np.ndarray:
        """Return the numbers of an environment's cells."""
        return np.flatnonzero(self.environment == e)

    @property
    def counts(self) -> np.ndarray:  # [E]
        return np.bincount(self.environment)

    def take(self, rows: np.ndarray) -> "BlockCells":
        """Return the cells of some rows; blocks keep their numbers."""
        left, of_row = np.unique(self.of_row[rows], return_inverse=True)
        return BlockCells(of_row, self.environment[left], self.block[left], self.independent)

    def sum(self, values: np.ndarray) -> np.ndarray:  # [n, ...] -> [m, ...]
        """Sum values over the rows of each cell."""
        order = np.argsort(self.of_row, kind="stable")
        starts = np.searchsorted(self.of_row[order], np.arange(len(self.block)))
        return np.add.reduceat(values[order], starts, 0)


def number_blocks(blocks: Iterable[Any] | None, n_rows: int) -> np.ndarray | None:  # [n]
    """Return the block number of each row; None if every row is its own block."""
    return None if blocks is None else number_environments(blocks, "blocks", n_rows).number


def make_cells(
    environments: Environments, block: np.ndarray | None, most: int = MOST_CELLS, seed: int = 0
) -> BlockCells:
    """Make the cells of all rows, at most about `most` per environment."""
    random, number = np.random.default_rng(seed), environments.number
    independent = block is None
    if block is None:
        block = np.arange(len(number))
        for rows in environments.rows:
            if len(rows) > most:
                block[rows] = rows[np.arange(len(rows)) % most][random.permutation(len(rows))]
    else:
        pairs = np.unique(np.stack([number, block]), axis=1)
        if np.bincount(pairs[0]).max() > most:
            block = random.integers(most, size=block.max() + 1)[block]
    both = number * (block.max() + 1) + block
    cells, of_row = np.unique(both, return_inverse=True)
    environment, own = np.divmod(cells, block.max() + 1)
    return BlockCells(of_row, environment, np.unique(own, return_inverse=True)[1], independent)


def check_blocks(cells: BlockCells, environments: Environments, fewest: int) -> None:
    """Refuse environments with too few blocks to estimate chance."""
    few = np.flatnonzero(cells.counts < fewest)
    if len(few):
        raise InputError(
            f"environment {environments.labels[few[0]]} has {cells.counts[few[0]]} blocks; "
            f"at least {fewest} are needed to estimate chance: choose smaller blocks, merge "
            "environments or leave this one out"
        )
