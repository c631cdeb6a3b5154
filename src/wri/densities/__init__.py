"""How common a point is in each environment."""

from wri.densities.base import Density
from wri.densities.bounded import Bounded
from wri.densities.classifier import EnvironmentClassifier, FittedClassifier
from wri.densities.exact import Exact
from wri.densities.gaussian import Gaussian
from wri.densities.mixture import Mixture

__all__ = [
    "Bounded",
    "Density",
    "EnvironmentClassifier",
    "Exact",
    "FittedClassifier",
    "Gaussian",
    "Mixture",
]
