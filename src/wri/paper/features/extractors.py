"""Extractors: from images to a feature matrix.

    fit(images, labels, seed, progress) -> FeatureMap,    transform: [N, C, H, W] -> [N, width]

An extractor is a frozen dataclass of options. A fitted extractor is given by plain arrays,
`parameters`, from which `restore` makes it again.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from wri.errors import InputError
from wri.paper.features.networks import FeatureMap, LabelledImages, train, undrawn
from wri.progress import Progress, silent
from wri.threads import one_thread

Shape = tuple[int, int, int]
"""Channels, height and width of an image."""

HIDDEN = 512  # units of the autoencoder's decoder
EXACT = 256  # 256 · 255² < 2²⁴: sums of this many products of pixels are exact in float32


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
            If the images have a wrong type or shape, or are too few.
        """
        if images.dtype != np.uint8 or images.ndim != 4:
            raise InputError(
                f"images must be uint8 pixels [N, C, H, W], not {images.dtype} of the shape "
                f"{images.shape}; scale them to 0 … 255, and give grey ones a channel axis"
            )
        network = self._network(images.shape[1:])
        with one_thread():
            self._fit(network, (images, labels.astype(np.int64)), seed, progress)
        return FeatureMap(network)

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
        network = self._network(shape)
        found = {name: array.shape for name, array in parameters.items()}
        if found != {name: tuple(value.shape) for name, value in network.state_dict().items()}:
            raise ValueError(f"its arrays are not those of {self}")
        network.load_state_dict({n: torch.from_numpy(array) for n, array in parameters.items()})
        return FeatureMap(network.eval())

    @abstractmethod
    def _network(self, shape: Shape) -> nn.Module:
        """Return the network with unset weights."""

    @abstractmethod
    def _fit(self, network: Any, data: LabelledImages, seed: int, progress: Progress) -> None:
        """Set the network's weights."""


