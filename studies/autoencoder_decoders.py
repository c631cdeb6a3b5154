"""Which decoder the autoencoder has: CPU time per epoch and error on held-out images.

    python studies/autoencoder_decoders.py [--epochs 3] [--rows 24000] [--seeds 3] [--width 64]

Each decoder is trained with the same encoder, images, seeds and order of images on two environments
of HCMNIST-CS; the error is the mean squared one in [−1, 1] on the third. The mean image and PCA of
the same width stand beside them. Times depend on the machine; their ratios are what counts.
"""

import argparse
import sys
from dataclasses import dataclass
from time import process_time

import numpy as np
from torch import nn

from wri.paper.features import PCA, Autoencoder
from wri.paper.features.extractors import Shape
from wri.paper.simulations.coloured_mnist import coloured_mnist
from wri.report.intervals import standard_error


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


DECODERS = {
    "dense (the package's)": Autoencoder,
    "transposed convolutions of stride 2": Strided,
    "the encoder's mirror image": Mirrored,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=24000, help="digits in all environments")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    *training, held_out = coloured_mnist("hcmnist-cs", rows=options.rows)
    images, y = (np.concatenate([getattr(e, of) for e in training]) for of in ("images", "y"))
    unseen = held_out.images
    print(
        f"*Error on held-out images, {len(images):,} training images, {options.epochs} epochs, "
        f"mean ± standard error over {options.seeds} seeds*\n"
    )
    print("| | decoder | mean squared error | CPU s per epoch |\n|---|---|---|---|")
    difference = unseen / 127.5 - images.mean(0) / 127.5
    print(f"| mean image | – | {np.square(difference).mean():.4f} | – |")
    error = PCA(options.width).fit(images, y).reconstruction_error(unseen)
    print(f"| PCA({options.width}) | linear | {error:.4f} | – |")
    Autoencoder(2, 1).fit(images[:64], y[:64])  # the first fit also imports
    for name, kind in DECODERS.items():
        errors, seconds = [], []
        for seed in range(options.seeds):
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
            start = process_time()
            fitted = kind(options.width, options.epochs).fit(images, y, seed)
            seconds.append((process_time() - start) / options.epochs)
            errors.append(fitted.reconstruction_error(unseen))
        cells = f"{spread_text(errors, 4)} | {spread_text(seconds, 1)}"
        print(f"| Autoencoder({options.width}) | {name} | {cells} |", flush=True)


def spread_text(values: list[float], digits: int) -> str:
    error = standard_error(values)
    spread = "" if error is None else f" ± {error:.{digits}f}"
    return f"{np.mean(values):.{digits}f}{spread}"


if __name__ == "__main__":
    main()
