"""The two-dimensional classification of Figure 1 (appendix E.1).

    X_inv ~ N(c_e, s_e²),   Y = 1[X_inv + ε > 0],  ε ~ N(0, 1),   X_spu | Y ~ N(±m_e, t_e²)

P(Y = 1 | x_inv) is the same everywhere and most uncertain near x_inv = 0, so environment 2, which
is narrow, holds the harder cases: heteroskedastic, with invariant covariate shift. In environment
3 the spurious feature has the opposite sign.
"""

from dataclasses import dataclass
from math import log, pi, sqrt

import numpy as np
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from wri.datasets.environments import Environment
from wri.errors import InputError


@dataclass(frozen=True)
class Gaussian2D:
    """Two-dimensional Gaussian classification; by default that of the paper's Figure 1.

        X_inv ~ N(c_e, s_e²),   Y = 1[X_inv + ε > 0],  ε ~ N(0, 1),   X_spu | Y ~ N(±m_e, t_e²)

    Parameters
    ----------
    invariant_sd : tuple of float, default=(2.0, 0.5, 3.0)
        s_e, standard deviation of the invariant feature.
    spurious_mean : tuple of float, default=(-1.0, -1.0, 1.0)
        m_e, mean of the spurious feature for Y = 1; for Y = 0 it is −m_e.
    spurious_sd : tuple of float, default=(0.5, 2.0, 1.0)
        t_e, its standard deviation for both classes.
    invariant_mean : tuple of float or None, default=None
        c_e, mean of the invariant feature. None: zeros.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024, appendix E.1.

    Examples
    --------
    >>> from wri.datasets import Gaussian2D
    >>> environments = Gaussian2D().sample(n=10, seed=0)
    >>> [each.x.shape for each in environments]
    [(10, 2), (10, 2), (10, 2)]
    >>> round(Gaussian2D().best_accuracy(0), 3)
    0.852
    """

    invariant_sd: tuple[float, ...] = (2.0, 0.5, 3.0)
    spurious_mean: tuple[float, ...] = (-1.0, -1.0, 1.0)
    spurious_sd: tuple[float, ...] = (0.5, 2.0, 1.0)
    invariant_mean: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        given = (self.invariant_sd, self.spurious_mean, self.spurious_sd, self._centres)
        if len({*map(len, given)}) != 1 or min(*self.invariant_sd, *self.spurious_sd) <= 0:
            raise InputError(
                "invariant_sd, spurious_mean, spurious_sd and invariant_mean must be equally long, "
                "and standard deviations positive"
            )

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
            Columns x_inv, x_spu; classes 0 and 1.
        """
        environments = []
        for e, centre in enumerate(self._centres):
            random = np.random.default_rng([seed, e])
            invariant = random.normal(centre, self.invariant_sd[e], n)
            y = (invariant + random.normal(size=n) > 0).astype(int)
            spurious = random.normal((2 * y - 1) * self.spurious_mean[e], self.spurious_sd[e])
            x = np.stack([invariant, spurious], axis=1)
            environments.append(Environment(f"environment {e + 1}", x, y))
        return environments

    def log_invariant(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return log p_e(x_inv).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., E)
            Log densities.
        """
        centre, sd = x.new_tensor(self._centres), x.new_tensor(self.invariant_sd)  # [E]
        return _log_normal(x[..., :1], centre, sd)

    def log_joint(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return log p_e(x_inv, x_spu).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        logs : Tensor of shape (..., E)
            Log densities.
        """
        return self.log_invariant(x) + self._log_spurious(x).logsumexp(-1)

    def probability(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E]
        """Return P_e(Y = 1 | x_inv, x_spu).

        Parameters
        ----------
        x : Tensor of shape (..., 2)
            Points.

        Returns
        -------
        probabilities : Tensor of shape (..., E)
            Probability in each environment.
        """
        return self._log_spurious(x).softmax(-1)[..., 1]

    @staticmethod
    def invariant_probability(x_inv: Tensor) -> Tensor:
        """Return P(Y = 1 | x_inv), the same in every environment.

        Parameters
        ----------
        x_inv : Tensor
            Invariant feature.

        Returns
        -------
        probabilities : Tensor
            Probabilities in the shape of `x_inv`.
        """
        return torch.special.ndtr(x_inv)

    def _log_spurious(self, x: Tensor) -> Tensor:  # [..., 2] -> [..., E, class]
        """Return log p(y | x_inv) + log p_e(x_spu | y)."""
        mean, spread = x.new_tensor(self.spurious_mean), x.new_tensor(self.spurious_sd)  # [E]
        classes = []
        for sign in (-1.0, 1.0):
            label = torch.special.log_ndtr(sign * x[..., :1])
            classes.append(label + _log_normal(x[..., 1:], sign * mean, spread))
        return torch.stack(classes, dim=-1)

    @property
    def _centres(self) -> tuple[float, ...]:
        return self.invariant_mean or (0.0,) * len(self.invariant_sd)

    def best_accuracy(self, environment: int) -> float:
        """Return the accuracy of sign(x_inv), the best that x_inv allows: `E[Φ(|X_inv|)]`.

        Parameters
        ----------
        environment : int
            Number of the environment.

        Returns
        -------
        accuracy : float
            Accuracy from 0 to 1.
        """
        centre, sd = self._centres[environment], self.invariant_sd[environment]
        positive, negative = (
            quad(lambda x: norm.pdf(x, centre, sd) * norm.cdf(abs(x)), *ends)[0]
            for ends in ((0, np.inf), (-np.inf, 0))
        )
        return float(positive + negative)


def _log_normal(x: Tensor, mean: Tensor | float, sd: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / sd).square() - sd.log() - log(sqrt(2 * pi))
