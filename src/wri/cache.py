"""Where downloads and features are kept between processes."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np


def cache_folder() -> Path:
    """$WRI_CACHE, else $XDG_CACHE_HOME/wri, else ~/.cache/wri; made by whoever writes to it."""
    if own := os.environ.get("WRI_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "wri"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], compressed: bool = False) -> None:
    save = np.savez_compressed if compressed else np.savez
    with _whole(path) as file:
        save(file, allow_pickle=False, **arrays)


def write_bytes(path: Path, data: bytes) -> None:
    with _whole(path) as file:
        file.write(data)


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file written aside and moved into place: a reader meets the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:  # Ctrl-C, too, leaves nothing behind
        os.unlink(name)
        raise
