"""Features of pictures by fixed backbones."""

from wri.features.backbones import BACKBONES, Backbone, load_backbone
from wri.features.extraction import PictureFeatures, extract, picture_environments
from wri.features.picture_files import Preprocessing
from wri.moved import find_moved

__getattr__ = find_moved(
    __name__,
    "wri.paper.features",
    (
        *("CNN", "PCA", "Autoencoder", "Extractor", "FeatureMap", "FittedFeatures"),
        *("InvertibleFeatureMap", "feature_environments", "fitted_features"),
    ),
)

__all__ = [
    "BACKBONES",
    "Backbone",
    "PictureFeatures",
    "Preprocessing",
    "extract",
    "load_backbone",
    "picture_environments",
]
