"""The contract of an extractor: from images to a feature matrix.

    fit(images, labels, seed, progress) -> Fitted,    transform: [N, C, H, W] -> [N, width]

An extractor is a frozen dataclass of options. It sees x = pixel / 127.5 − 1, in [−1, 1]. A fitted
extractor is given by plain arrays, `parameters`, from which `restore` makes it again. All is
computed in one thread: convolutions of small batches, such as the last of an epoch, are split by
the number of threads, so their rounding depends on it, and training amplifies rounding.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from wri.errors import InputError
from wri.progress import Progress, silent
from wri.threads import one_thread

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""

ROWS = 512  # images per batch in evaluation
FEWEST = 2  # images to fit on


class FeatureMap:
    """Feature map with fixed parameters, for images of one shape.

    Parameters
    ----------
    network : torch.nn.Module
        Module from scaled images to features.
    shape : tuple of int
        Channels, height and width of an image.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width of an image.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import PCA, FeatureMap
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 4, 4), dtype=np.uint8)
    >>> fitted = PCA(width=2).fit(images, np.zeros(8, int))
    >>> isinstance(fitted, FeatureMap), fitted.shape
    (True, (1, 4, 4))
    """

    def __init__(self, network: nn.Module, shape: Shape) -> None:
        self.network, self.shape = network, shape

    def transform(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W] -> [N, width]
        """Compute features of images.

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.

        Returns
        -------
        features : ndarray of shape (N, width)
            Features, float32.
        """
        return self._batched(self.encode, images)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return all that `Extractor.restore` needs besides the shape.

        Returns
        -------
        parameters : dict of str to ndarray
            Arrays by name.
        """
        return {name: value.detach().numpy() for name, value in self.network.state_dict().items()}

    def encode(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, width]
        """Compute features of scaled images.

        Parameters
        ----------
        x : Tensor of shape (B, C, H, W)
            Images in [−1, 1].

        Returns
        -------
        features : Tensor of shape (B, width)
            Features.
        """
        features: Tensor = self.network(x)
        return features

    def _batched(self, function: Callable[[Tensor], Tensor], images: np.ndarray) -> np.ndarray:
        check_images(images)
        if images.shape[1:] != self.shape:
            raise InputError(
                f"images of the shape {images.shape[1:]} were given to an extractor fitted on "
                f"{self.shape}; resize them, or fit another"
            )
        with one_thread(), torch.inference_mode():
            starts = range(0, len(images), ROWS)
            batches = [function(scaled(images[start : start + ROWS])) for start in starts]
        return torch.cat(batches).numpy()


class InvertibleFeatureMap(FeatureMap, ABC):
    """Feature map that can reconstruct images.

    Parameters
    ----------
    network : torch.nn.Module
        Module with the parameters of both directions.
    shape : tuple of int
        Channels, height and width of an image.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import PCA, InvertibleFeatureMap
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 2, 2), dtype=np.uint8)
    >>> fitted = PCA(width=4).fit(images, np.zeros(8, int))
    >>> isinstance(fitted, InvertibleFeatureMap), round(fitted.reconstruction_error(images), 6)
    (True, 0.0)
    """

    def reconstruct(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W], in [−1, 1]
        """Reconstruct images from their features.

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.

        Returns
        -------
        reconstructions : ndarray of shape (N, C, H, W)
            Images in [−1, 1], float32.
        """
        return self._batched(lambda x: self.decode(self.encode(x)), images)

    def reconstruction_error(self, images: np.ndarray) -> float:
        """Return the mean over images and pixels of (x − reconstruction)².

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.

        Returns
        -------
        error : float
            Mean squared error.
        """

        def squares(x: Tensor) -> Tensor:  # [B]
            return (x - self.decode(self.encode(x))).square().mean((1, 2, 3))

        return float(self._batched(squares, images).mean(dtype=np.float64))

    @abstractmethod
    def decode(self, features: Tensor) -> Tensor:  # [B, width] -> [B, C, H, W]
        """Compute images from features.

        Parameters
        ----------
        features : Tensor of shape (B, width)
            Features.

        Returns
        -------
        x : Tensor of shape (B, C, H, W)
            Images in [−1, 1].
        """


