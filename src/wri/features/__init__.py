"""Features of images: PCA, autoencoder, CNN, and fixed backbones for files of pictures."""

from wri.features.autoencoder import Autoencoder
from wri.features.backbones import BACKBONES, Backbone, load_backbone
from wri.features.cached import FittedFeatures, feature_environments, fitted_features
from wri.features.cnn import CNN
from wri.features.extraction import PictureFeatures, extract, picture_environments
from wri.features.extractor import Extractor, FeatureMap, InvertibleFeatureMap
from wri.features.pca import PCA
from wri.features.picture_files import Preprocessing

__all__ = [
    "BACKBONES",
    "CNN",
    "PCA",
    "Autoencoder",
    "Backbone",
    "Extractor",
    "FeatureMap",
    "FittedFeatures",
    "InvertibleFeatureMap",
    "PictureFeatures",
    "Preprocessing",
    "extract",
    "feature_environments",
    "fitted_features",
    "load_backbone",
    "picture_environments",
]
