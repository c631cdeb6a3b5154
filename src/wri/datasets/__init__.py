"""Everything that yields environments."""

from wri.datasets.environments import Environment
from wri.datasets.gaussian2d import Gaussian2D
from wri.datasets.linear_gaussian import LinearGaussian

__all__ = ["Environment", "Gaussian2D", "LinearGaussian"]
