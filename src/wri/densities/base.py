"""The contract of a density: log d_e(x) for all environments e at once.

A density is a frozen set of options. The learned parameters are one row of numbers per run,
`flat [R, P]`, kept by the caller. Log densities may be off by a constant (the bounded network) or
by a function of x that all environments share (the environment classifier): `comparable_over_x`
tells whether values at different x can be compared, as density weights need. Ratios and overlap
weights at one x are always valid.
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
"""Function of rows `[R, E, …, D]` that returns the log densities, at all rows or at each
environment's own, and the pullback of a gradient there; called under `no_grad`."""


class Density(ABC):
    """Base class of densities of E environments.

    Attributes
    ----------
    learning : {"steps", "refit", "fixed"}
        Learned by gradient steps, by fits on whole environments, or not at all.
    penalised : bool
        Whether gradient steps minimise the WRI penalty as well as the likelihood.
    comparable_over_x : bool
        Whether densities at different points can be compared.
    moderate : bool
        Whether densities are nowhere tiny or huge.
    needs_targets : bool
        Whether it is fitted by `fit_with_targets` instead of `fit`.
    takes_weights : bool
        Whether `fit_with_targets` takes weights of the rows; otherwise rows are repeated.
    batch_size : int
        Rows per environment and step of a fit by batches; 0 for other fits.

    Examples
    --------
    >>> from wri.densities import Density, Gaussian, Mixture
    >>> [(kind.learning, issubclass(kind, Density)) for kind in (Gaussian, Mixture)]
    [('steps', True), ('refit', True)]
    """

    learning: ClassVar[Literal["steps", "refit", "fixed"]]
    """Learned by gradient steps, by fits on whole environments, or not at all."""

    penalised: ClassVar[bool] = True
    """Whether gradient steps minimise the WRI penalty too, or the likelihood alone."""

    comparable_over_x: ClassVar[bool] = True

    moderate: ClassVar[bool] = False
    """Whether densities are neither tiny nor huge anywhere."""

    needs_targets: ClassVar[bool] = False
    """Whether it is fitted by `fit_with_targets` instead of `fit`."""

    takes_weights: ClassVar[bool] = False
    """Whether `fit_with_targets` takes weights of the rows; otherwise rows are repeated."""

    batch_size: int = 0
    """Rows per environment and step of a fit by batches; 0 for other fits."""

    @abstractmethod
    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        """Return the initial parameters.

        Parameters
        ----------
        seeds : sequence of int
            Seed of each run.
        environments : int
            Number of environments E.
        width : int
            Number of columns D.

        Returns
        -------
        parameters : ndarray of shape (R, P)
            One row per run.
        """

    @abstractmethod
    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        """Return the log density of each environment at the same points.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters.
        x : Tensor of shape (R, ..., D)
            Points.
        environments : int
            Number of environments E.
        hyper : mapping of str to Tensor
            Hyper-parameters, `[R]` each.

        Returns
        -------
        logs : Tensor of shape (R, E, ...)
            Log densities.
        """

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        """Return the log density of each environment at its own points.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters.
        x : Tensor of shape (R, E, ..., D)
            Points of each environment.
        hyper : mapping of str to Tensor
            Hyper-parameters, `[R]` each.

        Returns
        -------
        logs : Tensor of shape (R, E, ...)
            Log density of environment e at x[:, e].
        """
        everywhere = self.log_density(flat, x, x.shape[1], hyper)  # [R, E density, E rows, …]
        return everywhere.diagonal(dim1=1, dim2=2).movedim(-1, 1)

    def differentiable(
        self, flat: Tensor, environments: int, width: int, hyper: HyperValues
    ) -> Differentiable:
        """Return a function for log densities with their gradients.

        The values of `flat` may change in place between calls. It uses automatic differentiation,
        unless a density has its own method.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters.
        environments : int
            Number of environments E.
        width : int
            Number of columns D.
        hyper : mapping of str to Tensor
            Hyper-parameters, `[R]` each.

        Returns
        -------
        function : callable
            Takes rows and whether they are each environment's own; returns log densities and a
            function from a gradient there to the gradient at the parameters.
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
        """Fit the parameters on one run's whole environments, if `learning` is "refit".

        Parameters
        ----------
        environments : sequence of ndarray of shape (n_e, D)
            Rows of each environment.

        Returns
        -------
        parameters : ndarray of shape (P,)
            Fitted parameters.
        """
        raise TypeError(f"{type(self).__name__} is not fitted on whole environments")

    def fit_with_targets(
        self,
        environments: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        weights: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """Fit the parameters on one run's whole environments and targets.

        Parameters
        ----------
        environments : sequence of ndarray of shape (n_e, D)
            Rows of each environment.
        targets : sequence of ndarray of shape (n_e,)
            Class numbers (integers) or floats.
        weights : sequence of ndarray of shape (n_e,) or None, default=None
            How often each row counts, if `takes_weights`. None: once.

        Returns
        -------
        parameters : ndarray of shape (P,)
            Fitted parameters.
        """
        raise TypeError(f"{type(self).__name__} is fitted without targets")

    def used_columns(self, flat: np.ndarray, width: int) -> np.ndarray:
        """Return on which columns the densities depend.

        Parameters
        ----------
        flat : ndarray of shape (P,)
            Parameters of one run.
        width : int
            Number of columns D.

        Returns
        -------
        used : ndarray of bool of shape (D,)
            True for columns that matter; by default all.
        """
        return np.ones(width, bool)
