"""Classifiers of environments in the place of densities.

    log d_e(x) = log softmax(net(x))_e = log p_e(x) − log Σ_k p_k(x)

for equally large environments (batches hold as many rows of each). Differences between
environments at one x are true log ratios, so overlap and ratio weights may use it; values at
different x may not be compared. The −log d term is its cross-entropy, and nothing else is
minimised: along with the predictor (`EnvironmentClassifier`), or before it and once for all runs
of a stack with the same training rows (`FittedClassifier`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.stacked import Adam, Network, differentiate, generator


@dataclass(frozen=True)
class EnvironmentClassifier(Density):
    """One network with an output for each environment."""

    hidden: int = 64
    learning: ClassVar[Literal["steps", "refit", "fixed"]] = "steps"
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


@dataclass(frozen=True)
class FittedClassifier(EnvironmentClassifier):
    """The same, fitted on whole environments: Adam on balanced batches, its rate along a cosine."""

    steps: int = 400
    batch_size: int = 512  # rows of each environment
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    learning: ClassVar[Literal["steps", "refit", "fixed"]] = "refit"

    def fit(self, environments: Sequence[np.ndarray]) -> np.ndarray:
        random = generator(0, "classifier")
        rows = [torch.as_tensor(rows, dtype=torch.float32) for rows in environments]
        flat = torch.as_tensor(self.initial([0], len(rows), rows[0].shape[1]), dtype=torch.float32)
        adam, decay = Adam.initial(flat), flat.new_tensor([self.weight_decay])
        for step in range(self.steps):
            drawn = [random.integers(len(own), size=self.batch_size) for own in rows]
            batch = torch.stack([own[which] for own, which in zip(rows, drawn, strict=True)])
            leaf = flat.detach().requires_grad_()
            loss = -self.log_density_own(leaf, batch[None], {}).mean((1, 2))
            rate = self.learning_rate * (1 + cos(pi * step / self.steps)) / 2
            adam.step(flat, differentiate(loss, leaf), flat.new_tensor([rate]), decay)
        return flat[0].double().numpy()
