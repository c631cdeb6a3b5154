"""One Gaussian per environment, with mean and covariance learned by the same objective.

    log d_e(x) = −½ ‖A_e (x − m_e)‖² + Σ_k log A_kk − ½ D log 2π

A_e is lower triangular with a positive diagonal, so A_eᵀA_e is the inverse covariance. The term
−log d is the negative log-likelihood: without a penalty its minimum has the moments of the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from wri.densities.base import Density, HyperValues
from wri.stacked import Packing


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
