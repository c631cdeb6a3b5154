"""Environments of images as environments of features, fitted once and kept.

    x = (f(image) − m) / s,    m and s: mean and spread of f on the training environments' images

The extractor f is fitted on the training environments alone. It and the features are kept in
`cache_folder()/features`, in files whose names are hashes of all that they depend on: the
extractor with its options, the seed, this package's version and the images (and labels, where f
uses them). Other data, another split or another seed can only miss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from wri.cache import cache_folder
from wri.datasets import Environment
from wri.errors import InputError
from wri.features.archive import content_key, remembered
from wri.features.extractor import Extractor, FeatureMap, Shape, check_images
from wri.progress import Progress, silent

VERSION = 4  # of all that decides the features; raise it when the code gives others
MEAN, SPREAD = "feature mean", "feature spread"
FLAT = 1e-6  # of the largest spread: what is below is rounding


class ImageEnvironment(Protocol):
    """An environment before its features."""

    @property
    def name(self) -> str: ...
    @property
    def images(self) -> np.ndarray: ...  # [n, C, H, W], uint8
    @property
    def y(self) -> np.ndarray: ...  # [n]


@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """A fitted extractor and the scale of its features on the images it was fitted on.

    Parameters
    ----------
    fitted
        Gives the features as they come; reconstructs, where the extractor can.
    mean, spread
        m and s, `[width]`.
    key
        The hash under which it is kept.
    """

    fitted: FeatureMap
    mean: np.ndarray
    spread: np.ndarray
    key: str

    def transform(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W] -> [N, width]
        """Standardised features, float32."""
        return self.standardised(self.fitted.transform(images))

    def standardised(self, features: np.ndarray) -> np.ndarray:  # [N, width]
        """(f − m) / s; 0 in columns without spread."""
        flat = self.spread <= FLAT * self.spread.max()
        scale = np.where(flat, 0, 1 / np.where(flat, 1, self.spread))
        return ((features - self.mean) * scale).astype(np.float32)


def fitted_features(
    environments: Sequence[ImageEnvironment],
    extractor: Extractor,
    train: Sequence[int] = (0, 1),
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = silent,
) -> FittedFeatures:
    """The extractor fitted on the training environments, for these and for further images.

    The parameters are those of `feature_environments`.
    """
    return _fitted(_training(environments, train), extractor, seed, _folder(folder), progress)


def feature_environments(
    environments: Sequence[ImageEnvironment],
    extractor: Extractor,
    train: Sequence[int] = (0, 1),
    seed: int = 0,
    standardise: bool = True,
    folder: Path | None = None,
    progress: Progress = silent,
) -> list[Environment]:
    """Features of all environments, from an extractor fitted on some.

    Parameters
    ----------
    environments
        Each with a `name`, uint8 `images` `[n, C, H, W]` and labels `y`.
    extractor
        `PCA()`, `Autoencoder()`, `CNN()` or another.
    train
        Numbers of the environments to fit on; the others' images have no influence.
    seed
        Of the fitting.
    standardise
        Give every column mean 0 and spread 1 in the training environments together; columns
        without spread there become 0 everywhere.
    folder
        Where to keep what was computed; `cache_folder()/features` when not given.
    progress
        Of the fitting, which takes nearly all of the time.
    """
    pictured = [CachedPictures(e.name, e.images, e.y) for e in environments]
    for each in pictured:
        check_images(each.images)
    folder = _folder(folder)
    features = _fitted(_training(pictured, train), extractor, seed, folder, progress)
    made = []
    for name, images, y in pictured:
        x = _transformed(features, images, extractor.width, folder)
        made.append(Environment(name, features.standardised(x) if standardise else x, y))
    return made


class CachedPictures(NamedTuple):
    """Pictures that are made only once, where `images` is computed on demand."""

    name: str
    images: np.ndarray
    y: np.ndarray


class TrainingImages(NamedTuple):
    images: np.ndarray  # [N, C, H, W]
    labels: np.ndarray  # [N]


def _folder(given: Path | None) -> Path:
    return cache_folder() / "features" if given is None else given


def _training(environments: Sequence[ImageEnvironment], train: Sequence[int]) -> TrainingImages:
    """Images and labels of the training environments, one after the other."""
    if not train or len(set(train)) < len(train) or not set(train) <= set(range(len(environments))):
        raise InputError(
            f"train must name environments by number, 0 to {len(environments) - 1}, each once, "
            f"not {tuple(train)}"
        )
    chosen = [environments[e] for e in train]
    images = [e.images for e in chosen]
    for each in images:
        check_images(each)
    if len({each.shape[1:] for each in images}) > 1:
        shapes = ", ".join(f"{e.name} {i.shape[1:]}" for e, i in zip(chosen, images, strict=True))
        raise InputError(f"training images differ in shape: {shapes}; resize them to one")
    return TrainingImages(np.concatenate(images), np.concatenate([e.y for e in chosen]))


def _fitted(
    training: TrainingImages, extractor: Extractor, seed: int, folder: Path, progress: Progress
) -> FittedFeatures:
    shape: Shape = training.images.shape[1:]
    labels = training.labels if extractor.uses_labels else None
    kind = f"{type(extractor).__module__}.{extractor!r}"
    key = content_key("fitted", VERSION, kind, int(seed), training.images, labels)

    def make() -> dict[str, np.ndarray]:
        fitted = extractor.fit(*training, seed, progress)
        x = fitted.transform(training.images)
        if not np.isfinite(x).all():
            raise InputError(
                f"{extractor!r}: the features of the training images are not finite; "
                "try another seed or fewer epochs"
            )
        mean, spread = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
        return fitted.parameters() | {MEAN: mean, SPREAD: spread}

    def use(arrays: Mapping[str, np.ndarray]) -> FittedFeatures:
        parameters = dict(arrays)
        mean, spread = parameters.pop(MEAN), parameters.pop(SPREAD)
        return FittedFeatures(extractor.restore(parameters, shape), mean, spread, key)

    return remembered(folder, key, make, use)


def _transformed(
    features: FittedFeatures, images: np.ndarray, width: int, folder: Path
) -> np.ndarray:  # [N, width]
    def use(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        x = arrays["x"]
        if x.shape != (len(images), width) or x.dtype != np.float32:
            raise ValueError(f"it holds {x.dtype} of the shape {x.shape}")
        return x

    parameters = features.fitted.parameters()  # not their recipe: fitted elsewhere they may differ
    key = content_key("features", *(parameters[name] for name in sorted(parameters)), images)
    return remembered(folder, key, lambda: {"x": features.fitted.transform(images)}, use)
