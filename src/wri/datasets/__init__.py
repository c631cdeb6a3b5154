"""Data sets of several environments: simulations, tables, MNIST, folders of pictures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from wri.datasets.threshold_hospitals import ThresholdHospital, threshold_hospitals
from wri.moved import find_moved

if TYPE_CHECKING:
    from wri.datasets.table_rows import read_table as read_table

_find_moved = find_moved(
    __name__,
    "wri.paper.simulations",
    (
        *("COLOURED_MNIST", "ColouredDigits", "LinearGaussian", "Mirrored", "coloured_mnist"),
        *("digit_shares", "ideal_accuracy", "mirror"),
    ),
)


def __getattr__(name: str) -> Any:
    """Import `read_table` on first use: it needs pandas."""
    if name == "read_table":
        return import_module("wri.datasets.table_rows").read_table
    return _find_moved(name)


__all__ = [
    "BUILTIN", "IMAGE_SETS", "Environment", "Gaussian2D", "Hospital", "ImageFolder", "ImageSet",
    "LabelledFile", "Mnist", "Picture", "Simulation", "SimulationSetting", "ThresholdHospital",
    "hospitals", "joined", "load_builtin", "load_fashion_mnist", "load_heart", "load_images",
    "load_mnist", "read_table", "threshold_hospitals", "where_fashion_mnist", "where_heart",
    "where_images", "where_mnist",
]  # fmt: skip
