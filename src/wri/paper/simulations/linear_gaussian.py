"""The linear-Gaussian regression of the paper's equation 5, in any dimension.

    X_inv ~ N(m_e, C_e),   Y = wᵀX_inv + ε, ε ~ N(0, σ²),   X_spu = μ_e Y + η, η ~ N(0, S_e)

(X_inv, X_spu) is jointly Gaussian, so densities are exact.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wri.datasets.environments import Environment
from wri.datasets.simulation import log_normal, random_covariances


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGaussian:
    """Linear-Gaussian regression with k environments (equation 5).

        X_inv ~ N(m_e, C_e),   Y = wᵀX_inv + ε, ε ~ N(0, σ²),   X_spu = μ_e Y + η, η ~ N(0, S_e)

    Parameters
    ----------
    weights : ndarray of shape (d_inv,)
        w, the invariant mechanism.
    noise_sd : float
        σ, standard deviation of ε.
    invariant_mean : ndarray of shape (k, d_inv)
        m_e.
    invariant_covariance : ndarray of shape (k, d_inv, d_inv)
        C_e.
    spurious_slope : ndarray of shape (k, d_spu)
        μ_e.
    spurious_covariance : ndarray of shape (k, d_spu, d_spu)
        S_e.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024.

    Examples
    --------
    >>> from wri.paper.simulations import LinearGaussian
    >>> model = LinearGaussian.random(d_inv=2, d_spu=1, environments=3, seed=0)
    >>> [each.x.shape for each in model.sample(n=5, seed=0)]
    [(5, 3), (5, 3), (5, 3)]
    """

    weights: np.ndarray
    noise_sd: float
    invariant_mean: np.ndarray
    invariant_covariance: np.ndarray
    spurious_slope: np.ndarray
    spurious_covariance: np.ndarray

    @classmethod
    def random(cls, d_inv: int, d_spu: int, environments: int, seed: int) -> "LinearGaussian":
        """Draw random parameters: standard normal means and slopes, well-conditioned covariances.

        Parameters
        ----------
        d_inv : int
            Number of invariant columns.
        d_spu : int
            Number of spurious columns.
        environments : int
            Number of environments.
        seed : int
            Seed of the parameters.

        Returns
        -------
        model : LinearGaussian
            The model.
        """
        random = np.random.default_rng(seed)
        weights = random.normal(size=d_inv)
        return cls(
            weights=weights / np.linalg.norm(weights),
            noise_sd=1.0,
            invariant_mean=random.normal(size=(environments, d_inv)),
            invariant_covariance=random_covariances(environments, d_inv, 0.5, 1.5, random),
            spurious_slope=random.normal(size=(environments, d_spu)),
            spurious_covariance=random_covariances(environments, d_spu, 0.5, 1.5, random),
        )

    @property
    def environments(self) -> int:
        """Number of environments."""
        return len(self.spurious_slope)

    def sample(self, n: int, seed: int) -> list[Environment]:
        """Draw rows of each environment.

        Parameters
        ----------
        n : int
            Rows per environment.
        seed : int
            Seed of the rows.

        Returns
        -------
        environments : list of Environment
            First the invariant columns, then the spurious ones.
        """
        environments = []
        for e in range(self.environments):
            random = np.random.default_rng([seed, e])
            mean, covariance = self.invariant_mean[e], self.invariant_covariance[e]
            invariant = random.multivariate_normal(mean, covariance, n)
            y = invariant @ self.weights + random.normal(0, self.noise_sd, n)
            noise = random.multivariate_normal(
                np.zeros_like(self.spurious_slope[e]), self.spurious_covariance[e], n
            )
            x = np.concatenate([invariant, y[:, None] * self.spurious_slope[e] + noise], axis=1)
            environments.append(Environment(f"environment {e + 1}", x, y))
        return environments

    def joint_moments(self, environment: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and covariance of (X_inv, X_spu).

        Parameters
        ----------
        environment : int
            Number of the environment.

        Returns
        -------
        mean : ndarray of shape (d,)
            Mean.
        covariance : ndarray of shape (d, d)
            Covariance.
        """
        w, m = self.weights, self.invariant_mean[environment]
        c, slope = self.invariant_covariance[environment], self.spurious_slope[environment]
        across = np.outer(c @ w, slope)
        target = w @ c @ w + self.noise_sd**2  # variance of Y
        below = target * np.outer(slope, slope) + self.spurious_covariance[environment]
        mean = np.concatenate([m, slope * (w @ m)])
        return mean, np.block([[c, across], [across.T, below]])

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """Return log p_e(x_inv).

        Parameters
        ----------
        x : Tensor of shape (..., d)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., k)
            Log densities.
        """
        moments = zip(self.invariant_mean, self.invariant_covariance, strict=True)
        logs = [log_normal(x[..., : len(self.weights)], m, c) for m, c in moments]
        return torch.stack(logs, dim=-1)
