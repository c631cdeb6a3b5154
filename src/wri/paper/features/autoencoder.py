"""Convolutional autoencoder of the paper's ColoredMNIST tables.

    encoder   conv5-16, ReLU, conv5-32, batch norm, ReLU, linear to the width
    loss      mean (x − decoder(encoder(x)))²,  Adam 4e-4, weight decay 2e-5, batches of 64

The features are the output of the encoder. Stride 1 without padding is our reading: 28 × 28 pixels
become 32 × 20 × 20 numbers before the linear layer. The paper does not describe the decoder; ours
has one hidden layer of 512 units and tanh at the end. `studies/autoencoder_decoders.py` compares
it with others, for instance the mirror image of the encoder, which takes twice the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from wri.paper.features.extractor import (
    Extractor,
    InvertibleFeatureMap,
    Shape,
    check_size,
    check_whole,
)
from wri.paper.features.networks import load_arrays, train, undrawn
from wri.progress import Progress

RATES = 4e-4, 2e-5  # learning rate, weight decay
HIDDEN = 512  # units of the decoder
SMALLEST = 10  # pixels per side, for two 5 × 5 convolutions and a batch norm


@dataclass(frozen=True)
class Autoencoder(Extractor):
    """Convolutional autoencoder; its features are the bottleneck.

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

    def __post_init__(self) -> None:
        check_whole(self, width=self.width, epochs=self.epochs)

    def restore(self, parameters: Mapping[str, np.ndarray], shape: Shape) -> "FittedAutoencoder":
        """Restore a fitted autoencoder from its parameters.

        Parameters
        ----------
        parameters : mapping of str to ndarray
            From `FeatureMap.parameters`.
        shape : tuple of int
            Channels, height and width of an image.

        Returns
        -------
        fitted : FittedAutoencoder
            The feature map.
        """
        network = self._network(shape)
        load_arrays(network, parameters)
        return FittedAutoencoder(network, shape)

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
        return nn.Sequential(
            nn.Conv2d(channels, 16, 5),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * (height - 8) * (width - 8), self.width),
        )

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
        return nn.Sequential(
            nn.Linear(self.width, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, int(np.prod(shape))),
            nn.Tanh(),
            nn.Unflatten(1, shape),
        )

    def _network(self, shape: Shape) -> nn.ModuleDict:
        check_size(self, shape, SMALLEST)
        return undrawn(
            lambda: nn.ModuleDict({"encoder": self.encoder(shape), "decoder": self.decoder(shape)})
        )

    def _fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int, progress: Progress
    ) -> "FittedAutoencoder":
        network = self._network(images.shape[1:])
        fitted = FittedAutoencoder(network, images.shape[1:])

        def loss(x: Tensor, _: Tensor) -> Tensor:
            return mse_loss(fitted.decode(fitted.encode(x)), x)

        train(network, loss, (images, labels), self.epochs, RATES, seed, progress)
        return fitted


class FittedAutoencoder(InvertibleFeatureMap):
    """Trained encoder and decoder."""

    network: nn.ModuleDict

    def encode(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, width]
        return self.network["encoder"](x)

    def decode(self, features: Tensor) -> Tensor:  # [B, width] -> [B, C, H, W]
        return self.network["decoder"](features)
