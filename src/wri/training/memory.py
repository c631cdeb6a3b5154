"""Memory of the process: what it holds, and whether freed memory stays in it.

glibc gives large freed blocks back to the system and asks for them anew at the next step; the page
faults cost about as much as the arithmetic, so a stack that trains keeps them. Small freed blocks,
such as the cells of a table that was read, stay until they are given back.
"""

import ctypes
import sys
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h


def keep_freed_memory() -> None:
    """Keep freed memory in the process; elsewhere than on Linux this does nothing."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the largest value that glibc accepts
        mallopt(_TRIM_THRESHOLD, 512 * 2**20)
        mallopt(_TOP_PAD, 64 * 2**20)


def give_back_freed_memory() -> None:
    """Give freed memory back to the system; elsewhere than on Linux this does nothing."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def resident_bytes() -> int:
    """Memory that the process holds now; its peak where the system does not tell."""
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
