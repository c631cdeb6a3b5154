"""Data sets of several environments: simulations, tables, coloured MNIST, folders of pictures."""

from wri.datasets.builtin import BUILTIN, load_builtin
from wri.datasets.coloured_mnist import (
    COLOURED_MNIST,
    ColouredDigits,
    coloured_mnist,
    digit_shares,
    ideal_accuracy,
)
from wri.datasets.environments import Environment, LabelledFile, joined
from wri.datasets.gaussian2d import Gaussian2D
from wri.datasets.heart import load_heart, where_heart
from wri.datasets.hospitals import Hospital, hospitals
from wri.datasets.image_folder import ImageFolder, Picture
from wri.datasets.image_sets import IMAGE_SETS, ImageSet, load_images, where_images
from wri.datasets.linear_gaussian import LinearGaussian
from wri.datasets.mirrored import Mirrored, mirror
from wri.datasets.mnist import Mnist, load_mnist, where_mnist
from wri.datasets.simulation import Simulation, SimulationSetting
from wri.datasets.tables import read_table
from wri.datasets.threshold_hospitals import ThresholdHospital, threshold_hospitals

__all__ = [
    "BUILTIN",
    "COLOURED_MNIST",
    "IMAGE_SETS",
    "ColouredDigits",
    "Environment",
    "Gaussian2D",
    "Hospital",
    "ImageFolder",
    "ImageSet",
    "LabelledFile",
    "LinearGaussian",
    "Mirrored",
    "Mnist",
    "Picture",
    "Simulation",
    "SimulationSetting",
    "ThresholdHospital",
    "coloured_mnist",
    "digit_shares",
    "hospitals",
    "ideal_accuracy",
    "joined",
    "load_builtin",
    "load_heart",
    "load_images",
    "load_mnist",
    "mirror",
    "read_table",
    "threshold_hospitals",
    "where_heart",
    "where_images",
    "where_mnist",
]
