"""Results of experiments, for people and for machines, beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

import numpy as np

from wri.number_text import write_number
from wri.report.intervals import FEWEST_FREEDOM, interval, paired_interval, standard_error

Values = Sequence[float] | np.ndarray | float
"""Repeated values of a cell, or a single one."""
Printed = tuple[float | None, float | None]
"""The paper's mean and what it prints behind ±; None for what it does not print."""
NOT_PRINTED: Printed = (None, None)

QUICK = "quick: a smoke test, not a result"
FAR = 3.0
"""Standard errors of ours beyond which a cell is said to differ from the paper's."""


@cache
def read_printed(table: str) -> dict[str, dict[str, Printed]]:
    """Read the paper's numbers from a table of `printed.ini`, by line and column."""
    parser = ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keeps capitals
    parser.read_string(files("wri.paper").joinpath("printed.ini").read_text("utf-8"))
    lines = dict(parser[table])
    columns = lines.pop("columns").split(", ")
    return {
        line: dict(zip(columns, map(_read_cell, text.split()), strict=True))
        for line, text in lines.items()
    }


def _read_cell(text: str) -> Printed:
    mean, _, spread = text.partition("±")
    return float(mean), float(spread) if spread else None


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
        values: Values,
        table: str = "",
        printed: Printed = NOT_PRINTED,
    ) -> "ResultCell":
        """Make a cell with mean and standard error of repeated values."""
        values = np.atleast_1d(values)
        return cls(
            algorithm=algorithm,
            column=column,
            ours=float(np.mean(values)),
            spread=standard_error(values) if len(values) > FEWEST_FREEDOM else None,
            n=len(values),
            paper=printed[0],
            paper_spread=printed[1],
            table=table,
        )

    @classmethod
    def over_groups(
        cls,
        algorithm: str,
        column: str,
        groups: Sequence[np.ndarray],
        table: str = "",
        paper: float | None = None,
    ) -> "ResultCell":
        """Make a cell with the mean over fixed groups, such as columns, and its error."""
        found = interval(groups)
        error = found.error if found.freedom >= FEWEST_FREEDOM else None
        cell = cls.of(algorithm, column, found.mean, table, (paper, None))
        return replace(cell, spread=error, n=found.n)

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
        printed = (each for each in (self.paper, self.paper_spread) if each is not None)
        return " ± ".join(f"{each:g}" for each in printed)


def make_line(
    algorithm: str,
    values: Mapping[str, Values],
    table: str = "",
    printed: Mapping[str, Printed] | None = None,
) -> list[ResultCell]:
    """Make a line of a table: a cell per column, with the paper's number if it is printed."""
    paper = printed or {}
    return [
        ResultCell.of(algorithm, column, each, table, paper.get(column, NOT_PRINTED))
        for column, each in values.items()
    ]


def compare_paired(
    ours: Sequence[np.ndarray], others: Mapping[str, Sequence[np.ndarray]], digits: int = 2
) -> str:
    """Return ours minus each of the others, with paired 95 % intervals; values are in groups."""
    return "; ".join(
        f"{name} {paired_interval(ours, each).describe(digits)}" for name, each in others.items()
    )


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
        found = []
        for title in dict.fromkeys(row.table for row in self.rows):
            cells = {(row.algorithm, row.column): row for row in self.rows if row.table == title}
            columns = list(dict.fromkeys(column for _, column in cells))
            algorithms = dict.fromkeys(algorithm for algorithm, _ in cells)
            lines = [(a, [cells.get((a, column)) for column in columns]) for a in algorithms]
            found.append(ResultTable(title, columns, lines))
        return found

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
        """Return all but the repetitions; None for NaN and infinity, which JSON does not have."""
        document = asdict(self) | {"figures": [str(path) for path in self.figures]}
        del document["repetitions"]
        document["seconds"] = round(self.seconds, 3)
        for row in document["rows"]:
            row["ours"] = row["ours"] if isfinite(row["ours"]) else None
            row["spread"] = row["spread"] if isfinite(row["spread"] or 0) else None
        return document
