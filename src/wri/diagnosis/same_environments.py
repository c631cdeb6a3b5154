"""Permutation test of whether environments are identical, by means of smooth terms.

    S = Σ_e n_e |φ̄_e − φ̄|²,   φ: terms of the columns, uncorrelated (`environment_odds`)

S of the first-order terms (normal scores of the columns) and S of all terms are each compared with
their values under permutations, and the smaller P-value of the two with those of the permutations.
Cells change their environment as a whole. Between identical environments all orders are equally
likely, so the level is exact for any distribution, size and dependence within blocks. Cells of a
block that lies in several environments are permuted only among themselves.
"""

import numpy as np
from scipy.sparse import csr_matrix

from wri.diagnosis.blocks import BlockCells
from wri.diagnosis.environment_odds import SmoothTerms

_CHUNK = 2_000_000  # largest number of permuted cells held in memory at once


def identical_p(
    x: np.ndarray, cells: BlockCells, permutations: int, random: np.random.Generator
) -> float:
    """Return the P-value of identical environments."""
    terms = SmoothTerms(x, random)
    sums = _cell_sums(x, terms, cells)  # [m, 1 + q]
    first = _cell_sums(x, SmoothTerms(x, random, order=1), cells)
    sums = np.concatenate([sums, first[:, 1:]], 1)
    edge = 1 + terms.width
    crossing = np.bincount(cells.block)[cells.block] > 1
    stratum = np.where(crossing, cells.block + 1, 0)
    starts = np.searchsorted(cells.environment, np.arange(cells.environment[-1] + 1))
    found = [_spread(sums, np.arange(len(sums))[None], starts, edge)]
    step = max(1, _CHUNK // len(sums))
    for start in range(0, permutations, step):
        orders = _permuted(stratum, min(step, permutations - start), random)
        found.append(_spread(sums, orders, starts, edge))
    return _smaller_p(np.concatenate(found))


def _permuted(
    stratum: np.ndarray, times: int, random: np.random.Generator
) -> np.ndarray:  # [m] -> [times, m]
    """Return random orders of the cells, permuted within strata."""
    if not stratum.any():
        return np.stack([random.permutation(len(stratum)) for _ in range(times)])
    orders, places = np.empty((times, len(stratum)), int), np.argsort(stratum, kind="stable")
    for order in orders:
        order[places] = np.lexsort([random.random(len(places)), stratum])
    return orders


def _smaller_p(values: np.ndarray) -> float:  # [1 + R, 2]
    """Return the P-value of the first row among all, by the smaller of its two P-values.

    Values that differ by rounding only count as equal.
    """
    values = np.where(values > 0, np.round(np.log(np.maximum(values, 1e-300)), 9), -np.inf)
    ranks = np.stack([(own[:, None] <= own).sum(1) for own in values.T])  # [2, 1 + R]
    smaller = ranks.min(0)
    return float((smaller <= smaller[0]).mean())


def _cell_sums(x: np.ndarray, terms: SmoothTerms, cells: BlockCells) -> np.ndarray:
    """Return the number of rows and the sums of terms per cell, computed in chunks of rows."""
    total = np.zeros((len(cells.block), 1 + terms.width))
    for start in range(0, len(x), 50_000):
        own = cells.of_row[start : start + 50_000]
        values = terms.apply(x[start : start + 50_000])
        order = np.argsort(own, kind="stable")
        present, starts = np.unique(own[order], return_index=True)
        values = np.concatenate([np.ones((len(own), 1)), values], 1)[order]
        total[present] += np.add.reduceat(values, starts, 0)
    return total


def _spread(
    sums: np.ndarray, orders: np.ndarray, starts: np.ndarray, edge: int
) -> np.ndarray:  # [R, m] -> [R, 2]
    """Return S of all terms and of first-order terms; environments begin at `starts`."""
    draws, cells = orders.shape
    ends = np.append((cells * np.arange(draws)[:, None] + starts).ravel(), orders.size)
    members = csr_matrix((np.ones(orders.size), orders.ravel(), ends), (len(ends) - 1, cells))
    each = (members @ sums).reshape(draws, len(starts), -1)  # [R, E, 1 + q]
    rows, total = each[:, :, :1], sums.sum(0)
    distance = each[:, :, 1:] / rows - total[1:] / total[0]
    squares = (rows * np.square(distance)).sum(1)  # [R, q]
    return np.stack([squares[:, : edge - 1].sum(1), squares[:, edge - 1 :].sum(1)], 1)
