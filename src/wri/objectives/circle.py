"""Environments in a circle: E pairs, each environment in two of them."""

import torch
from torch import Tensor


def circle(order: Tensor) -> Tensor:  # [R, E] -> [R, E]
    """For each environment the one that follows it when they stand round in `order`."""
    return torch.empty_like(order).scatter_(-1, order, order.roll(-1, -1))


def take_environments(values: Tensor, which: Tensor) -> Tensor:  # [R, E, ...], [R, ...]
    """Environments `which` of every run, in the shape of `which`."""
    runs = torch.arange(len(which), device=which.device)
    return values[runs.view(-1, *[1] * (which.dim() - 1)), which]
