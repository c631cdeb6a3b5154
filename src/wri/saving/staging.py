"""Hidden folders in which an output is made before it gets its name.

A process holds a lock in its folder for as long as it lives. So the next process with the same
target can tell the folders of killed processes from those of living ones, and removes them.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "wri.lock"
RANDOM = "[a-z0-9_]{8}"  # what `mkdtemp` adds to a name


@contextmanager
def open_stage(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside the target, which is removed at the end."""
    prefix = f".{target.name}-"[:60]
    _remove_left(target.parent, prefix)
    folder, lock = _make_locked(target.parent, prefix)
    try:
        contents = folder / "contents"
        contents.mkdir()
        yield contents
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _make_locked(parent: Path, prefix: str) -> tuple[Path, FileLock]:
    """Make a folder and lock it; again, if another process took it for one that was left."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _lock_in(folder)
        with suppress(Timeout, FileNotFoundError):
            lock.acquire()
            return folder, lock


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove folders that nobody holds locked; other people's have no lock in them."""
    for name in os.listdir(parent):
        folder = parent / name
        if not re.fullmatch(re.escape(prefix) + RANDOM, name) or folder.is_symlink():
            continue
        with suppress(OSError):
            if not (folder / LOCK).exists():
                folder.rmdir()  # refused by the system unless it is empty
                continue
            with suppress(Timeout), _lock_in(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _lock_in(folder: Path) -> FileLock:
    return FileLock(folder / LOCK, timeout=0, thread_local=False)
