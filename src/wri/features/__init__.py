"""What turns images into feature matrices, with its own plain fitting."""

from wri.features.autoencoder import Autoencoder
from wri.features.cached import FittedFeatures, feature_environments, fitted_features
from wri.features.cnn import CNN
from wri.features.extractor import Extractor, Fitted, Reconstructing
from wri.features.pca import PCA

__all__ = [
    "CNN",
    "PCA",
    "Autoencoder",
    "Extractor",
    "Fitted",
    "FittedFeatures",
    "Reconstructing",
    "feature_environments",
    "fitted_features",
]
