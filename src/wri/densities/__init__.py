"""Densities of environments: how common a point is in each environment."""

from wri.densities.base import Density
from wri.densities.bounded import Bounded
from wri.densities.classifier import EnvironmentClassifier, FittedClassifier
from wri.densities.gaussian import Exact, Gaussian, Mixture
from wri.densities.label_aware import LabelAwareClassifier
from wri.densities.label_logistic import LabelLogistic

DENSITIES: dict[str, type[Density]] = {
    kind.__name__: kind
    for kind in (
        Bounded,
        EnvironmentClassifier,
        FittedClassifier,
        Gaussian,
        LabelAwareClassifier,
        LabelLogistic,
        Mixture,
    )
}
"""Densities that can be saved, by name; `Exact` holds a function and cannot."""

__all__ = [
    "DENSITIES",
    "Bounded",
    "Density",
    "EnvironmentClassifier",
    "Exact",
    "FittedClassifier",
    "Gaussian",
    "LabelAwareClassifier",
    "LabelLogistic",
    "Mixture",
]
