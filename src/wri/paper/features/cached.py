"""Features of environments of images, fitted once and kept on disk.

    x = (f(image) − m) / s,    m and s: mean and spread of f on the training environments' images

The extractor f is fitted on the training environments only. The extractor and the features are kept
in `cache_folder()/features`, in files whose names are hashes of all that they depend on: the
extractor with its options, the seed, the version of this package and the images (and labels, if f
uses them). Other data, another split or another seed have other names. A file is written to a
temporary name and renamed, holds its own key, and is made again if it cannot be read. Nothing in it
is pickled.
"""

import hashlib
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from wri.cache import cache_folder, open_atomic
from wri.datasets import Environment
from wri.errors import InputError
from wri.paper.features.extractors import Extractor
from wri.paper.features.networks import FeatureMap
from wri.paper.simulations import ColouredDigits
from wri.progress import Progress, silent

VERSION = 4  # raise it when the code computes other features
MEAN, SPREAD, KEY = "feature mean", "feature spread", "key"
UNREADABLE = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zlib.error)
FLAT = 1e-6  # share of the largest spread below which a column is constant up to rounding

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class FittedFeatures:
    """Fitted extractor with the scale of its features on the training images.

    Parameters
    ----------
    fitted : FeatureMap
        The feature map, without standardisation.
    mean : ndarray of shape (width,)
        Mean m of the features.
    spread : ndarray of shape (width,)
        Standard deviation s of the features.
    key : str
        Hash under which it is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import PCA, FittedFeatures
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 4, 4), dtype=np.uint8)
    >>> fitted = PCA(width=2).fit(images, np.zeros(8, int))
    >>> x = fitted.transform(images)
    >>> features = FittedFeatures(fitted, x.mean(0), x.std(0), key="")
    >>> features.transform(images).std(0).round(3)
    array([1., 1.], dtype=float32)
    """

    fitted: FeatureMap
    mean: np.ndarray
    spread: np.ndarray
    key: str

    def transform(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W] -> [N, width]
        """Compute standardised features of images.

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.

        Returns
        -------
        features : ndarray of shape (N, width)
            Features, float32.
        """
        return self.standardised(self.fitted.transform(images))

    def standardised(self, features: np.ndarray) -> np.ndarray:  # [N, width]
        """Standardise features: (f − m) / s; 0 in columns without spread.

        Parameters
        ----------
        features : ndarray of shape (N, width)
            Features of `fitted`.

        Returns
        -------
        features : ndarray of shape (N, width)
            Standardised features, float32.
        """
        flat = self.spread <= FLAT * self.spread.max()
        scale = np.where(flat, 0, 1 / np.where(flat, 1, self.spread))
        return ((features - self.mean) * scale).astype(np.float32)


def fitted_features(
    environments: Sequence[ColouredDigits],
    extractor: Extractor,
    train: Sequence[int] = (0, 1),
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = silent,
) -> FittedFeatures:
    """Fit an extractor on the training environments, for these and for other images.

    Parameters
    ----------
    environments : sequence of ColouredDigits
        Environments, or any objects with `name`, uint8 `images` `[n, C, H, W]` and labels `y`.
    extractor : Extractor
        `PCA()`, `Autoencoder()`, `CNN()` or another.
    train : sequence of int, default=(0, 1)
        Numbers of the environments to fit on.
    seed : int, default=0
        Seed of the fit.
    folder : Path or None, default=None
        Folder for the results. None: `cache_folder()/features`.
    progress : callable, default=silent
        Called with (done, of) during the fit.

    Returns
    -------
    features : FittedFeatures
        The fitted extractor.

    Raises
    ------
    InputError
        If images do not fit.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist
    >>> from wri.paper.features import PCA, fitted_features
    >>> pixels = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)
    >>> digits = Mnist(pixels, (np.arange(30) % 10).astype(np.uint8))
    >>> environments = coloured_mnist("cmnist", mnist=digits)
    >>> with TemporaryDirectory() as folder:
    ...     features = fitted_features(environments, PCA(width=2), folder=Path(folder))
    >>> features.transform(environments[2].images).shape
    (10, 2)
    """
    folder = folder or cache_folder() / "features"
    pictured = [(environments[e].images, environments[e].y) for e in train]
    return _fitted(pictured, extractor, seed, folder, progress)


