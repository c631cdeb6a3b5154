"""What an experiment is asked for."""

from pathlib import Path
from typing import NamedTuple

from wri.progress import Progress, silent


class Task(NamedTuple):
    """One table or figure by its name, at one of two sizes."""

    name: str
    full: bool
    seed: int
    output: Path
    progress: Progress = silent
    filtered: bool | None = None  # tables E.1–E.3: with the published filter, without, or both
