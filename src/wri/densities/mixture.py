"""One Gaussian mixture per environment, fitted by EM.

    log d_e(x) = log Σ_k π_k · N(x; m_k, Σ_k)

On x it is fitted once per split; on Φ(x), which changes, at every density update. It is not changed
by gradient steps.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.gaussian import log_normal
from wri.errors import InputError
from wri.stacked import Packing
from wri.threads import one_algebra_thread

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