@dataclass(frozen=True)
class PCA(Extractor):
    """Principal components of the pixels: the linear features that keep most of the variance.

        f(x) = Vᵀ(x − m),    m = E[x],    E[(x − m)(x − m)ᵀ] V = V Λ

    V holds the eigenvectors of the largest eigenvalues; the reconstruction is m + V f. It takes
    seconds for tens of thousands of small images, and is the same on every machine up to rounding.

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

    def _network(self, shape: Shape) -> nn.Module:
        return _PrincipalComponents(shape, self.width)

    def _fit(self, network: Any, data: LabelledImages, seed: int, progress: Progress) -> None:
        images, _ = data
        n, *shape = images.shape
        size = int(np.prod(shape))
        if self.width > min(n - 1, size):
            raise InputError(
                f"PCA: {n} images of {size} pixels have at most {min(n - 1, size)} components; "
                f"lower width from {self.width}, or give more images"
            )
        mean, covariance = _moments(images.reshape(n, size), progress)
        components = eigh(covariance, subset_by_index=(size - self.width, size - 1))[1][:, ::-1]
        largest = np.take_along_axis(components, np.abs(components).argmax(0)[None], axis=0)
        components = components * np.sign(largest)  # the sign of an eigenvector is arbitrary
        network.mean = torch.from_numpy(mean.reshape(shape).astype(np.float32))
        network.components = torch.from_numpy(np.ascontiguousarray(components, dtype=np.float32))


class _PrincipalComponents(nn.Module):
    mean: Tensor  # m, [C, H, W]
    components: Tensor  # V, [pixels, width]

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("components", torch.zeros(int(np.prod(shape)), width))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean).flatten(1) @ self.components

    def decode(self, features: Tensor) -> Tensor:
        return (features @ self.components.T).unflatten(1, self.mean.shape) + self.mean


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


@dataclass(frozen=True)
class Autoencoder(Extractor):
    """Convolutional autoencoder of the paper; its features are the bottleneck.

        encoder   conv5-16, ReLU, conv5-32, batch norm, ReLU, linear to the width
        loss      mean (x − decoder(encoder(x)))²,  Adam 4e-4, weight decay 2e-5, batches of 64

    Stride 1 without padding is our reading: 28 × 28 pixels become 32 × 20 × 20 numbers before the
    linear layer. The paper does not describe the decoder; ours has one hidden layer of 512 units
    and tanh at the end. `studies/autoencoder_decoders.py` compares it with others, for instance the
    mirror image of the encoder, which takes twice the time.

    Parameters
    ----------
    width : int, default=64
        Width of the bottleneck; 64 and 32 in the paper.
    epochs : int, default=20
        Passes over the training images; 20 in the paper.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import Autoencoder
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 12, 12), dtype=np.uint8)
    >>> fitted = Autoencoder(width=2, epochs=1).fit(images, np.zeros(8, int))
    >>> fitted.transform(images).shape, fitted.reconstruct(images).shape
    ((8, 2), (8, 1, 12, 12))
    """

    width: int = 64
    epochs: int = 20

    def encoder(self, shape: Shape) -> nn.Module:
        """Make the encoder.

        Parameters
        ----------
        shape : tuple of int
            Channels, height and width of an image.

        Returns
        -------
        encoder : torch.nn.Module
            From images to the bottleneck.
        """
        channels, height, width = shape
        convolutions = nn.Conv2d(channels, 16, 5), nn.ReLU(), nn.Conv2d(16, 32, 5)
        linear = nn.Linear(32 * (height - 8) * (width - 8), self.width)
        return nn.Sequential(*convolutions, nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), linear)

    def decoder(self, shape: Shape) -> nn.Module:
        """Make the decoder.

        Parameters
        ----------
        shape : tuple of int
            Channels, height and width of an image.

        Returns
        -------
        decoder : torch.nn.Module
            From the bottleneck to images.
        """
        first, last = nn.Linear(self.width, HIDDEN), nn.Linear(HIDDEN, int(np.prod(shape)))
        return nn.Sequential(first, nn.ReLU(), last, nn.Tanh(), nn.Unflatten(1, shape))

    def _network(self, shape: Shape) -> nn.Module:
        return undrawn(lambda: _EncoderDecoder(self.encoder(shape), self.decoder(shape)))

    def _fit(self, network: Any, data: LabelledImages, seed: int, progress: Progress) -> None:
        def loss(x: Tensor, _: Tensor) -> Tensor:
            return mse_loss(network.decode(network(x)), x)

        train(network, loss, data, self.epochs, (4e-4, 2e-5), seed, progress)


class _EncoderDecoder(nn.Module):
    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, width]
        return self.encoder(x)

    def decode(self, features: Tensor) -> Tensor:  # [B, width] -> [B, C, H, W]
        return self.decoder(features)


@dataclass(frozen=True)
class CNN(Extractor):
    """Small convolutional classifier; its features are the layer before the last.

        conv5-16, ReLU, pool 2, conv5-32, ReLU, pool 2, linear to the width, ReLU | to the classes

    It is trained by empirical risk minimisation with the labels of the training environments, so
    its features hold what predicts these labels, invariant or not. A unit that is rarely active is
    an outlier where it is active, once standardised.

    Parameters
    ----------
    width : int, default=64
        Units of that layer.
    epochs : int, default=2
        Passes over the training images; more passes fit the noise of the labels.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import CNN
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 16, 16), dtype=np.uint8)
    >>> CNN(width=2, epochs=1).fit(images, np.arange(8) % 2).transform(images).shape
    (8, 2)
    """

    uses_labels: ClassVar[bool] = True
    width: int = 64
    epochs: int = 2

    def _network(self, shape: Shape) -> nn.Module:
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in shape[1:])

        def make() -> nn.Module:
            first = nn.Conv2d(shape[0], 16, 5), nn.ReLU(), nn.MaxPool2d(2)
            second = nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2)
            linear = nn.Flatten(), nn.Linear(32 * rows * columns, self.width), nn.ReLU()
            return nn.Sequential(*first, *second, *linear)

        return undrawn(make)

    def _fit(self, network: Any, data: LabelledImages, seed: int, progress: Progress) -> None:
        classes, targets = np.unique(data[1], return_inverse=True)
        whole = nn.Sequential(network, undrawn(lambda: nn.Linear(self.width, len(classes))))

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(whole(x), y)

        train(whole, loss, (data[0], targets), self.epochs, (1e-3, 0.0), seed, progress)
