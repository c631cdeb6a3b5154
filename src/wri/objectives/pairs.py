"""Which environments are compared: all with all, or E pairs in a circle."""

from typing import NamedTuple

import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues


def circle(order: Tensor) -> Tensor:  # [R, E] -> [R, E]
    """For each environment the one that follows it when they stand round in `order`."""
    return torch.empty_like(order).scatter_(-1, order, order.roll(-1, -1))


def take_environments(values: Tensor, which: Tensor) -> Tensor:  # [R, E, ...], [R, ...]
    """Environments `which` of every run, in the shape of `which`."""
    runs = torch.arange(len(which), device=which.device)
    return values[runs.view(-1, *[1] * (which.dim() - 1)), which]


class Compared(NamedTuple):
    """Whose densities meet whose rows: all environments, or a circle of pairs."""

    log_densities: Tensor  # [R, E, E, B] or [R, P, 2, 2, B]: whose density, whose rows
    own: Tensor  # [R, E, B], log d_e on e's own rows
    partner: Tensor | None  # [R, P]: the second environment of each pair

    def pair(self, values: Tensor) -> Tensor:  # [R, E, B] -> [R, E, B] or [R, P, 2, B]
        if self.partner is None:
            return values
        return torch.stack([values, take_environments(values, self.partner)], dim=2)


def compare(
    density: Density, flat: Tensor, seen: Tensor, after: Tensor | None, hyper: HyperValues
) -> Compared:
    """Densities at the rows `[R, E, B, D]` of those they are compared with, `after` in a circle."""
    environments = seen.shape[1]
    if after is None:
        logs = density.log_density(flat, seen, environments, hyper)  # [R, E, E, B]
        return Compared(logs, logs.diagonal(dim1=1, dim2=2).movedim(-1, 1), None)
    before = after.argsort(-1)
    own = torch.arange(environments, device=after.device).expand_as(after)
    around = torch.stack([own, before, after], -1)  # [R, E, 3]
    rows = take_environments(seen, around)  # [R, E, 3, B, D]
    logs = density.log_density_own(flat, rows, hyper)  # [R, E, 3, B]
    partners = take_environments(logs, after)
    first = torch.stack([logs[:, :, 0], logs[:, :, 2]], 2)  # e on e, e on its partner
    second = torch.stack([partners[:, :, 1], partners[:, :, 0]], 2)
    return Compared(torch.stack([first, second], 2), logs[:, :, 0], after)


def mean_over_circle(penalty: Tensor) -> Tensor:  # [R] or [R, P] -> [R]
    return penalty.flatten(1).mean(-1) if penalty.dim() > 1 else penalty
