"""A Gaussian mixture for each environment, fitted by scikit-learn's EM.

    log d_e(x) = log Σ_k π_k · N(x; m_k, Σ_k)

On x it is fitted once for each split; on Φ(x), which moves, anew at every density update.
No gradient step touches it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.gaussian import log_normal
from wri.errors import InputError
from wri.stacked import Packing


@dataclass(frozen=True)
class Mixture(Density):
    """Full-covariance mixtures of `components` Gaussians."""

    components: int = 3
    regularisation: float = 1e-3  # added to the covariances' diagonal
    tolerance: float = 1e-3  # EM ends when the mean log-likelihood gains less
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
        fits = []
        for e, rows in enumerate(environments):
            if len(rows) < self.components:
                raise InputError(
                    f"environment {e} has {len(rows)} rows, fewer than the mixture's "
                    f"{self.components} components; give Mixture(components=...) a smaller number"
                )
            model = GaussianMixture(
                self.components,
                tol=self.tolerance,
                reg_covar=self.regularisation,
                random_state=0,
            )
            with threadpool_limits(1):  # rounding depends on the threads, and EM makes it large
                fits.append(model.fit(rows))
        factors = np.stack([m.precisions_cholesky_ for m in fits]).swapaxes(-1, -2)
        volumes = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(-1)
        pieces = [
            np.stack([m.means_ for m in fits]),
            factors,
            volumes,
            np.log(np.stack([m.weights_ for m in fits])),
        ]
        return np.concatenate([piece.ravel() for piece in pieces])


def _mix(columns: Tensor, parts: Sequence[Tensor]) -> Tensor:  # [R, E, K, D, N] -> [R, E, N]
    mean, triangle, log_volume, log_proportion = parts
    return (log_proportion + log_normal(columns, mean, triangle, log_volume)).logsumexp(2)
