"""Arrays on disk, named by the hash of all that they depend on.

An archive is written to a temporary name and renamed, holds its own key, and is made again if it
cannot be read. Nothing in it is pickled.
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
    """Return a hash of arrays (type, shape, bytes) and of other objects by their `repr`."""
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
    """Return the result of `use` for the arrays of a key, which are read or, if missing, made.

    `use` raises ValueError or KeyError for arrays that it does not know.
    """
    path = folder / f"{key}.npz"
    if path.exists():
        try:
            return use(_read(path, key))
        except (zipfile.BadZipFile, *UNREADABLE) as error:
            warnings.warn(f"{path} is damaged or foreign and is made again ({error})", stacklevel=2)
    arrays = dict(make())
    try:
        write_arrays(path, arrays | {KEY: np.array(key)})
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written ({error}), so these features will be made again next time; "
            "set WRI_CACHE to a folder with free space",
            stacklevel=2,
        )
    return use(arrays)


def _read(path: Path, key: str) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if str(arrays.pop(KEY)) != key:
        raise ValueError("it holds another key")
    return arrays
