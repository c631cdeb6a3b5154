"""Data on this machine: the folder `WRI_DATA`, the cache folder, and files over HTTPS."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from typing import BinaryIO, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

SECONDS = 15.0  # without a byte from a server
MOST_BYTES = 20_000_000  # of a download; the largest file, MNIST's images, has half as many
FAILURES = (OSError, HTTPException)  # what a fetch may raise

Fetch = Callable[[str], bytes]
"""Function from an address to its bytes."""


class Source(NamedTuple):
    """Place of data on this machine, and their origin."""

    path: Path
    origin: str

    def __str__(self) -> str:
        return f"{self.path} ({self.origin})"


def cache_folder() -> Path:
    """Return $WRI_CACHE, else $XDG_CACHE_HOME/wri, else ~/.cache/wri; it may not exist yet."""
    if own := os.environ.get("WRI_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "wri"


def given_folders(below: Sequence[str]) -> list[Source]:
    """Return the folders of these names below `WRI_DATA`; none if it is not set."""
    given = os.environ.get("WRI_DATA")
    return [Source(Path(given).expanduser() / each, "WRI_DATA") for each in below] if given else []


def find_source(
    below: Sequence[str], others: Iterable[Source], holds: Callable[[Path], object]
) -> Source | None:
    """Return the first of some folders below `WRI_DATA`, then others, that holds the data."""
    places = (*given_folders(below), *others)
    return next((source for source in places if holds(source.path)), None)


def given_words() -> str:
    """Return `WRI_DATA` for a message about searched places."""
    given = os.environ.get("WRI_DATA")
    return f"WRI_DATA={given}" if given else "WRI_DATA (not set)"


def fetch_https(address: str) -> bytes:
    """Fetch the bytes of an address."""
    with urlopen(address, timeout=SECONDS) as answer:
        data: bytes = answer.read(MOST_BYTES)
    return data


def explain_failure(error: BaseException) -> str:
    """Explain why a fetch failed: no network, a refusal, or something else."""
    reason = error.reason if isinstance(error, URLError) else error
    offline = isinstance(reason, gaierror | ConnectionError | TimeoutError)
    return f"there is no network: {reason}" if offline else str(error)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Write a file aside and move it into place, so that readers find the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(name, path)
    except BaseException:  # Ctrl-C leaves no file behind either
        os.unlink(name)
        raise
