"""Memory of the process: its size, and whether freed memory stays in it.

glibc returns large freed blocks to the system and requests them again at the next step; the page
faults cost about as much as the arithmetic, so a training stack keeps them. Small freed blocks,
such as the cells of a table that was read, stay until they are returned.
"""

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Keep freed memory in the process; does nothing outside Linux."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the largest value that glibc accepts
        mallopt(_TRIM_THRESHOLD, 512 * 2**20)
        mallopt(_TOP_PAD, 64 * 2**20)


def give_back_freed_memory() -> None:
    """Return freed memory to the system; does nothing outside Linux."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


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
