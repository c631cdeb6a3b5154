"""The paper's density network: unnormalised and bounded (appendix D).

    log d_e(x) = log(min) + σ(net_e(x)) · (log(max) − log(min))

with net_e: D → max(1, D/2) → ReLU → 1. The bounds keep the penalty's size in hand; nothing
makes d integrate to one, so only the −log d term keeps it from vanishing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, Differentiable, HyperValues
from wri.stacked import Network, OneHiddenLayer, Pullback


@dataclass(frozen=True)
class Bounded(Density):
    """A small bounded network for each environment; hidden width D/2 unless given."""

    hidden: int | None = None
    learning: ClassVar[Literal["steps"]] = "steps"
    moderate: ClassVar[bool] = True

    def _network(self, environments: int, width: int) -> Network:
        return Network((width, self.hidden or max(1, width // 2), 1), copies=environments)

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return self._network(environments, width).initial(seeds, "density")

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        network = self._network(environments, x.shape[-1])
        return _bound(network.outputs_of_copies(flat, x)[..., 0], hyper)

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        network = self._network(x.shape[1], x.shape[-1])
        outputs = network.outputs(flat, x.flatten(0, 1))[..., 0]  # [R·E, …]
        return _bound(outputs.unflatten(0, x.shape[:2]), hyper)

    def differentiable(
        self, flat: Tensor, environments: int, width: int, hyper: HyperValues
    ) -> Differentiable:
        network = OneHiddenLayer(self._network(environments, width), flat)
        low, scale = _bounds(flat[:, :1, None], hyper)  # [R, 1, 1] each

        def at(x: Tensor, own: bool) -> tuple[Tensor, Pullback]:
            rows = x.flatten(0, 1).flatten(1, -2) if own else x.flatten(1, -2)
            outputs, back = network.forward(rows)
            share = outputs.sigmoid_()  # [R, E, N]
            shape = x.shape[:-1] if own else (len(flat), environments, *x.shape[1:-1])

            def pullback(gradient: Tensor) -> Tensor:
                at_outputs = torch.addcmul(share, share, share, value=-1).mul_(scale)
                return back(at_outputs.mul_(gradient.view_as(share)))

            return torch.addcmul(low, share, scale).view(shape), pullback

        return at


def _bound(outputs: Tensor, hyper: HyperValues) -> Tensor:  # [R, E, …]
    low, scale = _bounds(outputs, hyper)
    return low + outputs.sigmoid() * scale


def _bounds(like: Tensor, hyper: HyperValues) -> tuple[Tensor, Tensor]:  # [R, 1, …] each
    """log(min) and log(max) − log(min)."""
    run = (-1,) + (1,) * (like.dim() - 1)
    low = hyper["min_density"].log().view(run)
    return low, hyper["max_density"].log().view(run) - low
