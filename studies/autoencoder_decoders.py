"""Which decoder the autoencoder has: seconds an epoch and error on held-out images.

    python studies/autoencoder_decoders.py [--epochs 3] [--rows 70000] [--width 64]

Each decoder is trained with the same encoder, seed and order of images on two environments of
HCMNIST-CS; the error is the mean squared one in [−1, 1] on the third. The mean image and PCA of the
same width stand beside them. Times are those of this machine now; their ratios are what counts.
"""

import argparse
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import nn

from wri.paper.features import PCA, Autoencoder
from wri.paper.features.extractors import Shape
from wri.paper.simulations.coloured_mnist import coloured_mnist


@dataclass(frozen=True)
class Mirrored(Autoencoder):
    """The encoder backwards: linear, two transposed 5 × 5 convolutions of stride 1.

    With tanh at the end it stays at −1 everywhere: most pixels are −1 and they share a bias.
    """

    def decoder(self, shape: Shape) -> nn.Module:
        channels, height, width = shape
        return nn.Sequential(
            nn.Linear(self.width, 32 * (height - 8) * (width - 8)),
            nn.ReLU(),
            nn.Unflatten(1, (32, height - 8, width - 8)),
            nn.ConvTranspose2d(32, 16, 5),
            nn.ReLU(),
            nn.ConvTranspose2d(16, channels, 5),
        )


@dataclass(frozen=True)
class Strided(Autoencoder):
    """Linear to a quarter of the size, two transposed 4 × 4 convolutions of stride 2, tanh."""

    def decoder(self, shape: Shape) -> nn.Module:
        channels, height, width = shape
        return nn.Sequential(
            nn.Linear(self.width, 2 * height * width),
            nn.ReLU(),
            nn.Unflatten(1, (32, height // 4, width // 4)),
            nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(16, channels, 4, stride=2, padding=1),
            nn.Tanh(),
        )


@dataclass(frozen=True)
class Linear(Autoencoder):
    """Linear, as PCA's way back."""

    def decoder(self, shape: Shape) -> nn.Module:
        return nn.Sequential(nn.Linear(self.width, int(np.prod(shape))), nn.Unflatten(1, shape))


DECODERS = {"dense (ours)": Autoencoder, "mirrored": Mirrored, "strided": Strided, "linear": Linear}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=70000, help="digits in all environments")
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    *training, held_out = coloured_mnist("hcmnist-cs", rows=options.rows)
    images, y = (np.concatenate([getattr(e, of) for e in training]) for of in ("images", "y"))
    unseen = held_out.images
    print(f"{len(images)} images, {options.epochs} epochs, {torch.get_num_threads()} threads")
    print(f"{'decoder':16}{'s/epoch':>9}{'MSE':>9}")
    difference = unseen / 127.5 - images.mean(0) / 127.5
    print(f"{'mean image':16}{'':9}{np.square(difference).mean():9.5f}")
    print(f"{'PCA':16}{'':9}{PCA(options.width).fit(images, y).reconstruction_error(unseen):9.5f}")
    for name, kind in DECODERS.items():
        start = perf_counter()
        fitted = kind(options.width, options.epochs).fit(images, y)
        seconds = (perf_counter() - start) / options.epochs
        print(f"{name:16}{seconds:9.1f}{fitted.reconstruction_error(unseen):9.5f}", flush=True)


if __name__ == "__main__":
    main()
