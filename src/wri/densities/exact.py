"""Known densities, for simulations: a function of x, nothing learned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from wri.densities.base import Density, HyperValues


@dataclass(frozen=True)
class Exact(Density):
    """Log densities by a function from points `[…, D]` to `[…, E]`, environments in order."""

    function: Callable[[Tensor], Tensor]
    learning: ClassVar[Literal["fixed"]] = "fixed"

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return np.zeros((len(seeds), 0))

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        return self.function(x).movedim(-1, 1)

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        return self.function(x).diagonal(dim1=1, dim2=-1).movedim(-1, 1)
