"""Features of coloured digits, kept by content hash: PCA, autoencoder and CNN."""

from wri.paper.features.cached import FittedFeatures, feature_environments, fitted_features
from wri.paper.features.extractors import CNN, PCA, Autoencoder, Extractor
from wri.paper.features.networks import FeatureMap

__all__ = [
    "CNN",
    "PCA",
    "Autoencoder",
    "Extractor",
    "FeatureMap",
    "FittedFeatures",
    "feature_environments",
    "fitted_features",
]
