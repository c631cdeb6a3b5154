"""Small convolutional network, trained by empirical risk minimisation.

    conv5-16, ReLU, pool 2, conv5-32, ReLU, pool 2, linear to the width, ReLU | linear to classes

The features are the inputs of the last layer, left of the bar. They are trained with the labels of
the training environments: they hold what predicts these labels, invariant or not. A unit that is
rarely active is an outlier where it is active, once standardised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wri.errors import InputError
from wri.paper.features.extractor import Extractor, FeatureMap, Shape, check_size, check_whole
from wri.paper.features.networks import load_arrays, train, undrawn
from wri.progress import Progress

RATES = 1e-3, 0.0  # learning rate, weight decay
SMALLEST = 16  # pixels per side, for two 5 × 5 convolutions with pooling


@dataclass(frozen=True)
class CNN(Extractor):
    """Convolutional classifier; its features are the layer before the last.

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

    def __post_init__(self) -> None:
        check_whole(self, width=self.width, epochs=self.epochs)

    def restore(self, parameters: Mapping[str, np.ndarray], shape: Shape) -> FeatureMap:
        """Restore a fitted network from its parameters.

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
        """
        body = self._body(shape)
        load_arrays(body, parameters)
        return FeatureMap(body, shape)

    def _body(self, shape: Shape) -> nn.Module:
        check_size(self, shape, SMALLEST)
        channels, height, width = shape
        rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        return undrawn(
            lambda: nn.Sequential(
                nn.Conv2d(channels, 16, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 5),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
                nn.Linear(32 * rows * columns, self.width),
                nn.ReLU(),
            )
        )

    def _fit(
        self, images: np.ndarray, labels: np.ndarray, seed: int, progress: Progress
    ) -> FeatureMap:
        classes, targets = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise InputError(
                f"CNN: all labels are {classes[0]}; give at least two classes, or use an "
                "extractor without labels, such as PCA"
            )
        body = self._body(images.shape[1:])
        head = undrawn(lambda: nn.Linear(self.width, len(classes)))
        network = nn.Sequential(body, head)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(network(x), y)

        train(network, loss, (images, targets), self.epochs, RATES, seed, progress)
        return FeatureMap(body, images.shape[1:])
