"""What an experiment is asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


def _silent(done: int, of: int) -> None:
    pass


class Task(NamedTuple):
    """One table or figure by its name, at one of two sizes."""

    name: str
    full: bool
    seed: int
    output: Path
    progress: Callable[[int, int], None] = _silent
    filtered: bool | None = None  # tables E.1–E.3: with the published filter, without, or both
