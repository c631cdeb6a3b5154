"""The contract of an extractor: images in, a feature matrix out.

    fit(images, labels, seed, progress) -> Fitted,    transform: [N, C, H, W] -> [N, width]

An extractor is a frozen dataclass of options. It sees x = pixel / 127.5 − 1, in [−1, 1]. What
was fitted is given by plain arrays, `parameters`, from which `restore` makes it again. Everything
is computed in one thread: convolutions of small batches, such as the last of an epoch, are split
by the number of threads, so their rounding depends on it, and training makes rounding large.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.progress import Progress, silent
from wri.threads import one_thread

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""

ROWS = 512  # images a batch where nothing is trained
FEWEST = 2  # images to fit on


class FeatureMap(ABC):
    """A feature map with fixed parameters, for images of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def transform(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W] -> [N, width]
        """Features of uint8 images, as float32."""
        return self._batched(self.encode, images)

    @abstractmethod
    def parameters(self) -> dict[str, np.ndarray]:
        """All that `Extractor.restore` needs besides the shape."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, width]
        """Features of images on the scale of x."""

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


class InvertibleFeatureMap(FeatureMap):
    """A feature map that has a way back to images."""

    def reconstruct(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W], in [−1, 1]
        """What the features keep of the images, as float32 on the scale of x."""
        return self._batched(lambda x: self.decode(self.encode(x)), images)

    def reconstruction_error(self, images: np.ndarray) -> float:
        """Mean over images and pixels of (x − reconstruction)²."""

        def squares(x: Tensor) -> Tensor:  # [B]
            return (x - self.decode(self.encode(x))).square().mean((1, 2, 3))

        return float(self._batched(squares, images).mean(dtype=np.float64))

    @abstractmethod
    def decode(self, features: Tensor) -> Tensor:  # [B, width] -> [B, C, H, W]
        """The way back."""


class Extractor(ABC):
    """Options of a feature map; subclasses are frozen dataclasses."""

    uses_labels: ClassVar[bool] = False
    width: int

    def fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int = 0, progress: Progress = silent
    ) -> FeatureMap:
        """Fit to training images.

        Parameters
        ----------
        images
            uint8, `[N, C, H, W]`.
        labels
            Whole numbers, `[N]`; only extractors with `uses_labels` look at them.
        seed
            Of initial weights and the order of images; the same seed gives the same features,
            whatever the number of threads. PyTorch's global generator stays as it is.
        progress
            Called with (done, of) after every step.
        """
        check_images(images)
        name = type(self).__name__
        if len(images) < FEWEST:
            raise InputError(f"{name}: {len(images)} image to fit on; give at least {FEWEST}")
        labels = np.asarray(labels)
        if labels.shape != (len(images),) or labels.dtype.kind not in "iub":
            raise InputError(
                f"{name}: labels must be {len(images)} whole numbers, one for each image, not "
                f"{labels.dtype} of the shape {labels.shape}"
            )
        with one_thread():
            return self._fit(images, labels.astype(np.int64), seed, progress)

    @abstractmethod
    def restore(self, parameters: Mapping[str, np.ndarray], shape: Shape) -> FeatureMap:
        """What `fit` gave, from its parameters; ValueError when they are not of this extractor."""

    @abstractmethod
    def _fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int, progress: Progress
    ) -> FeatureMap: ...


def scaled(images: np.ndarray) -> Tensor:  # [B, C, H, W], uint8 -> float32
    """x = pixel / 127.5 − 1."""
    return torch.from_numpy(images.astype(np.float32, order="C")).div_(127.5).sub_(1)


def check_images(images: np.ndarray) -> None:
    """Refuse what is not uint8 `[N, C, H, W]` with something in it."""
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
    """Refuse images that convolutions would reduce to nothing."""
    if min(shape[1:]) < smallest:
        raise InputError(
            f"{type(extractor).__name__}: images of {shape[1]} × {shape[2]} pixels are too small; "
            f"enlarge them to {smallest} × {smallest} at least, or take PCA"
        )


def check_whole(extractor: Extractor, **options: Any) -> None:
    """Refuse options that are not whole numbers from 1 up."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                f"{type(extractor).__name__}: {name} must be a whole number from 1 up, "
                f"not {value!r}"
            )
