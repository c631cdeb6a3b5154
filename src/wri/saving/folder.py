"""Folder of a saved model: written as a whole, read with checks.

The tensors are in a file whose name holds their SHA-256, so the files of the old and the new model
do not collide. The record names the file of tensors. The system replaces the record in one step,
so that a reader finds the old model or the new one. Files that a killed process leaves are deleted
by the next save.

Links are not followed, sizes are checked before contents are read, and a header that announces more
bytes than the file has is refused.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wri.errors import InputError, shorten

FORMAT = "wri model"
RECORD = "model.json"
LARGEST = {"record": 8 << 20, "tensors": 1 << 30}  # bytes
LARGEST_HEADER = 1 << 20
PART = ".part"  # ends the name of a file that is being written
REPORT = "report.html"  # of the fit, beside the model
OURS = re.compile(r"(model\.json|model(-[0-9a-f]{16})?\.safetensors|report\.html)(\.part)?")


def tensors_name(sha256: str) -> str:
    """Return the name of the file with this SHA-256."""
    require(re.fullmatch("[0-9a-f]{64}", sha256) is not None, "sha256 is not a SHA-256")
    return f"model-{sha256[:16]}.safetensors"


def require(holds: bool, otherwise: str) -> None:
    """Raise a ValueError with the text unless the condition holds."""
    if not holds:
        raise ValueError(otherwise)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file's name and a remedy to every error."""
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path.parent) in text else f"{path}: {text}") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; check the path and rights") from error
    except MemoryError as error:
        raise InputError(f"{path}: too large for the memory; close other programs") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: {error}; damaged? save the model again") from error


def open_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder's path without links; raise an InputError if it cannot be a path."""
    try:
        path = Path(folder).resolve()
        path.is_dir()
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shorten(folder)} cannot be a folder: {reason}; give another") from error
    return path


def read(folder: Path, name: str, largest: int) -> bytes:
    """Read a regular file of the folder after checking its size."""
    path = folder / name
    with named(path):
        if path.is_symlink() or path.resolve().parent != folder:
            raise InputError("is a link; links are not followed: copy the file itself")
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with open(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            require(stat.S_ISREG(os.fstat(file.fileno()).st_mode), "is not a regular file")
            head = file.read(8)
            if name != RECORD:
                _check_header(head, size)
            require(size <= largest, f"has {size:,} bytes, more than {largest:,}")
            return head + file.read(size - len(head))


def _check_header(head: bytes, size: int) -> None:
    """Check the header of safetensors, whose length is in the first 8 bytes."""
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, LARGEST_HEADER):
        pickled = head.startswith((b"\x80", b"PK"))
        require(not pickled, "is a pickle or an archive, which could run code; it was not opened")
        raise ValueError(f"announces a header of {length:,} bytes in a file of {size:,}")


def write(target: Path, record: bytes, tensors: bytes) -> None:
    """Replace the old model by the new one, completely or not at all."""
    with named(target):
        new = not target.exists()
        check_target(target)
        target.mkdir(exist_ok=True)
        name = tensors_name(hashlib.sha256(tensors).hexdigest())
        with _open_locked(target) as descriptor:
            try:
                kept = tensors_name(_peek(target, "sha256"))
            except (ValueError, TypeError):
                kept = ""
            try:
                _write_file(target / name, tensors, descriptor)
                _write_file(target / RECORD, record, descriptor)
                kept = name
            finally:  # delete old tensors and files that a killed process left
                for each in set(os.listdir(target)) - {RECORD, kept}:
                    if OURS.fullmatch(each):
                        with suppress(OSError):
                            (target / each).unlink()
                if new and not (target / RECORD).exists():
                    target.rmdir()


def _write_file(path: Path, data: bytes, folder: int | None) -> None:
    """Write to another name first, so that readers find the whole file or none."""
    part = path.with_name(path.name + PART)
    part.unlink(missing_ok=True)
    with open(part, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if folder is not None:
        with suppress(OSError):
            os.fsync(folder)  # names reach the disk in the order of the renames


@contextmanager
def _open_locked(folder: Path) -> Iterator[int | None]:
    """Allow one save at a time, if the system can lock folders; a killed process keeps no lock."""
    try:
        import fcntl
    except ImportError:
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _peek(folder: Path, entry: str) -> Any:
    """Return an entry of the present record; None without a readable record."""
    try:
        return json.loads(read(folder, RECORD, LARGEST["record"]))[entry]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def check_target(target: Path) -> None:
    """Refuse folders that hold anything but a saved model."""
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is not a folder; create it first")
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file; give a folder")
    names = sorted(os.listdir(target)) if target.exists() else []
    foreign = [name for name in names if not OURS.fullmatch(name)]
    if REPORT in names and RECORD not in names:
        foreign = [REPORT]
    if RECORD in names and not foreign and _peek(target, "format") != FORMAT:
        foreign = [RECORD]
    if foreign:
        what = f"{target} holds {foreign[0]}, which is not part of a saved model"
        raise InputError(f"{what}; nothing was changed: give another folder or an empty one")
