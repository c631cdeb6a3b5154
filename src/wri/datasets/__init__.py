"""Data sets of several environments: simulations, tables, MNIST, folders of pictures."""

from wri.datasets.catalogue import BUILTIN, load_builtin
from wri.datasets.environments import Environment, LabelledFile, joined
from wri.datasets.heart import load_heart, where_heart
from wri.datasets.hospitals import Hospital, hospitals
from wri.datasets.image_folder import ImageFolder, Picture
from wri.datasets.image_sets import IMAGE_SETS, ImageSet, load_images, where_images
from wri.datasets.mnist import (
    Mnist,
    load_fashion_mnist,
    load_mnist,
    where_fashion_mnist,
    where_mnist,
)
from wri.datasets.simulation import Gaussian2D, Simulation, SimulationSetting
from wri.datasets.table_rows import read_table
from wri.datasets.threshold_hospitals import ThresholdHospital, threshold_hospitals
from wri.moved import find_moved

__getattr__ = find_moved(
    __name__,
    "wri.paper.simulations",
    (
        *("COLOURED_MNIST", "ColouredDigits", "LinearGaussian", "Mirrored", "coloured_mnist"),
        *("digit_shares", "ideal_accuracy", "mirror"),
    ),
)

__all__ = [
    "BUILTIN", "IMAGE_SETS", "Environment", "Gaussian2D", "Hospital", "ImageFolder", "ImageSet",
    "LabelledFile", "Mnist", "Picture", "Simulation", "SimulationSetting", "ThresholdHospital",
    "hospitals", "joined", "load_builtin", "load_fashion_mnist", "load_heart", "load_images",
    "load_mnist", "read_table", "threshold_hospitals", "where_fashion_mnist", "where_heart",
    "where_images", "where_mnist",
]  # fmt: skip
