"""What an experiment is asked for."""

from pathlib import Path
from typing import NamedTuple

from wri.training.loop import Progress


def _silent(done: int, of: int) -> None:
    pass


class Task(NamedTuple):
    """One table or figure by its name, at one of two sizes."""

    name: str
    full: bool
    seed: int
    output: Path
    progress: Progress = _silent
    filtered: bool | None = None  # tables E.1–E.3: with the published filter, without, or both


def part(progress: Progress, n: int, parts: int) -> Progress:
    """Progress of the nth of several equal parts as progress of the whole."""
    return lambda done, of: progress(n * of + done, parts * of)
