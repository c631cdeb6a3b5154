"""A classifier of environments in the place of densities.

    log d_e(x) = log softmax(net(x))_e = log p_e(x) − log Σ_k p_k(x)

for equally large environments (batches hold as many rows of each). Differences between
environments at one x are true log ratios, so overlap and ratio weights may use it; values at
different x may not be compared. The −log d term is its cross-entropy, and nothing else is
minimised.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.stacked import Network


@dataclass(frozen=True)
class EnvironmentClassifier(Density):
    """One network with an output for each environment."""

    hidden: int = 64
    learning: ClassVar[Literal["steps"]] = "steps"
    penalised: ClassVar[bool] = False
    comparable_over_x: ClassVar[bool] = False

    def _network(self, environments: int, width: int) -> Network:
        return Network((width, self.hidden, environments))

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return self._network(environments, width).initial(seeds, "density")

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        network = self._network(environments, x.shape[-1])
        return network.outputs(flat, x).movedim(-1, 1).log_softmax(1)  # [R, E, …]

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        everywhere = self.log_density(flat, x, x.shape[1], hyper)  # [R, E density, E rows, …]
        return everywhere.diagonal(dim1=1, dim2=2).movedim(-1, 1)
