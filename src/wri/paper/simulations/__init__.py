"""Data of the paper's figures and tables that no sweep offers by name."""

from wri.paper.simulations.coloured_mnist import (
    COLOURED_MNIST,
    ColouredDigits,
    Mirrored,
    coloured_mnist,
    digit_shares,
    ideal_accuracy,
    mirror,
)
from wri.paper.simulations.linear_gaussian import LinearGaussian

__all__ = [
    "COLOURED_MNIST",
    "ColouredDigits",
    "LinearGaussian",
    "Mirrored",
    "coloured_mnist",
    "digit_shares",
    "ideal_accuracy",
    "mirror",
]
