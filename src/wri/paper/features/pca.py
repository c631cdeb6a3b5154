"""Principal components: the linear features that keep most of the variance.

    f(x) = Vᵀ(x − m),    m = E[x],    E[(x − m)(x − m)ᵀ] V = V Λ

V holds the eigenvectors of the largest eigenvalues; the reconstruction is m + V f. It takes seconds
for tens of thousands of small images, and is the same on every machine up to rounding.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor, nn

from wri.errors import InputError
from wri.paper.features.extractor import (
    Extractor,
    FeatureMap,
    InvertibleFeatureMap,
    Shape,
    check_whole,
)
from wri.progress import Progress

EXACT = 256  # 256 · 255² < 2²⁴: sums of this many products of pixels are exact in float32
MOST_PIXELS = 8192  # channels included; the covariance then takes half a gigabyte


@dataclass(frozen=True)
class PCA(Extractor):
    """Principal components of the pixels.

        f(x) = Vᵀ(x − m)

    Parameters
    ----------
    width : int, default=64
        Number of components; at most the number of pixels, and fewer than images.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import PCA
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 4, 4), dtype=np.uint8)
    >>> PCA(width=2).fit(images, np.zeros(8, int)).transform(images).shape
    (8, 2)
    """

    width: int = 64

    def __post_init__(self) -> None:
        check_whole(self, width=self.width)

    def restore(self, parameters: Mapping[str, np.ndarray], shape: Shape) -> "FittedPCA":
        """Restore fitted components from their parameters.

        Parameters
        ----------
        parameters : mapping of str to ndarray
            From `FeatureMap.parameters`.
        shape : tuple of int
            Channels, height and width of an image.

        Returns
        -------
        fitted : FittedPCA
            The feature map.
        """
        mean, components = parameters["mean"], parameters["components"]
        if components.shape != (int(np.prod(shape)), self.width) or mean.shape != shape:
            raise ValueError(f"components of the shape {components.shape} are not of {self}")
        return FittedPCA(mean, components)

    def _fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int, progress: Progress
    ) -> FeatureMap:
        n, *shape = images.shape
        size = int(np.prod(shape))
        if size > MOST_PIXELS:
            raise InputError(
                f"images of {size} pixels are too large for PCA; shrink them to {MOST_PIXELS}, or "
                "use another extractor"
            )
        most = min(n - 1, size)
        if self.width > most:
            raise InputError(
                f"PCA: {n} images of {size} pixels have at most {most} components; "
                f"lower width from {self.width}, or give more images"
            )
        mean, covariance = _moments(images.reshape(n, size), progress)
        components = eigh(covariance, subset_by_index=(size - self.width, size - 1))[1][:, ::-1]
        largest = np.take_along_axis(components, np.abs(components).argmax(0)[None], axis=0)
        components = components * np.sign(largest)  # the sign of an eigenvector is arbitrary
        return FittedPCA(
            mean.reshape(shape).astype(np.float32),
            np.ascontiguousarray(components, dtype=np.float32),
        )


class FittedPCA(InvertibleFeatureMap):
    """Fitted components: m `[C, H, W]` and V `[pixels, width]`."""

    def __init__(self, mean: np.ndarray, components: np.ndarray) -> None:
        super().__init__(nn.Module(), mean.shape)
        self._mean, self._components = torch.from_numpy(mean), torch.from_numpy(components)
        self.network.register_buffer("mean", self._mean)
        self.network.register_buffer("components", self._components)

    def encode(self, x: Tensor) -> Tensor:
        return (x - self._mean).flatten(1) @ self._components

    def decode(self, features: Tensor) -> Tensor:
        return (features @ self._components.T).unflatten(1, self.shape) + self._mean


def _moments(pixels: np.ndarray, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    """Return mean `[P]` and covariance `[P, P]` of x from uint8 pixels `[N, P]`.

    The sums are whole numbers and exact, so they depend neither on batches nor on threads.
    """
    n, size = pixels.shape
    products = torch.zeros(size, size, dtype=torch.float64)
    for start in range(0, n, EXACT):
        batch = torch.from_numpy(pixels[start : start + EXACT].astype(np.float32))
        products += batch.T @ batch
        progress(min(start + EXACT, n), n)
    mean = pixels.sum(0, dtype=np.int64) / n
    covariance = products.numpy() / n - np.outer(mean, mean)
    return mean / 127.5 - 1, covariance / 127.5**2
