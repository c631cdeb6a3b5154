"""Arrays on disk under the hash of all that they depend on: whole, or not there.

An archive is written under a temporary name and renamed, holds its own key, and is made anew when
it cannot be read. Nothing in it is pickled.
"""

import hashlib
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from wri.cache import write_arrays

KEY = "key"
UNREADABLE = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zlib.error)
T = TypeVar("T")


def content_key(*parts: object) -> str:
    """A hash of arrays (type, shape, bytes) and of other things as `repr` shows them."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()[:32]


def remembered(
    folder: Path,
    key: str,
    make: Callable[[], Mapping[str, np.ndarray]],
    use: Callable[[dict[str, np.ndarray]], T],
) -> T:
    """What `use` gives for the arrays of that key: read where they are, made where they are not.

    `use` raises ValueError or KeyError on arrays that it does not know.
    """
    path = folder / f"{key}.npz"
    if path.exists():
        try:
            return use(_read(path, key))
        except (zipfile.BadZipFile, *UNREADABLE) as error:
            warnings.warn(f"{path} is damaged or not ours, and made anew ({error})", stacklevel=2)
    arrays = dict(make())
    try:
        write_arrays(path, arrays | {KEY: np.array(key)})
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written ({error}), so these features will be made again next time; "
            "name a folder with free space by WRI_CACHE",
            stacklevel=2,
        )
    return use(arrays)


def _read(path: Path, key: str) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no archive")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop(KEY)) != key:
        raise ValueError("it holds another key")
    return arrays
