"""Networks from images to features, and their training with a random generator of its own.

A network sees x = pixel / 127.5 − 1, in [−1, 1]. All is computed in one thread: convolutions of
small batches, such as the last of an epoch, are split by the number of threads, so their rounding
depends on it, and training amplifies rounding.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from wri.progress import Progress
from wri.threads import one_thread

LabelledImages = tuple[np.ndarray, np.ndarray]
"""uint8 images `[N, C, H, W]` and labels `[N]`."""

ROWS = 512  # images per batch in evaluation
BATCH = 64  # images per batch in training

Built = TypeVar("Built", bound=nn.Module)


class FeatureMap:
    """Feature map with fixed parameters, for images of one shape.

    Parameters
    ----------
    network : torch.nn.Module
        Module from scaled images to features; `decode`, if it has one, leads back.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.paper.features import PCA, FeatureMap
    >>> images = np.random.default_rng(0).integers(0, 255, (8, 1, 2, 2), dtype=np.uint8)
    >>> fitted = PCA(width=4).fit(images, np.zeros(8, int))
    >>> isinstance(fitted, FeatureMap), round(fitted.reconstruction_error(images), 6)
    (True, 0.0)
    """

    def __init__(self, network: nn.Module) -> None:
        self.network: Any = network

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
        return self._batched(self.network, images)

    def parameters(self) -> dict[str, np.ndarray]:
        """Return all that `Extractor.restore` needs besides the shape.

        Returns
        -------
        parameters : dict of str to ndarray
            Arrays by name.
        """
        return {name: value.detach().numpy() for name, value in self.network.state_dict().items()}

    def reconstruct(self, images: np.ndarray) -> np.ndarray:  # [N, C, H, W], in [−1, 1]
        """Reconstruct images from their features, if the network leads back.

        Parameters
        ----------
        images : ndarray of shape (N, C, H, W)
            uint8 images.

        Returns
        -------
        reconstructions : ndarray of shape (N, C, H, W)
            Images in [−1, 1], float32.
        """
        return self._batched(lambda x: self.network.decode(self.network(x)), images)

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
        difference = scaled(images).numpy() - self.reconstruct(images)
        return float(np.square(difference).mean(dtype=np.float64))

    def _batched(self, function: Callable[[Tensor], Tensor], images: np.ndarray) -> np.ndarray:
        with one_thread(), torch.inference_mode():
            starts = range(0, len(images), ROWS)
            batches = [function(scaled(images[start : start + ROWS])) for start in starts]
        return torch.cat(batches).numpy()


def scaled(images: np.ndarray) -> Tensor:  # [B, C, H, W], uint8 -> float32
    """Return x = pixel / 127.5 − 1."""
    return torch.from_numpy(images.astype(np.float32, order="C")).div_(127.5).sub_(1)


def undrawn(make: Callable[[], Built]) -> Built:
    """Build a network with unset weights, without draws from global generators."""
    with torch.device("meta"):
        network = make()
    return network.to_empty(device="cpu")


@torch.no_grad()
def draw(network: nn.Module, random: torch.Generator) -> None:
    """Draw initial weights like PyTorch: uniform in ±1/√fan_in."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            bound = module.weight[0].numel() ** -0.5
            module.weight.uniform_(-bound, bound, generator=random)
            if module.bias is not None:
                module.bias.uniform_(-bound, bound, generator=random)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()  # ones and zeros


def train(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: LabelledImages,
    epochs: int,
    rates: tuple[float, float],
    seed: int,
    progress: Progress,
) -> None:
    """Draw initial weights, and minimise loss(x, labels) with Adam over shuffled batches.

    `rates` are the learning rate and the weight decay.
    """
    random = torch.Generator().manual_seed(seed)
    draw(network, random)
    images, labels = data
    optimiser = torch.optim.Adam(network.parameters(), rates[0], weight_decay=rates[1], fused=True)
    of, done = epochs * ceil(len(images) / BATCH), 0
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=random)
        for rows in map(Tensor.numpy, order.split(BATCH)):
            optimiser.zero_grad()
            loss(scaled(images[rows]), torch.from_numpy(labels[rows])).backward()
            optimiser.step()
            done += 1
            progress(done, of)
    network.eval()
