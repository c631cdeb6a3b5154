"""The folder of a saved model: written whole or not at all, read with distrust.

Links are not followed, sizes are looked at before contents, and a header that announces more than
the file has is not believed.
"""

import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from wri.errors import InputError

FORMAT = "wri model"
RECORD, TENSORS = "model.json", "model.safetensors"
LARGEST = {RECORD: 8 << 20, TENSORS: 1 << 30}  # bytes
LARGEST_HEADER = 1 << 20


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Whatever is wrong is said with the file's name and the remedy."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path.parent) in text else f"{path}: {text}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; check the path and rights") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: {error}; damaged? save the model again") from error


def read(folder: Path, name: str) -> bytes:
    """A regular file of the folder itself, after a look at its size."""
    path = folder / name
    with named(path):
        if path.is_symlink() or path.resolve().parent != folder:
            raise InputError("is a link, and links are not followed; copy the file itself")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            require(stat.S_ISREG(os.fstat(file.fileno()).st_mode), "is not a regular file")
            head = file.read(8)
            if name == TENSORS:
                _check_header(head, size)
            require(size <= LARGEST[name], f"has {size:,} bytes, more than {LARGEST[name]:,}")
            return head + file.read(size - len(head))


def _check_header(head: bytes, size: int) -> None:
    """safetensors: 8 bytes say how long the header is that follows them."""
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, LARGEST_HEADER):
        pickled = head.startswith((b"\x80", b"PK"))
        require(not pickled, "is a pickle or an archive, which could run code, and was not opened")
        raise ValueError(f"announces a header of {length:,} bytes in a file of {size:,}")


def write(target: Path, files: Mapping[str, bytes]) -> None:
    """All files in the place of what the folder held, or nothing."""
    with named(target):
        _check_target(target)
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as stage:
            new = Path(stage) / "new"
            new.mkdir()
            for name, data in files.items():
                with open(new / name, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            _swap(new, target, Path(f"{stage}.old"))  # not in the stage, which will be deleted


def _check_target(target: Path) -> None:
    """Only a new or empty folder, or a saved model alone in its folder, is written to."""
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; give a folder")
    names = sorted(os.listdir(target)) if target.exists() else []
    foreign = [name for name in names if name not in (RECORD, TENSORS)]
    if names and not foreign:
        try:
            foreign = [] if json.loads(read(target, RECORD))["format"] == FORMAT else names
        except (ValueError, TypeError, LookupError, RecursionError):
            foreign = names
    if foreign:
        what = f"{target} holds {foreign[0]}, which is not a saved model's, and is left as it is"
        raise InputError(f"{what}; give another folder or an empty one")


def _swap(new: Path, target: Path, old: Path) -> None:
    """The new folder in the target's place; the old one back there if that fails."""
    try:
        if target.exists():
            os.replace(target, old)
        os.replace(new, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.replace(old, target)
        raise
    shutil.rmtree(old, ignore_errors=True)