class Extractor(ABC):
    """Base class of extractors: options of a feature map.

    Subclasses are frozen dataclasses.

    Attributes
    ----------
    width : int
        Number of features.
    uses_labels : bool
        Whether the fit uses labels.

    Examples
    --------
    >>> from wri.paper.features import CNN, PCA, Extractor
    >>> isinstance(PCA(), Extractor), PCA.uses_labels, CNN.uses_labels
    (True, False, True)
    """

    uses_labels: ClassVar[bool] = False
    width: int

    def fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int = 0, progress: Progress = silent
    ) -> FeatureMap:
        """Fit to training images.

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.
        labels : ndarray of shape (N,)
            Whole numbers; only extractors with `uses_labels` use them.
        seed : int, default=0
            Seed of initial weights and the order of images. The same seed gives the same features,
            whatever the number of threads. PyTorch's global generator is not used.
        progress : callable, default=silent
            Called with (done, of) after each step.

        Returns
        -------
        fitted : FeatureMap
            The feature map.

        Raises
        ------
        InputError
            If images or labels have a wrong type or shape.
        """
        check_images(images)
        name = type(self).__name__
        if len(images) < FEWEST:
            raise InputError(f"{name}: {len(images)} image to fit on; give at least {FEWEST}")
        labels = np.asarray(labels)
        if labels.shape != (len(images),) or labels.dtype.kind not in "iub":
            raise InputError(
                f"{name}: labels must be {len(images)} whole numbers, one per image, not "
                f"{labels.dtype} of the shape {labels.shape}"
            )
        with one_thread():
            return self._fit(images, labels.astype(np.int64), seed, progress)

    @abstractmethod
    def restore(self, parameters: Mapping[str, np.ndarray], shape: Shape) -> FeatureMap:
        """Restore a fitted extractor from its parameters.

        Parameters
        ----------
        parameters : mapping of str to ndarray
            From `FeatureMap.parameters`.
        shape : tuple of int
            Channels, height and width of an image.

        Returns
        -------
        fitted : FeatureMap
            The feature map.

        Raises
        ------
        ValueError
            If the parameters belong to another extractor.
        """

    @abstractmethod
    def _fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int, progress: Progress
    ) -> FeatureMap: ...


def scaled(images: np.ndarray) -> Tensor:  # [B, C, H, W], uint8 -> float32
    """Return x = pixel / 127.5 − 1."""
    return torch.from_numpy(images.astype(np.float32, order="C")).div_(127.5).sub_(1)


def check_images(images: np.ndarray) -> None:
    """Refuse anything but uint8 `[N, C, H, W]` with at least one image."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        found = images.dtype if isinstance(images, np.ndarray) else type(images).__name__
        raise InputError(
            f"images must be a NumPy array of uint8 pixels, not {found}; scale them to 0 … 255 "
            "and use .astype(np.uint8)"
        )
    if images.ndim != 4 or 0 in images.shape:
        raise InputError(
            f"images must have the shape [N, C, H, W] and not be empty, not {images.shape}; "
            "give grey ones a channel axis by images[:, None]"
        )


def check_size(extractor: Extractor, shape: Shape, smallest: int) -> None:
    """Refuse images that are too small for the convolutions."""
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{type(extractor).__name__}: images of {shape[1]} × {shape[2]} pixels are too small; "
            f"enlarge them to at least {smallest} × {smallest}, or use PCA"
        )


def check_whole(extractor: Extractor, **options: Any) -> None:
    """Refuse options that are not whole numbers of at least 1."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                f"{type(extractor).__name__}: {name} must be a whole number of at least 1, "
                f"not {value!r}"
            )
