"""Bounded density network of the paper, not normalised (appendix D).

    log d_e(x) = log(min) + σ(net_e(x)) · (log(max) − log(min))

with net_e: D → max(1, D/2) → ReLU → 1. The bounds limit the size of the penalty. d does not
integrate to one, so only the term −log d keeps it from vanishing.
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
    """Bounded density: one small network per environment, between two limits.

        log d_e(x) = log(min) + σ(net_e(x)) · (log(max) − log(min))

    Parameters
    ----------
    hidden : int or None, default=None
        Units of the hidden layer. None: half the number of columns.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024, appendix D.

    Examples
    --------
    >>> import torch
    >>> from wri.densities import Bounded
    >>> density, bounds = Bounded(hidden=4), {"min_density": 0.1, "max_density": 1.0}
    >>> hyper = {name: torch.tensor([value]) for name, value in bounds.items()}
    >>> flat = torch.as_tensor(density.initial([0], environments=3, width=2)).float()
    >>> logs = density.log_density(flat, torch.zeros(1, 5, 2), 3, hyper)
    >>> logs.shape, bool((logs.exp() >= 0.1).all())
    (torch.Size([1, 3, 5]), True)
    """

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
                return back(at_outputs.mul_(gradient.reshape(share.shape)))

            return torch.addcmul(low, share, scale).view(shape), pullback

        return at


def _bound(outputs: Tensor, hyper: HyperValues) -> Tensor:  # [R, E, …]
    low, scale = _bounds(outputs, hyper)
    return low + outputs.sigmoid() * scale


def _bounds(like: Tensor, hyper: HyperValues) -> tuple[Tensor, Tensor]:  # [R, 1, …] each
    """Return log(min) and log(max) − log(min)."""
    run = (-1,) + (1,) * (like.dim() - 1)
    low = hyper["min_density"].log().view(run)
    return low, hyper["max_density"].log().view(run) - low
