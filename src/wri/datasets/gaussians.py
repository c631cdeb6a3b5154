"""Random covariances and log densities of Gaussians for simulations."""

from math import log, pi

import numpy as np
from torch import Tensor


def random_covariances(
    n: int, d: int, low: float, high: float, random: np.random.Generator
) -> np.ndarray:  # [n, d, d]
    """Draw RandCov(low, high): random rotations, square roots of eigenvalues in [low, high]."""
    rotations = np.linalg.qr(random.normal(size=(n, d, d)))[0]
    roots = random.uniform(low, high, (n, 1, d))
    return (rotations * roots**2) @ rotations.swapaxes(1, 2)


def random_directions(n: int, d: int, random: np.random.Generator) -> np.ndarray:  # [n, d]
    """Draw unit vectors, uniform on the sphere."""
    vectors = random.normal(size=(n, d))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def log_normal(x: Tensor, mean: np.ndarray, covariance: np.ndarray) -> Tensor:  # [..., d] -> [...]
    """Return the log density of a Gaussian."""
    triangle = np.linalg.inv(np.linalg.cholesky(covariance))
    standard = (x - x.new_tensor(mean)) @ x.new_tensor(triangle.T)
    log_volume = np.log(np.diagonal(triangle)).sum() - 0.5 * len(mean) * log(2 * pi)
    return log_volume - 0.5 * standard.square().sum(-1)
