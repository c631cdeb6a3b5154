"""Results of experiments, for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np

from wri.number_text import write_number
from wri.report.intervals import FEWEST_FREEDOM, interval, standard_error

Printed = tuple[float, float]
"""The paper's mean and what it prints behind ±."""

QUICK = "quick: a smoke test, not a result"
FAR = 3.0
"""Standard errors of ours beyond which a cell is said to differ from the paper's."""


def read_printed(line: str) -> tuple[Printed, ...]:
    """Read a line of the paper's cells, "51.3±1.6 52.5±1.1"."""
    cells = [cell.split("±") for cell in line.split()]
    return tuple((float(mean), float(spread)) for mean, spread in cells)


@dataclass(frozen=True, kw_only=True)
class ResultCell:
    """Cell of a table: our number, and the paper's if it prints one."""

    algorithm: str
    column: str
    ours: float
    spread: float | None  # standard error over the n repetitions; None for one or two
    n: int
    paper: float | None = None
    paper_spread: float | None = None  # what the paper prints behind ±
    table: str = ""  # which of an experiment's tables, where it has several

    @classmethod
    def of(
        cls,
        algorithm: str,
        column: str,
        values: Sequence[float] | np.ndarray,
        paper: float | None = None,
        paper_spread: float | None = None,
        table: str = "",
    ) -> "ResultCell":
        """Make a cell with mean and standard error of repeated values."""
        return cls(
            algorithm=algorithm,
            column=column,
            ours=float(np.mean(values)),
            spread=standard_error(values) if len(values) > FEWEST_FREEDOM else None,
            n=len(values),
            paper=paper,
            paper_spread=paper_spread,
            table=table,
        )

    @classmethod
    def over_groups(
        cls,
        algorithm: str,
        column: str,
        groups: Sequence[np.ndarray],
        paper: float | None = None,
        table: str = "",
    ) -> "ResultCell":
        """Make a cell with the mean over fixed groups, such as columns, and its error."""
        found = interval(groups)
        return cls(
            algorithm=algorithm,
            column=column,
            ours=found.mean,
            spread=found.error if found.freedom >= FEWEST_FREEDOM else None,
            n=found.n,
            paper=paper,
            table=table,
        )

    @property
    def far_from_paper(self) -> bool:
        """Whether the paper's number is more than three of our standard errors away."""
        if self.paper is None or self.spread is None:
            return False
        return abs(self.ours - self.paper) > FAR * self.spread

    @property
    def text(self) -> str:
        """Our number with its spread, to the second digit of the spread."""
        if not isfinite(self.ours):
            return "not finite"
        if not self.spread:
            return write_number(self.ours)
        digits = max(0, 1 - floor(log10(self.spread)))
        if digits > 4 and abs(self.ours) < 0.1:
            return f"{self.ours:.1e} ± {self.spread:.0e}"
        return f"{self.ours:.{digits}f} ± {self.spread:.{digits}f}"

    @property
    def paper_text(self) -> str:
        """The paper's number as printed; empty if there is none."""
        if self.paper is None:
            return ""
        return f"{self.paper:g}" + (
            "" if self.paper_spread is None else f" ± {self.paper_spread:g}"
        )


def make_line(
    algorithm: str,
    values: Mapping[str, Sequence[float] | np.ndarray | float],
    table: str = "",
    paper: Mapping[str, tuple[float | None, float | None]] | None = None,
) -> list[ResultCell]:
    """Make a line of a table: a cell per column, of repeated values or of a single one."""
    printed = paper or {}
    return [
        ResultCell.of(
            algorithm, column, np.atleast_1d(each), *printed.get(column, (None, None)), table
        )
        for column, each in values.items()
    ]


@dataclass(frozen=True)
class ResultTable:
    """Cells in order: one line per algorithm."""

    title: str
    columns: list[str]
    lines: list[tuple[str, list[ResultCell | None]]]


@dataclass(frozen=True, kw_only=True)
class Result:
    experiment: str
    rows: list[ResultCell]
    figures: list[Path] = field(default_factory=list)
    seconds: float = 0.0  # of the whole experiment
    notes: list[str] = field(default_factory=list)
    repetitions: str = "seeds"  # what the n of a row counts
    quick: bool = False  # at the size of a smoke test

    @property
    def tables(self) -> list[ResultTable]:
        """Rows as tables of algorithms by columns, in the order of their first cells."""
        return [self._table(title) for title in dict.fromkeys(row.table for row in self.rows)]

    def _table(self, title: str) -> ResultTable:
        rows = [row for row in self.rows if row.table == title]
        columns = list(dict.fromkeys(row.column for row in rows))
        cells = {(row.algorithm, row.column): row for row in rows}
        algorithms = dict.fromkeys(row.algorithm for row in rows)
        lines = [(a, [cells.get((a, column)) for column in columns]) for a in algorithms]
        return ResultTable(title, columns, lines)

    @property
    def what_is_shown(self) -> str:
        counts = sorted({row.n for row in self.rows})
        if counts == [1]:
            return "Single values."
        single = "; single values where there is no ±" if counts[0] == 1 else ""
        number = " or ".join(str(n) for n in counts if n > 1)
        if all(row.spread is None for row in self.rows):
            return f"Means over {number} {self.repetitions}, too few for standard errors{single}."
        return f"Mean ± standard error over {number} {self.repetitions}{single}."

    def as_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "quick": self.quick,
            "rows": [_finite(asdict(row)) for row in self.rows],
            "figures": [str(path) for path in self.figures],
            "seconds": round(self.seconds, 3),
            "notes": self.notes,
        }


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Return None for NaN and infinity, which JSON does not have."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in row.items()
    }
