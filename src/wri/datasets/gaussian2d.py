"""The two-dimensional classification of Figure 1 (appendix E.1).

    X_inv ~ N(0, s_e²),   Y = 1[X_inv + ε > 0],  ε ~ N(0, 1),   X_spu | Y ~ N(±m_e, t_e²)

P(Y = 1 | x_inv) is the same everywhere and hardest to tell near x_inv = 0, so environment 2, which
is narrow, holds the harder cases: heteroskedastic, with invariant covariate shift. In environment
3 the spurious feature points the other way.
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
import torch
from torch import Tensor

from wri.datasets.environments import Environment
from wri.errors import InputError


@dataclass(frozen=True)
class Gaussian2D:
    """Environments given by three numbers each; those of the paper by default.

    Parameters
    ----------
    invariant_sd
        s_e, standard deviation of the invariant feature.
    spurious_mean
        m_e, mean of the spurious feature where Y = 1; where Y = 0 it is −m_e.
    spurious_sd
        t_e, its standard deviation for either class.
    """

    invariant_sd: tuple[float, ...] = (2.0, 0.5, 3.0)
    spurious_mean: tuple[float, ...] = (-1.0, -1.0, 1.0)
    spurious_sd: tuple[float, ...] = (0.5, 2.0, 1.0)

    def __post_init__(self) -> None:
        lengths = {len(self.invariant_sd), len(self.spurious_mean), len(self.spurious_sd)}
        if len(lengths) != 1:
            raise InputError("invariant_sd, spurious_mean and spurious_sd must be equally long")
        if min(self.invariant_sd) <= 0 or min(self.spurious_sd) <= 0:
            raise InputError("invariant_sd and spurious_sd must be positive")

    def sample(self, n: int, seed: int) -> list[Environment]:
        """n rows of each environment: columns x_inv, x_spu; classes 0 and 1."""
        environments = []
        for e, (sd, mean, spread) in enumerate(
            zip(self.invariant_sd, self.spurious_mean, self.spurious_sd, strict=True)
        ):
            random = np.random.default_rng([seed, e])
            invariant = random.normal(0, sd, n)
            y = (invariant + random.normal(size=n) > 0).astype(int)
            spurious = random.normal((2 * y - 1) * mean, spread)
            x = np.stack([invariant, spurious], axis=1)
            environments.append(Environment(f"environment {e + 1}", x, y))
        return environments

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """log p_e(x_inv)."""
        return _log_normal(x[..., :1], 0.0, self._row(x, self.invariant_sd))

    def log_joint(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """log p_e(x_inv, x_spu)."""
        return self.log_invariant(x) + self._log_spurious(x).logsumexp(-1)

    def probability(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """P_e(Y = 1 | x_inv, x_spu)."""
        return self._log_spurious(x).softmax(-1)[..., 1]

    @staticmethod
    def invariant_probability(x_inv: Tensor) -> Tensor:
        """P(Y = 1 | x_inv), the same in every environment."""
        return torch.special.ndtr(x_inv)

    def _log_spurious(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E, class]
        """log p(y | x_inv) + log p_e(x_spu | y)."""
        mean, spread = self._row(x, self.spurious_mean), self._row(x, self.spurious_sd)
        classes = []
        for sign in (-1.0, 1.0):
            label = torch.special.log_ndtr(sign * x[..., :1])
            classes.append(label + _log_normal(x[..., 1:], sign * mean, spread))
        return torch.stack(classes, dim=-1)

    @staticmethod
    def _row(x: Tensor, values: tuple[float, ...]) -> Tensor:  # [E]
        return x.new_tensor(values)

    def best_accuracy(self, environment: int) -> float:
        """Accuracy of sign(x_inv), the best that x_inv allows."""
        return 0.5 + float(np.arctan(self.invariant_sd[environment])) / pi


def _log_normal(x: Tensor, mean: Tensor | float, sd: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / sd).square() - sd.log() - log(sqrt(2 * pi))
