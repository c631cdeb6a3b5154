"""Known densities for simulations: a function of x."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.errors import InputError


@dataclass(frozen=True)
class Exact(Density):
    """Known log densities, given by a function.

    Parameters
    ----------
    function : callable
        From points `[..., D]` to log densities `[..., E]`, environments in order.

    Examples
    --------
    >>> import torch
    >>> from wri.densities import Exact
    >>> centres = torch.tensor([0.0, 2.0])
    >>> density = Exact(lambda x: -(x - centres) ** 2 / 2)
    >>> density.log_density(torch.empty(1, 0), torch.zeros(1, 1, 1), 2, {}).flatten().tolist()
    [-0.0, -2.0]
    """

    function: Callable[[Tensor], Tensor]
    learning: ClassVar[Literal["fixed"]] = "fixed"

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return np.zeros((len(seeds), 0))

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        return self._values(x, environments).movedim(-1, 1)

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        return self._values(x, x.shape[1]).diagonal(dim1=1, dim2=-1).movedim(-1, 1)

    def _values(self, x: Tensor, environments: int) -> Tensor:  # [..., D] -> [..., E]
        values = self.function(x)
        if values.shape != (*x.shape[:-1], environments):
            raise InputError(
                f"Exact's function gives the shape {tuple(values.shape)} for points "
                f"{tuple(x.shape)}; its last axis must be the {environments} training environments"
            )
        return values
