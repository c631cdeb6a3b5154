"""Arrays of a .npz archive, read after its sizes were checked.

An archive announces the size of each array before it is unpacked. Archives that would not fit into
memory, or announce more than they hold, are refused without reading.
"""

import csv
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from wri.errors import InputError, shorten

MOST_BYTES = 2 << 30  # of all arrays
WIDEST = 8  # bytes of a number that pandas and torch take
LONGEST = 1000  # characters of a text
UNREADABLE = (
    *(ValueError, OSError, EOFError, RuntimeError),  # pandas' and arrow's are among them
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)
BAD_HEADER = (*UNREADABLE, TypeError, LookupError, OverflowError, RecursionError, SyntaxError)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays by name, in the machine's byte order."""
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not an archive")
    with zipfile.ZipFile(path) as packed:
        _check_sizes(path, packed)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: _array(path, archive, name) for name in archive.files}
    if not arrays:
        raise InputError(f"{path} holds no arrays; write some with np.savez")
    return arrays


def _check_sizes(path: Path, packed: zipfile.ZipFile) -> None:
    """Refuse too many bytes, and headers that announce more bytes than follow."""
    total = sum(member.file_size for member in packed.infolist())
    if total > MOST_BYTES:
        raise InputError(
            f"{path} unpacks to {total:,} bytes, but at most {MOST_BYTES:,} are read; save fewer "
            "rows or columns, or save as float32"
        )
    for member in packed.infolist():
        name = shorten(repr(member.filename.removesuffix(".npy")))
        with packed.open(member) as file:
            try:
                version = np.lib.format.read_magic(file)
                read_header = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                shape, _, dtype = read_header(file)
            except BAD_HEADER:
                continue  # named when it is read
            size, left = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if not dtype.hasobject and size > left:
            raise InputError(
                f"{path}: {name} announces {size:,} bytes of numbers but holds {left:,}; it is cut "
                "off or damaged: save it again"
            )
        characters = dtype.itemsize // (4 if dtype.kind == "U" else 1)
        if dtype.kind in "US" and characters > LONGEST:
            raise InputError(
                f"{path}: {name} reserves {characters:,} characters per text ({dtype}), but at "
                f"most {LONGEST:,} are read; shorten its texts"
            )
        if dtype.kind in "fc" and dtype.itemsize > (WIDEST if dtype.kind == "f" else 2 * WIDEST):
            raise InputError(f"{path}: {name} holds numbers of the type {dtype}; save as float64")


def _array(path: Path, archive: Any, name: str) -> np.ndarray:
    """Read an array in the machine's byte order, which pandas and torch need."""
    try:
        array = archive[name]
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    except (AttributeError, *BAD_HEADER) as error:  # NumPy gives bytes for other members
        raise InputError(
            f"{path}: {shorten(repr(name))} cannot be read as an array ({error}); save plain "
            "numbers or texts, such as objects.astype(str)"
        ) from error
