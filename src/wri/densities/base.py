"""The contract of a density: log d_e(x) for all environments e at once.

A density is a frozen set of options; what is learned is a row of numbers for each run,
`flat [R, P]`, that the caller keeps. Log densities may be off by a constant (the bounded
network) or by a function of x that all environments share (the environment classifier):
`comparable_over_x` says whether values at different x can be compared, as density weighting
needs; ratios and overlap weights at one x are always good.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wri.stacked import Pullback

HyperValues = Mapping[str, Tensor]  # every value [R]

Differentiable = Callable[[Tensor, bool], tuple[Tensor, Pullback]]
"""From rows `[R, E, …, D]` to every environment's log density, at all rows or at its own, and the
way back from a gradient there; called under `no_grad`."""


class Density(ABC):
    """One way to say how common a point is in each of E environments."""

    learning: ClassVar[Literal["steps", "refit", "fixed"]]
    """By gradient steps, by fitting anew on whole environments, or not at all."""

    penalised: ClassVar[bool] = True
    """Whether gradient steps minimise the WRI penalty too, or the likelihood alone."""

    comparable_over_x: ClassVar[bool] = True

    moderate: ClassVar[bool] = False
    """Whether densities are neither tiny nor huge anywhere."""

    needs_targets: ClassVar[bool] = False
    """Whether it is fitted by `fit_with_targets` instead of `fit`."""

    @abstractmethod
    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        """Starting values `[R, P]`."""

    @abstractmethod
    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        """`[R, …, D]` to `[R, E, …]`: every environment's log density at the same points."""

    @abstractmethod
    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        """`[R, E, …, D]` to `[R, E, …]`: environment e's log density at its own points x[:, e]."""

    def differentiable(
        self, flat: Tensor, environments: int, width: int, hyper: HyperValues
    ) -> Differentiable:
        """Log densities with their gradients, at values of `flat` that change in place.

        By automatic differentiation, unless a density knows better.
        """

        def at(x: Tensor, own: bool) -> tuple[Tensor, Pullback]:
            moving = flat.detach().requires_grad_()
            with torch.enable_grad():
                if own:
                    logs = self.log_density_own(moving, x, hyper)
                else:
                    logs = self.log_density(moving, x, environments, hyper)
            return logs.detach(), lambda gradient: torch.autograd.grad(logs, moving, gradient)[0]

        return at

    def fit(self, environments: Sequence[np.ndarray]) -> np.ndarray:
        """Fit on one run's whole environments; `[P]`. Only where `learning` is "refit"."""
        raise TypeError(f"{type(self).__name__} is not fitted on whole environments")

    def fit_with_targets(
        self, environments: Sequence[np.ndarray], targets: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Fit on one run's whole environments and their targets; `[P]`.

        Only where `needs_targets` is set. Targets are class numbers (integers) or floats.
        """
        raise TypeError(f"{type(self).__name__} is fitted without targets")
