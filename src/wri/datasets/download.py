"""Shared parts of loaders of published data: the folder `WRI_DATA`, and files over HTTPS."""

import os
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from typing import NamedTuple
from urllib.error import HTTPError, URLError
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


def fetch_https(address: str) -> bytes:
    """Fetch the bytes of an address."""
    with urlopen(address, timeout=SECONDS) as answer:
        data: bytes = answer.read(MOST_BYTES)
    return data


def explain_failure(error: BaseException) -> str:
    """Explain why a fetch failed: no network, a refusal, or something else."""
    reason = error.reason if isinstance(error, URLError) else error
    offline = isinstance(reason, gaierror | ConnectionError | TimeoutError)
    if isinstance(reason, OSError) and not isinstance(error, HTTPError) and not offline:
        offline = "unreachable" in str(reason).lower()
    return f"there is no network: {reason}" if offline else str(error)


def given_folders(below: Sequence[str]) -> list[Path]:
    """Return the folders of these names below `WRI_DATA`; none if it is not set."""
    given = os.environ.get("WRI_DATA")
    return [Path(given).expanduser() / each for each in below] if given else []


def given_words() -> str:
    """Return `WRI_DATA` for a message about searched places."""
    given = os.environ.get("WRI_DATA")
    return f"WRI_DATA={given}" if given else "WRI_DATA (not set)"
