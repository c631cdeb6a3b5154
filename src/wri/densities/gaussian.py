"""Gaussians and Gaussian mixtures, one per environment.

    log d_e(x) = −½ ‖A_e (x − m_e)‖² + Σ_k log A_kk − ½ D log 2π     learned by gradient steps
    log d_e(x) = log Σ_k π_k · N(x; m_k, Σ_k)                          fitted by EM

A_e is lower triangular with a positive diagonal, so A_eᵀA_e is the inverse covariance. The term
−log d is the negative log-likelihood: without a penalty its minimum has the moments of the sample.
On x a mixture is fitted once per split; on Φ(x), which changes, at every density update.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.errors import InputError
from wri.stacked import Packing
from wri.threads import one_algebra_thread


@dataclass(frozen=True)
class Gaussian(Density):
    """Gaussian with full covariance per environment, standard normal at the start.

        log d_e(x) = −½ ‖A_e (x − m_e)‖² + Σ_k log A_kk − ½ D log 2π

    Examples
    --------
    >>> import torch
    >>> from wri.densities import Gaussian
    >>> density = Gaussian()
    >>> flat = torch.as_tensor(density.initial([0], environments=2, width=1))
    >>> density.log_density(flat, torch.zeros(1, 1, 1).double(), 2, {}).flatten().numpy().round(4)
    array([-0.9189, -0.9189])
    """

    learning: ClassVar[Literal["steps"]] = "steps"

    @staticmethod
    def _packing(environments: int, width: int) -> Packing:
        square = (environments, width, width)  # log-diagonal and the strictly lower part
        return Packing(((environments, width, 1), square))

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return np.zeros((len(seeds), self._packing(environments, width).size))

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        mean, factor = self._packing(environments, x.shape[-1]).views(flat)
        columns = x.flatten(1, -2).transpose(1, 2)[:, None]  # [R, 1, D, N]
        return log_normal(columns, mean, *split_factor(factor)).unflatten(-1, x.shape[1:-1])

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        mean, factor = self._packing(x.shape[1], x.shape[-1]).views(flat)
        columns = x.flatten(2, -2).transpose(2, 3)  # [R, E, D, N]
        return log_normal(columns, mean, *split_factor(factor)).unflatten(-1, x.shape[2:-1])


def split_factor(factor: Tensor) -> tuple[Tensor, Tensor]:
    """Read a free square matrix as (A with positive diagonal, Σ log A_kk)."""
    log_diagonal = factor.diagonal(dim1=-2, dim2=-1)
    triangle = factor.tril(-1) + torch.diag_embed(log_diagonal.exp())
    return triangle, log_diagonal.sum(-1, keepdim=True)


def log_normal(columns: Tensor, mean: Tensor, triangle: Tensor, log_volume: Tensor) -> Tensor:
    """Return log densities `[…, N]` of points `[…, D, N]` for means `[…, D, 1]` and factors A."""
    standard = triangle @ columns - triangle @ mean  # [..., D, N]
    constant = 0.5 * mean.shape[-2] * log(2 * pi)
    return -0.5 * standard.square().sum(-2) + log_volume - constant


MOST_STEPS = 100  # of EM


@dataclass(frozen=True)
class Mixture(Density):
    """Gaussian mixture with full covariances per environment, fitted by EM.

        log d_e(x) = log Σ_k π_k · N(x; m_k, Σ_k)

    Parameters
    ----------
    components : int, default=3
        Number of Gaussians.
    regularisation : float, default=1e-3
        Number added to the diagonal of the covariances.
    tolerance : float, default=1e-3
        EM ends when the mean log-likelihood increases by less.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from wri.densities import Mixture
    >>> density, rows = Mixture(components=1), np.random.default_rng(0).normal(size=(50, 1))
    >>> flat = torch.as_tensor(density.fit([rows, rows + 3]))[None]
    >>> density.log_density(flat, torch.zeros(1, 1, 1).double(), 2, {})[0].argmax(0).tolist()
    [0]
    """

    components: int = 3
    regularisation: float = 1e-3
    tolerance: float = 1e-3
    learning: ClassVar[Literal["refit"]] = "refit"

    def _packing(self, environments: int, width: int) -> Packing:
        grid = (environments, self.components)
        shapes = ((*grid, width, 1), (*grid, width, width), (*grid, 1), (*grid, 1))
        return Packing(shapes)  # means, factors, log volumes, log proportions

    def initial(self, seeds: Sequence[int], environments: int, width: int) -> np.ndarray:
        return np.zeros((len(seeds), self._packing(environments, width).size))

    def log_density(self, flat: Tensor, x: Tensor, environments: int, hyper: HyperValues) -> Tensor:
        columns = x.flatten(1, -2).transpose(1, 2)[:, None, None]  # [R, 1, 1, D, N]
        parts = self._packing(environments, x.shape[-1]).views(flat)
        return _mix(columns, parts).unflatten(-1, x.shape[1:-1])

    def log_density_own(self, flat: Tensor, x: Tensor, hyper: HyperValues) -> Tensor:
        columns = x.flatten(2, -2).transpose(2, 3)[:, :, None]  # [R, E, 1, D, N]
        parts = self._packing(x.shape[1], x.shape[-1]).views(flat)
        return _mix(columns, parts).unflatten(-1, x.shape[2:-1])

    def fit(self, environments: Sequence[np.ndarray]) -> np.ndarray:
        for e, rows in enumerate(environments):
            if len(rows) < self.components:
                raise InputError(
                    f"environment {e} has {len(rows)} rows, fewer than the mixture's "
                    f"{self.components} components; give Mixture(components=...) a smaller number"
                )
        with one_algebra_thread():  # rounding depends on the threads, and EM amplifies it
            fits = [self._maximise(rows) for rows in environments]
        return np.concatenate([np.stack(piece).ravel() for piece in zip(*fits, strict=True)])

    def _maximise(self, x: np.ndarray) -> "_Components":  # [n, D]
        """Fit one mixture by EM from the clusters of k-means, as scikit-learn's GaussianMixture.

        Its classes take five times as long for the few numbers of a fit.
        """
        # the start is drawn by row: their order must not matter
        x = x[np.square(x).sum(1).argsort(kind="stable")]
        clusters = KMeans(self.components, n_init=1, random_state=np.random.RandomState(0)).fit(x)
        share = np.eye(self.components)[clusters.labels_]  # [n, K], of each row in each component
        found, likelihood = _Components.of(x, share, self.regularisation), -np.inf
        for _ in range(MOST_STEPS):
            logs = found.logs(x)
            rows = _log_sum(logs)  # [n]
            found = _Components.of(x, np.exp(logs - rows[:, None]), self.regularisation)
            before, likelihood = likelihood, rows.mean()
            if abs(likelihood - before) < self.tolerance:
                return found
        warnings.warn(
            f"EM of a mixture has not converged in {MOST_STEPS} steps",
            ConvergenceWarning,
            stacklevel=3,
        )
        return found


class _Components(NamedTuple):
    """Gaussians of one environment: N(x; m, (F' F)⁻¹) with triangular factors F."""

    mean: np.ndarray  # [K, D]
    factor: np.ndarray  # [K, D, D]
    log_volume: np.ndarray  # [K], log det F
    log_proportion: np.ndarray  # [K]

    @classmethod
    def of(cls, x: np.ndarray, share: np.ndarray, regularisation: float) -> "_Components":
        """Return the Gaussians with the greatest likelihood, if rows belong to them in parts."""
        count = share.sum(0) + 10 * np.finfo(float).eps
        mean = share.T @ x / count[:, None]
        apart = x - mean[:, None]  # [K, n, D]
        spread = (apart * share.T[..., None]).swapaxes(1, 2) @ apart / count[:, None, None]
        unit = np.eye(x.shape[1])
        factor = np.linalg.inv(np.linalg.cholesky(spread + regularisation * unit))
        log_volume = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(1)
        return cls(mean, factor, log_volume, np.log(count / count.sum()))

    def logs(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, K]
        """Return log π_k · N(x; m_k, Σ_k)."""
        moved = (x - self.mean[:, None]) @ self.factor.swapaxes(1, 2)  # [K, n, D]
        level = self.log_proportion + self.log_volume - x.shape[1] / 2 * np.log(2 * np.pi)
        return level - np.square(moved).sum(2).T / 2


def _log_sum(logs: np.ndarray) -> np.ndarray:  # [n, K] -> [n]
    most = logs.max(1)
    return most + np.log(np.exp(logs - most[:, None]).sum(1))


def _mix(columns: Tensor, parts: Sequence[Tensor]) -> Tensor:  # [R, E, K, D, N] -> [R, E, N]
    mean, triangle, log_volume, log_proportion = parts
    return (log_proportion + log_normal(columns, mean, triangle, log_volume)).logsumexp(2)


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
        values = self.function(x)  # [R, …, E]
        if values.shape != (*x.shape[:-1], environments):
            raise InputError(
                f"Exact's function gives the shape {tuple(values.shape)} for points "
                f"{tuple(x.shape)}; its last axis must be the {environments} training environments"
            )
        return values.movedim(-1, 1)
