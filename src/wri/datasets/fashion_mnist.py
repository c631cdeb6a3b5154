"""Fashion-MNIST: 60,000 + 10,000 articles of clothing of 28 × 28 grey pixels, in MNIST's format.

It is an optional stand-in for the digits of ColoredMNIST (`docs/results/fashion.md`). The four idx
files, gzipped or not, are read from the first of these places that has them:

1. the folder `WRI_DATA`: in `fashion-mnist/` or in torchvision's `FashionMNIST/raw/`;
2. `/usr/share/datasets/fashion-mnist`, where Debian's package `dataset-fashion-mnist` puts them.

The SHA-256 of the arrays must be those of the published files.
"""

from functools import cache
from pathlib import Path

from wri.datasets.download import Source, given_folders, given_words
from wri.datasets.mnist import UNREADABLE, Mnist, MnistArray, find_idx, join_parts, read_idx
from wri.errors import InputError, MissingDataError

PARTS = (
    MnistArray(
        "train-images-idx3-ubyte",
        "x_train",
        (60_000, 28, 28),
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    ),
    MnistArray(
        "train-labels-idx1-ubyte",
        "y_train",
        (60_000,),
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    ),
    MnistArray(
        "t10k-images-idx3-ubyte",
        "x_test",
        (10_000, 28, 28),
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    ),
    MnistArray(
        "t10k-labels-idx1-ubyte",
        "y_test",
        (10_000,),
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
)
FOLDERS = ("fashion-mnist", "FashionMNIST/raw")  # the second is torchvision's
PACKAGE, PACKAGED = "dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")
LICENCE = "MIT"
REMEDY = (
    f"on Debian and Ubuntu `apt-get install {PACKAGE}` brings it; elsewhere put the four idx files "
    "of https://github.com/zalandoresearch/fashion-mnist into fashion-mnist/ below WRI_DATA"
)


def load_fashion_mnist() -> Mnist:
    """Load Fashion-MNIST's 70,000 pictures; they are read once per process and read-only.

    Returns
    -------
    fashion : Mnist
        Images, and the number of the article of each, 0 to 9, in place of the digit.

    Raises
    ------
    InputError
        If it is not found, or differs from the published files.

    References
    ----------
    H. Xiao, K. Rasul and R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
    Machine Learning Algorithms", arXiv:1708.07747, 2017.

    Examples
    --------
    >>> from wri.datasets import load_fashion_mnist
    >>> load_fashion_mnist().images.shape  # doctest: +SKIP
    (70000, 28, 28)
    """
    source = _find()
    if source is None:
        looked = f"{' or '.join(FOLDERS)} below {given_words()}, nor {PACKAGED}"
        raise MissingDataError(f"Fashion-MNIST was not found: neither {looked} has it; {REMEDY}")
    return _load(source)


def where_fashion_mnist() -> str | None:
    """Return the place from which `load_fashion_mnist` would read.

    Returns
    -------
    place : str or None
        Folder and its origin; None if Fashion-MNIST is not on this machine.

    Examples
    --------
    >>> from wri.datasets import where_fashion_mnist
    >>> where_fashion_mnist()  # doctest: +SKIP
    '/usr/share/datasets/fashion-mnist (the package dataset-fashion-mnist)'
    """
    source = _find()
    return None if source is None else str(source)


def _find() -> Source | None:
    sources = [Source(folder, "WRI_DATA") for folder in given_folders(FOLDERS)]
    sources.append(Source(PACKAGED, f"the package {PACKAGE}"))
    for source in sources:
        if all(find_idx(source.path, part) for part in PARTS):
            return source
    return None


@cache
def _load(source: Source) -> Mnist:
    try:
        arrays = [read_idx(find_idx(source.path, part), part) for part in PARTS]
        return join_parts(arrays, PARTS)
    except UNREADABLE as error:
        raise InputError(
            f"{source} is not Fashion-MNIST as published: {error}; remove it or fetch it again. "
            f"{REMEDY}"
        ) from error
