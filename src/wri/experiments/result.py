"""What every experiment gives back, for people and for machines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One cell of a table: ours, and the paper's where it prints one."""

    algorithm: str
    column: str
    ours: float
    spread: float | None  # standard error over the n repetitions; None for a single one
    n: int
    paper: float | None = None

    @classmethod
    def of(
        cls, algorithm: str, column: str, values: Sequence[float], paper: float | None = None
    ) -> "Row":
        """Mean and standard error of repeated values."""
        n = len(values)
        spread = float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None
        return cls(algorithm, column, float(np.mean(values)), spread, n, paper)


@dataclass(frozen=True)
class Result:
    experiment: str
    rows: list[Row]
    figures: list[Path]
    seconds: float
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "rows": [asdict(row) for row in self.rows],
            "figures": [str(path) for path in self.figures],
            "seconds": round(self.seconds, 3),
        }
