"""Classifiers of environments in place of densities.

    log d_e(x) = log softmax(net(x))_e = log p_e(x) − log Σ_k p_k(x)

for environments of equal size (batches hold the same number of rows of each). Differences between
environments at one x are true log ratios, so overlap and ratio weights can use them; values at
different x cannot be compared. The −log d term is the cross-entropy, and only it is minimised:
during the predictor's training (`EnvironmentClassifier`), or before it and once for all runs of a
stack with the same training rows (`FittedClassifier`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.stacked import Adam, Network, differentiate, generator

NO_COMMON_CLASS = (
    "no class occurs in every environment, so the label cannot show which part of the shift is "
    "invariant; weights use x alone"
)
"""Warning of the classifiers that see the label."""


class ClassifierTraining(NamedTuple):
    """Adam on balanced batches, with a step size along half a cosine."""

    steps: int
    batch_size: int  # rows per environment, at most those of the largest
    learning_rate: float
    weight_decay: float

    def fit(
        self,
        flat: np.ndarray,  # [1, P]
        environments: Sequence[tuple[Tensor, ...]],
        loss: Callable[[Tensor, list[Tensor]], Tensor],
        random: np.random.Generator,
    ) -> Tensor:  # [1, P]
        """Minimise `loss(flat, parts)`; the parts of the environments are stacked `[E, B, …]`."""
        size = min(self.batch_size, max(len(own[0]) for own in environments))
        moving = torch.as_tensor(flat, dtype=torch.float32)
        adam, decay = Adam.initial(moving), moving.new_tensor([self.weight_decay])
        for step in range(self.steps):
            drawn = [random.integers(len(own[0]), size=size) for own in environments]
            batches = [
                tuple(part[which] for part in own)
                for own, which in zip(environments, drawn, strict=True)
            ]
            parts = [torch.stack(part) for part in zip(*batches, strict=True)]
            leaf = moving.detach().requires_grad_()
            rate = self.learning_rate * (1 + cos(pi * step / self.steps)) / 2
            gradient = differentiate(loss(leaf, parts), leaf)
            adam.step(moving, gradient, moving.new_tensor([rate]), decay)
        return moving


@dataclass(frozen=True)
class EnvironmentClassifier(Density):
    """Classifier of environments, trained along with the predictor.

    Parameters
    ----------
    hidden : int, default=64
        Units of the first hidden layer; 0 for none.
    second_hidden : int, default=0
        Units of the second hidden layer; 0 for none.

    Examples
    --------
    >>> import torch
    >>> from wri.densities import EnvironmentClassifier
    >>> density = EnvironmentClassifier(hidden=8)
    >>> flat = torch.as_tensor(density.initial([0], environments=3, width=2)).float()
    >>> logs = density.log_density(flat, torch.zeros(1, 5, 2), 3, {})
    >>> logs.exp().sum(1).round(decimals=4).tolist()
    [[1.0, 1.0, 1.0, 1.0, 1.0]]
    """

    hidden: int = 64
    second_hidden: int = 0
    learning: ClassVar[Literal["steps", "refit", "fixed"]] = "steps"
    penalised: ClassVar[bool] = False
    comparable_over_x: ClassVar[bool] = False

    def _network(self, environments: int, width: int) -> Network:
        hidden = [units for units in (self.hidden, self.second_hidden) if units]
        return Network((width, *hidden, environments))

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return self._network(environments, width).initial(seeds, "density")

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        network = self._network(environments, x.shape[-1])
        return network.outputs(flat, x).movedim(-1, 1).log_softmax(1)  # [R, E, …]


@dataclass(frozen=True)
class FittedClassifier(EnvironmentClassifier):
    """Classifier of environments, fitted on whole environments before the predictor's first step.

    Parameters
    ----------
    hidden : int, default=64
        Units of the first hidden layer; 0 for none.
    second_hidden : int, default=0
        Units of the second hidden layer; 0 for none.
    steps : int, default=400
        Training steps.
    batch_size : int, default=512
        Rows per environment and step.
    learning_rate : float, default=3e-3
        Step size of Adam.
    weight_decay : float, default=1e-4
        Weight decay of Adam.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from wri.densities import FittedClassifier
    >>> density = FittedClassifier(hidden=8, steps=50, learning_rate=0.03)
    >>> flat = density.fit([np.full((20, 1), -1.0), np.full((20, 1), 1.0)])
    >>> rows = torch.tensor([[[-1.0], [1.0]]], dtype=torch.float64)
    >>> density.log_density(torch.as_tensor(flat)[None], rows, 2, {})[0].argmax(0).tolist()
    [0, 1]
    """

    steps: int = 400
    batch_size: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    learning: ClassVar[Literal["steps", "refit", "fixed"]] = "refit"

    def fit(self, environments: Sequence[np.ndarray]) -> np.ndarray:
        rows = [(torch.as_tensor(own, dtype=torch.float32),) for own in environments]
        start = self.initial([0], len(rows), environments[0].shape[1])
        fitting = ClassifierTraining(
            self.steps, self.batch_size, self.learning_rate, self.weight_decay
        )
        flat = fitting.fit(start, rows, self._cross_entropy, generator(0, "classifier"))
        return flat[0].double().numpy()

    def _cross_entropy(self, flat: Tensor, parts: list[Tensor]) -> Tensor:
        (x,) = parts  # [E, B, D]
        return -self.log_density_own(flat, x[None], {}).mean((1, 2))