def feature_environments(
    environments: Sequence[ColouredDigits],
    extractor: Extractor,
    train: Sequence[int] = (0, 1),
    seed: int = 0,
    folder: Path | None = None,
    progress: Progress = silent,
) -> list[Environment]:
    """Compute features of all environments with an extractor fitted on some of them.

    Each column has mean 0 and spread 1 over all training environments, or is 0 without spread.

    Parameters
    ----------
    environments : sequence of ColouredDigits
        Environments, or any objects with `name`, uint8 `images` `[n, C, H, W]` and labels `y`.
    extractor : Extractor
        `PCA()`, `Autoencoder()`, `CNN()` or another.
    train : sequence of int, default=(0, 1)
        Numbers of the environments to fit on; images of the others have no influence.
    seed : int, default=0
        Seed of the fit.
    folder : Path or None, default=None
        Folder for the results. None: `cache_folder()/features`.
    progress : callable, default=silent
        Called with (done, of) during the fit, which takes most of the time.

    Returns
    -------
    environments : list of Environment
        Environments of features.

    Raises
    ------
    InputError
        If images do not fit.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist
    >>> from wri.paper.features import PCA, feature_environments
    >>> pixels = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)
    >>> digits = Mnist(pixels, (np.arange(30) % 10).astype(np.uint8))
    >>> with TemporaryDirectory() as folder:
    ...     made = feature_environments(
    ...         coloured_mnist("cmnist", mnist=digits), PCA(width=2), folder=Path(folder)
    ...     )
    >>> [each.x.shape for each in made]
    [(10, 2), (10, 2), (10, 2)]
    """
    folder = folder or cache_folder() / "features"
    pictured = [(e.images, e.y) for e in environments]  # images are coloured once
    features = _fitted([pictured[e] for e in train], extractor, seed, folder, progress)
    made = []
    for environment, (images, y) in zip(environments, pictured, strict=True):
        x = _transformed(features, images, folder)
        made.append(Environment(environment.name, features.standardised(x), y))
    return made


def _fitted(
    training: Sequence[tuple[np.ndarray, np.ndarray]],
    extractor: Extractor,
    seed: int,
    folder: Path,
    progress: Progress,
) -> FittedFeatures:
    images, labels = (np.concatenate(each) for each in zip(*training, strict=True))
    name = type(extractor).__name__
    key = content_key(
        "fitted",
        VERSION,
        f"wri.features.{name.lower()}.{extractor!r}",  # keeps what earlier versions made in hours
        int(seed),
        images,
        labels if extractor.uses_labels else None,
    )

    def make() -> dict[str, np.ndarray]:
        fitted = extractor.fit(images, labels, seed, progress)
        x = fitted.transform(images)
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
        return FittedFeatures(extractor.restore(parameters, images.shape[1:]), mean, spread, key)

    return remembered(folder, key, make, use)


def _transformed(features: FittedFeatures, images: np.ndarray, folder: Path) -> np.ndarray:
    parameters = features.fitted.parameters()  # a fit on another machine may give others
    key = content_key("features", *(parameters[name] for name in sorted(parameters)), images)

    def make() -> dict[str, np.ndarray]:
        return {"x": features.fitted.transform(images)}

    return remembered(folder, key, make, lambda arrays: arrays["x"])


def content_key(*parts: object) -> str:
    """Return a hash of arrays (type, shape, bytes) and of other objects by their `repr`."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()[:32]


def remembered(
    folder: Path,
    key: str,
    make: Callable[[], Mapping[str, np.ndarray]],
    use: Callable[[dict[str, np.ndarray]], T],
) -> T:
    """Return the result of `use` for the arrays of a key, which are read or, if missing, made.

    `use` raises ValueError or KeyError for arrays that it does not know.
    """
    path = folder / f"{key}.npz"
    if path.exists():
        try:
            return use(_read(path, key))
        except (zipfile.BadZipFile, *UNREADABLE) as error:
            warnings.warn(f"{path} is damaged or foreign and is made again ({error})", stacklevel=2)
    arrays = dict(make())
    try:
        with open_atomic(path) as file:
            np.savez(file, allow_pickle=False, **arrays, **{KEY: np.array(key)})
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written ({error}), so these features will be made again next time; "
            "set WRI_CACHE to a folder with free space",
            stacklevel=2,
        )
    return use(arrays)


def _read(path: Path, key: str) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop(KEY)) != key:
        raise ValueError("it holds another key")
    return arrays
