"""One Gaussian mixture per environment, fitted by scikit-learn's EM.

    log d_e(x) = log Σ_k π_k · N(x; m_k, Σ_k)

On x it is fitted once per split; on Φ(x), which changes, at every density update. It is not changed
by gradient steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from sklearn.mixture import GaussianMixture
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.densities.gaussian import log_normal
from wri.errors import InputError
from wri.stacked import Packing
from wri.threads import one_algebra_thread


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
            # the start of EM is drawn by row: their order must not matter
            ordered = rows[np.square(rows).sum(1).argsort(kind="stable")]
            with one_algebra_thread():  # rounding depends on the threads, and EM amplifies it
                fits.append(model.fit(ordered))
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
