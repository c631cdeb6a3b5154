"""Pairs of environments that are compared: all pairs, or E pairs in a circle."""

from typing import NamedTuple

import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues


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
