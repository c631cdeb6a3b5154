"""Features of pictures by fixed backbones, and feature layers that are trained on them."""

from wri.features.backbones import BACKBONES, Backbone, Preprocessing, load_backbone
from wri.features.extraction import PictureFeatures, extract, picture_environments
from wri.features.feature_layer import FeatureLayer
from wri.moved import find_moved

__getattr__ = find_moved(
    __name__,
    "wri.paper.features",
    (
        *("CNN", "PCA", "Autoencoder", "Extractor", "FeatureMap", "FittedFeatures"),
        *("feature_environments", "fitted_features"),
    ),
)

__all__ = [
    "BACKBONES", "Backbone", "FeatureLayer", "PictureFeatures", "Preprocessing", "extract",
    "load_backbone", "picture_environments",
]  # fmt: skip
