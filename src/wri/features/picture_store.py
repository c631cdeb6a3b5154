"""Store of features of pictures: one SQLite file per backbone, keyed by the SHA-256 of the picture.

Rows are written in transactions, so an interruption loses only unfinished chunks. A damaged file is
made again; if nothing can be written, nothing is kept.
"""

import sqlite3
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

AT_ONCE = 500  # keys in one question
SECONDS = 60.0  # to wait for another process that writes
TABLE = "CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, x BLOB, crc INTEGER)"
HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE name = 'features'"


class FeatureStore:
    """Arrays of float32 by key.

    Parameters
    ----------
    path
        Of the file; its folder is made when it is written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writes = True

    def read(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, np.ndarray]]:
        """Yield the stored arrays of some keys."""
        if not self.path.exists():
            return
        try:
            with closing(self._open()) as file:
                if file.execute(HAS_TABLE).fetchone() is None:
                    return  # a process was killed before its first rows
                for start in range(0, len(keys), AT_ONCE):
                    some = keys[start : start + AT_ONCE]
                    marks = ",".join("?" * len(some))
                    rows = file.execute(
                        f"SELECT key, x, crc FROM features WHERE key IN ({marks})", some
                    )
                    for key, x, crc in rows:
                        if zlib.crc32(x) == crc:
                            yield key, np.frombuffer(x, np.float32)
        except sqlite3.Error as error:
            self._complain(error)

    def write(self, rows: Mapping[bytes, np.ndarray]) -> None:
        """Store rows, all of them or none."""
        if not self._writes or not rows:
            return
        data = [(key, x.tobytes()) for key, x in rows.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._open()) as file, file:
                file.execute(TABLE)
                file.executemany(
                    "INSERT OR REPLACE INTO features VALUES (?, ?, ?)",
                    [(key, x, zlib.crc32(x)) for key, x in data],
                )
        except (OSError, sqlite3.Error) as error:
            self._complain(error)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=SECONDS)

    def _complain(self, error: Exception) -> None:
        if isinstance(error, OSError | sqlite3.OperationalError):  # no rights, no space
            self._writes = False
            warnings.warn(
                f"{self.path} cannot be used ({error}), so these features will be made again next "
                "time; set WRI_CACHE to a folder with free space",
                stacklevel=4,
            )
            return
        warnings.warn(f"{self.path} is damaged and is made again ({error})", stacklevel=4)
        with suppress(OSError):
            self.path.unlink()
