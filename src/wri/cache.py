"""Cache folder for downloads and features."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np


def cache_folder() -> Path:
    """Return $WRI_CACHE, else $XDG_CACHE_HOME/wri, else ~/.cache/wri; it may not exist yet."""
    if own := os.environ.get("WRI_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "wri"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> None:
    """Write arrays to an .npz file, completely or not at all."""
    save = np.savez_compressed if compressed else np.savez
    with _open_atomic(path) as file:
        save(file, allow_pickle=False, **arrays)


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes to a file, completely or not at all."""
    with _open_atomic(path) as file:
        file.write(data)


@contextmanager
def _open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Write a file aside and move it into place, so that readers find the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:  # Ctrl-C leaves no file behind either
        os.unlink(name)
        raise
