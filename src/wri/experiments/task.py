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
    preset: str | None = None  # tables 2 and 3: "paper", "published" or "wri"
    features: str | None = None  # tables 2, 3 and ablation: "ae", "cnn" or "pca"
    width: int | None = None  # of the features
    combine: str | None = None  # table 3: how the environments' densities become one score
    negatives: str | None = None  # table 3: which digits are the common ones


OPTIONS = ("filtered", "preset", "features", "width", "combine", "negatives")
"""Fields that only some experiments heed; None leaves the choice to them."""
