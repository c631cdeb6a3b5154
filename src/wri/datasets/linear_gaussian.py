"""The linear-Gaussian regression of the paper's equation 5, in any dimension.

    X_inv ~ N(m_e, C_e),   Y = wᵀX_inv + ε, ε ~ N(0, σ²),   X_spu = μ_e Y + η, η ~ N(0, S_e)

All of (X_inv, X_spu) is jointly Gaussian, so invariant and joint densities are exact.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wri.datasets.environments import Environment
from wri.datasets.gaussians import log_normal, random_covariances
from wri.errors import InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearGaussian:
    """One regression coupling with k environments.

    Parameters
    ----------
    weights
        w, `[d_inv]`: the invariant mechanism.
    noise_sd
        σ, standard deviation of ε.
    invariant_mean, invariant_covariance
        m_e `[k, d_inv]` and C_e `[k, d_inv, d_inv]`.
    spurious_slope, spurious_covariance
        μ_e `[k, d_spu]` and S_e `[k, d_spu, d_spu]`.
    """

    weights: np.ndarray
    noise_sd: float
    invariant_mean: np.ndarray
    invariant_covariance: np.ndarray
    spurious_slope: np.ndarray
    spurious_covariance: np.ndarray

    def __post_init__(self) -> None:
        k, d_spu = self.spurious_slope.shape
        d_inv = len(self.weights)
        shapes = {
            "invariant_mean": (k, d_inv),
            "invariant_covariance": (k, d_inv, d_inv),
            "spurious_covariance": (k, d_spu, d_spu),
        }
        for name, shape in shapes.items():
            found = getattr(self, name).shape
            if found != shape:
                raise InputError(f"{name} must have the shape {shape}, not {found}")
        if self.noise_sd <= 0:
            raise InputError(f"noise_sd must be positive, not {self.noise_sd}")

    @classmethod
    def random(cls, d_inv: int, d_spu: int, environments: int, seed: int) -> "LinearGaussian":
        """A random coupling: standard normal means and slopes, well-conditioned covariances."""
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
        return len(self.spurious_slope)

    def sample(self, n: int, seed: int) -> list[Environment]:
        """n rows of each environment: first the invariant columns, then the spurious ones."""
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
        """Mean and covariance of (X_inv, X_spu)."""
        w, m = self.weights, self.invariant_mean[environment]
        c, slope = self.invariant_covariance[environment], self.spurious_slope[environment]
        across = np.outer(c @ w, slope)
        target = w @ c @ w + self.noise_sd**2  # variance of Y
        below = target * np.outer(slope, slope) + self.spurious_covariance[environment]
        mean = np.concatenate([m, slope * (w @ m)])
        return mean, np.block([[c, across], [across.T, below]])

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """log p_e(x_inv)."""
        invariant = x[..., : len(self.weights)]
        moments = zip(self.invariant_mean, self.invariant_covariance, strict=True)
        return torch.stack([log_normal(invariant, m, c) for m, c in moments], dim=-1)

    def log_joint(self, x: Tensor) -> Tensor:  # [..., d] -> [..., k]
        """log p_e(x_inv, x_spu)."""
        moments = [self.joint_moments(e) for e in range(self.environments)]
        return torch.stack([log_normal(x, m, c) for m, c in moments], dim=-1)
