"""Pairs of environments that are compared: all pairs, or E pairs in a circle.

Densities that are fitted once and see x do not change while the predictor trains: they are computed
once per training row and looked up (`PrecomputedDensities`).
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.objectives.base import Draws
from wri.objectives.weighted_risks import PairSums, pair_penalty
from wri.stacked.linear import Sums

MOST = 2**24  # largest number of entries of a table


def circle(order: Tensor) -> Tensor:  # [R, E] -> [R, E]
    """Return for each environment the next one in the circle `order`."""
    return torch.empty_like(order).scatter_(-1, order, order.roll(-1, -1))


def take_environments(values: Tensor, which: Tensor) -> Tensor:  # [R, E, ...], [R, ...]
    """Return the environments `which` of each run, in the shape of `which`."""
    runs = torch.arange(len(which), device=which.device)
    return values[runs.view(-1, *[1] * (which.dim() - 1)), which]


class ComparedPairs(NamedTuple):
    """Log densities of all environments, or of a circle of pairs, at each other's rows."""

    log_densities: Tensor  # [R, E, E, B] or [R, P, 2, 2, B]: whose density, whose rows
    own: Tensor  # [R, E, B], log d_e on e's own rows
    partner: Tensor | None  # [R, P]: the second environment of each pair

    def pair(self, values: Tensor) -> Tensor:  # [R, E, B] -> [R, E, B] or [R, P, 2, B]
        if self.partner is None:
            return values
        return torch.stack([values, take_environments(values, self.partner)], dim=2)


def compare(
    density: Density, flat: Tensor, seen: Tensor, after: Tensor | None, hyper: HyperValues
) -> ComparedPairs:
    """Return the densities at the rows `[R, E, B, D]` of all, or of the neighbours in a circle."""
    if after is None:
        return arrange(density.log_density(flat, seen, seen.shape[1], hyper), None)
    return arrange(density.log_density_own(flat, rows_around(seen, after), hyper), after)


def rows_around(seen: Tensor, after: Tensor) -> Tensor:  # [R, E, B, …] -> [R, E, 3, B, …]
    """Return each environment's rows and those of the one before and the one after."""
    own = torch.arange(seen.shape[1], device=after.device).expand_as(after)
    return take_environments(seen, torch.stack([own, after.argsort(-1), after], -1))


def arrange(logs: Tensor, after: Tensor | None) -> ComparedPairs:
    """Arrange log densities at all rows, `[R, E, E, B]`, or at the rows around each."""
    if after is None:
        return ComparedPairs(logs, logs.diagonal(dim1=1, dim2=2).movedim(-1, 1), None)
    partners = take_environments(logs, after)  # [R, E, 3, B]
    first = torch.stack([logs[:, :, 0], logs[:, :, 2]], 2)  # e on e, e on its partner
    second = torch.stack([partners[:, :, 1], partners[:, :, 0]], 2)
    return ComparedPairs(torch.stack([first, second], 2), logs[:, :, 0], after)


def mean_over_circle(penalty: Tensor) -> Tensor:  # [R] or [R, P] -> [R]
    return penalty.flatten(1).mean(-1) if penalty.dim() > 1 else penalty


class PrecomputedDensities(NamedTuple):
    """Log densities of all environments at the training rows of a stack's runs."""

    logs: Tensor  # [S, T, E], for each split
    split: Tensor  # [R], number of a run's split

    @classmethod
    def of(
        cls,
        splits: Sequence[Hashable],  # equal for runs with the same training rows
        environments: int,
        draws: Draws,
        log_density: Callable[[int, Tensor], Tensor],  # of a run, [1, N, D] -> [1, E, N]
    ) -> Self | None:
        """Compute the table once per split; return None if it would be too large."""
        one_run = {split: run for run, split in enumerate(splits)}
        longest = max(map(draws.n_learned, one_run.values()))
        if len(one_run) * longest * environments > MOST:
            return None
        tables = []
        for run in one_run.values():
            pieces = [log_density(run, draws.batch(rows).x) for rows in draws.learned([run])]
            logs = torch.cat(pieces, -1)[0].T  # [T, E]
            tables.append(torch.cat([logs, logs.new_zeros(longest - len(logs), environments)]))
        numbers = {split: n for n, split in enumerate(one_run)}
        split = torch.tensor([numbers[each] for each in splits], device=tables[0].device)
        return cls(torch.stack(tables), split)

    def compare(self, indices: Tensor, after: Tensor | None) -> ComparedPairs:
        """Look up rows by their indices `[R, E, B]`, like `pairs.compare`."""
        if after is None:
            found = self.logs[self.split[:, None, None], indices]  # [R, E rows, B, E]
            return arrange(found.movedim(-1, 1), None)
        around = rows_around(indices, after)  # [R, E, 3, B]
        split = self.split.view(-1, 1, 1, 1)
        own = torch.arange(indices.shape[1], device=indices.device).view(1, -1, 1, 1)
        return arrange(self.logs[split, around, own], after)


BLOCK = 16384  # rows whose terms are in memory at a time


def overlap_weights(
    x: np.ndarray, environment: np.ndarray, *, density: Density, fitted: np.ndarray, count: int
) -> np.ndarray:  # [n, D], [n] -> [n, E]
    """Return the overlap weights of rows towards all environments, zero towards their own."""
    flat, every = torch.as_tensor(fitted), np.empty((len(x), count))
    with torch.no_grad():
        for start in range(0, len(x), BLOCK):
            some = torch.as_tensor(x[start : start + BLOCK])[None]
            every[start : start + BLOCK] = density.log_density(flat, some, count, {})[0].numpy().T
    rows = np.arange(len(x))
    weights = expit(every - every[rows, environment][:, None])
    weights[rows, environment] = 0
    return weights


def fixed_weight_penalty(sums: Sums, overlap_power: float) -> tuple[float, Sums]:
    """Return the penalty and its slopes in the solver's sums `[E, 1 + E]`: R_i, then r_ij."""
    assert sums.weights is not None  # tables sum them
    total = sums.weights[:, 1:].T  # [j, i], T
    pairs = PairSums(total, sums.losses[:, 1:].T, sums.losses[:, 0])
    pair_weight = (total + total.T) ** overlap_power  # ρ^k; without overlap there is no gap
    penalty, at = pair_penalty(pairs, "product", normalised=True, pair_weight=pair_weight)
    return float(penalty), Sums(np.column_stack([at.loss, at.risk.T]))
