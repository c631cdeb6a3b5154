"""Threads and memory of the process; PyTorch is imported when it is used.

glibc returns large freed blocks to the system and requests them again at the next step; the page
faults cost about as much as the arithmetic, so a training stack keeps them. Small freed blocks,
such as the cells of a table that was read, stay until they are returned.
"""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Return the thread pools of this process; finding them takes milliseconds."""
    return ThreadpoolController()


def one_algebra_thread() -> AbstractContextManager[None]:
    """Use one thread for linear algebra in a block."""
    return _controller().limit(limits=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for PyTorch and linear algebra, so that rounding does not depend on it."""
    with torch_threads(1), one_algebra_thread():
        yield


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set the number of PyTorch threads for a block; None does not change it."""
    if number is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h


def _glibc(name: str) -> Callable[..., object]:
    """Return a function of glibc; one that does nothing outside Linux."""
    library = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
    return getattr(library, name, lambda *_: None)


def keep_freed_memory() -> None:
    """Keep freed memory in the process; does nothing outside Linux."""
    mallopt = _glibc("mallopt")
    mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the largest value that glibc accepts
    mallopt(_TRIM_THRESHOLD, 512 * 2**20)
    mallopt(_TOP_PAD, 64 * 2**20)


def give_back_freed_memory() -> None:
    """Return freed memory to the system; does nothing outside Linux."""
    _glibc("malloc_trim")(0)


def resident_bytes() -> int:
    """Return the memory of the process; its peak if the system tells only that."""
    try:
        fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
        return 1024 * int(fields[0])
    except (OSError, LookupError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
