"""Features of coloured digits, kept by content hash: PCA, autoencoder and CNN."""

from wri.paper.features.autoencoder import Autoencoder
from wri.paper.features.cached import FittedFeatures, feature_environments, fitted_features
from wri.paper.features.cnn import CNN
from wri.paper.features.extractor import Extractor, FeatureMap, InvertibleFeatureMap
from wri.paper.features.pca import PCA

__all__ = [
    "CNN",
    "PCA",
    "Autoencoder",
    "Extractor",
    "FeatureMap",
    "FittedFeatures",
    "InvertibleFeatureMap",
    "feature_environments",
    "fitted_features",
]
