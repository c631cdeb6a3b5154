"""Keep freed memory in the process while a stack trains.

glibc gives large freed blocks back to the system and asks for them anew at the next step; the page
faults cost about as much as the arithmetic. Elsewhere this does nothing.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # from glibc's malloc.h


def keep_freed_memory() -> None:
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 32 * 2**20)  # the largest value that glibc accepts
        mallopt(_TRIM_THRESHOLD, 512 * 2**20)
        mallopt(_TOP_PAD, 64 * 2**20)
