"""Tables of a sweep: algorithms by held-out environments, one per selection method.

    cell = mean over trials ± s / √n of one measure,   s² = Σ (x − x̄)² / (n − 1)

DomainBed's tables divide by n instead of n − 1: their ± is smaller by √((n − 1) / n).

A cell needs all trials that the store has of its data set, and an average all held-out
environments; otherwise the cell gives the reason why it is empty.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from wri.errors import InputError
from wri.measures import MEASURES, check_measure
from wri.report.intervals import Interval, paired_interval, standard_error
from wri.sweep.selection import SELECTIONS, DatasetInfo, Outcome, SelectedCheckpoint, choose

AVERAGE = "average"
TIE = 1e-9
"""Means in % closer than this are equal up to rounding."""

COLUMNS = (
    *("selection", "dataset", "measure", "environment", "algorithm"),
    *("mean", "standard_error", "n", "reason"),
)
Show = Callable[[str], str]


@dataclass(frozen=True)
class Cell:
    """Scores of the trials, in % if the measure has it, or the reason for none."""

    scores: tuple[float, ...] = ()
    reason: str = ""
    choices: tuple[tuple[int, SelectedCheckpoint], ...] = ()  # by trial; none in an average
    digits: int = 1  # after the point

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.scores)) if self.scores else None

    @property
    def standard_error(self) -> float | None:
        """Standard error; None for a single trial."""
        return standard_error(self.scores)

    def __str__(self) -> str:
        shown = [each for each in (self.mean, self.standard_error) if each is not None]
        return " ± ".join(f"{each:.{self.digits}f}" for each in shown)


Comparison = tuple[str, str, Interval | None, str]
"""First − second on the averages of the same trials: an interval, or the reason for none."""


@dataclass(frozen=True, kw_only=True)
class SelectionTable:
    """Table of one selection on one data set."""

    selection: str
    dataset: str
    measure: str
    trials: tuple[int, ...]
    columns: tuple[str, ...]  # environments held out, then the average
    lines: dict[str, tuple[Cell, ...]]  # by algorithm
    n_environments: int  # of the data set, held out or not
    draws: dict[str, int]  # hyper-parameter draws of each algorithm

    @property
    def place(self) -> dict[str, Any]:
        return {"selection": self.selection, "dataset": self.dataset, "measure": self.measure}

    def is_best(self, algorithm: str, column: int) -> bool:
        """Return whether the cell has the best mean of its column, alone or with others."""
        sign = MEASURES[self.measure].sign
        means = {
            a: sign * m for a, line in self.lines.items() if (m := line[column].mean) is not None
        }
        return algorithm in means and means[algorithm] >= max(means.values()) - TIE

    @property
    def reasons(self) -> list[str]:
        """Reasons for empty cells, each once, in reading order."""
        cells = (cell for line in self.lines.values() for cell in line)
        return list(dict.fromkeys(cell.reason for cell in cells if cell.reason))

    @property
    def title(self) -> str:
        chosen = f"{self.selection}: {SELECTIONS[self.selection].description}"
        return f"{self.dataset}, {MEASURES[self.measure].label}, {chosen}"

    @property
    def legend(self) -> str:
        n, n_held_out = len(self.trials), len(self.columns) - 1
        unit = "%" if MEASURES[self.measure].percent else MEASURES[self.measure].label
        shown = f"{unit} ± standard error over {n} trials" if n > 1 else f"{unit} in a single trial"
        if n_held_out < self.n_environments:
            shown += f"; average over {n_held_out} of {self.n_environments} environments"
        if len(set(self.draws.values())) > 1:
            numbers = ", ".join(f"{name} {number}" for name, number in self.draws.items())
            shown += f"; draws differ: {numbers}"
        return shown

    @property
    def comparisons(self) -> list[Comparison]:
        """Each algorithm against ERM, if there is ERM, and the best against the second."""
        averages = {algorithm: cells[-1] for algorithm, cells in self.lines.items()}
        erm = next((name for name in averages if name.lower() == "erm"), None)
        pairs = [(name, erm) for name in averages if erm is not None and name != erm]
        filled = [name for name, cell in averages.items() if cell.scores]
        sign = MEASURES[self.measure].sign
        ranked = sorted(filled, key=lambda name: -sign * np.mean(averages[name].scores))
        if len(ranked) > 1 and set(ranked[:2]) not in map(set, pairs):
            pairs.append((ranked[0], ranked[1]))
        return [_compare(a, averages[a], b, averages[b]) for a, b in pairs]


def build(
    outcomes: Iterable[Outcome],
    infos: Iterable[DatasetInfo],
    selections: Sequence[str] = tuple(SELECTIONS),
    measure: str | None = None,
) -> list[SelectionTable]:
    """Build one table per selection and data set, by a measure or the first that was recorded."""
    data = {one.name: one for one in infos}
    runs: dict[str, list[Outcome]] = {}
    for run in outcomes:
        runs.setdefault(run.dataset, []).append(run)
    if unknown := sorted(runs.keys() - data.keys()):
        raise InputError(f"there are runs of {', '.join(unknown)}, but no such data set is known")
    measures = {name: choose_measure(own, measure) for name, own in runs.items()}
    return [
        _table(s, runs[name], data[name], measures[name])
        for s in selections
        for name in sorted(runs)
    ]


def choose_measure(outcomes: Iterable[Outcome], wanted: str | None) -> str:
    """Return the wanted measure if it was recorded, or the first that was."""
    found = {measure for run in outcomes for measure in run.measures}
    recorded = [name for name in MEASURES if name in found]
    if wanted is not None:
        check_measure(wanted, recorded)
        return wanted
    return (recorded or list(MEASURES))[0]


def _table(selection: str, runs: list[Outcome], data: DatasetInfo, measure: str) -> SelectionTable:
    trials = tuple(sorted({run.trial_seed for run in runs}))
    held_out = sorted({k for run in runs if len(run.test_envs) == 1 for k in run.test_envs})
    if not held_out:  # only runs for leave-one-out so far
        held_out = sorted({k for run in runs for k in run.test_envs})
    names = [data.environments[k] for k in held_out]
    by_algorithm: dict[str, list[Outcome]] = {}
    for run in sorted(runs, key=lambda run: (run.algorithm.lower() != "erm", run.algorithm)):
        by_algorithm.setdefault(run.algorithm, []).append(run)
    lines = {}
    for algorithm, own in by_algorithm.items():
        choice = partial(choose, selection, own, data, algorithm=algorithm, measure=measure)
        cells = [
            _cell({trial: choice(held_out=k, trial_seed=trial) for trial in trials}, measure)
            for k in held_out
        ]
        lines[algorithm] = (*cells, _average(cells, names))
    draws = {name: len({run.hparams_seed for run in own}) for name, own in by_algorithm.items()}
    return SelectionTable(
        selection=selection,
        dataset=data.name,
        measure=measure,
        trials=trials,
        columns=(*names, AVERAGE),
        lines=lines,
        n_environments=len(data.environments),
        draws=draws,
    )


def _cell(choices: Mapping[int, SelectedCheckpoint | str], measure: str) -> Cell:
    """Make a cell from the choice of each trial."""
    chosen, reasons = [], dict[str, list[int]]()
    for trial, choice in choices.items():
        if isinstance(choice, str):
            reasons.setdefault(choice, []).append(trial)
        else:
            chosen.append((trial, choice))
    if not chosen and len(reasons) == 1:
        return Cell(reason=next(iter(reasons)))
    if not reasons:
        scores = tuple(MEASURES[measure].factor * choice.score for _, choice in chosen)
        digits = 1 if MEASURES[measure].percent else 3
        return Cell(scores, choices=tuple(chosen), digits=digits)
    n, n_empty = len(choices), len(choices) - len(chosen)
    details = "; ".join(f"{r} (trial {', '.join(map(str, of))})" for r, of in reasons.items())
    verb = "is" if n_empty == 1 else "are"
    return Cell(reason=f"{n_empty} of {n} trials {verb} missing: {details}")


def _average(cells: list[Cell], names: list[str]) -> Cell:
    empty = [name for name, cell in zip(names, cells, strict=True) if cell.reason]
    if empty:
        return Cell(reason=f"no average without {', '.join(empty)}")
    per_trial = np.mean([cell.scores for cell in cells], axis=0)  # [E, n] -> [n]
    return Cell(tuple(per_trial.tolist()), digits=cells[0].digits)


def _compare(a: str, first: Cell, b: str, second: Cell) -> Comparison:
    empty = [name for name, cell in ((a, first), (b, second)) if cell.reason]
    if empty:
        return a, b, None, f"no average of {' and of '.join(empty)}"
    if len(first.scores) < 2:
        return a, b, None, "an interval needs at least two trials"
    scores = [np.array(cell.scores) for cell in (first, second)]
    return a, b, paired_interval(scores[:1], scores[1:]), ""


def _describe(comparison: Comparison) -> str:
    first, second, interval, reason = comparison
    return f"{first} − {second}: {reason or str(interval).replace('-', '−')}"


def as_rows(tables: Iterable[SelectionTable]) -> list[dict[str, Any]]:
    """Return one dict per cell: `COLUMNS` and the choices; `reason` only if the mean is None."""
    return [
        table.place
        | {
            "environment": name,
            "algorithm": algorithm,
            "mean": cell.mean,
            "standard_error": cell.standard_error,
            "n": len(cell.scores),
            "choices": [_choice_row(trial, choice) for trial, choice in cell.choices],
        }
        | ({"reason": cell.reason} if cell.reason else {})
        for table in tables
        for algorithm, cells in table.lines.items()
        for name, cell in zip(table.columns, cells, strict=True)
    ]


def _choice_row(trial: int, choice: SelectedCheckpoint) -> dict[str, Any]:
    """Return the choice of a trial: draw, step and model."""
    return {
        "trial": trial,
        "draw": choice.hparams_seed,
        "step": choice.step,
        "value": choice.value,
        "score": choice.score,
        "model": None if choice.model is None else choice.model.differences(),
    }


def comparison_rows(tables: Iterable[SelectionTable]) -> list[dict[str, Any]]:
    """Return one dict per paired comparison with the fields of `Interval`, or the reason."""
    empty = dict.fromkeys(field.name for field in fields(Interval)) | {"n": 0}
    return [
        table.place
        | {"first": first, "second": second}
        | (asdict(found) if found else empty | {"reason": reason})
        for table in tables
        for first, second, found, reason in table.comparisons
    ]


def as_csv(tables: Iterable[SelectionTable]) -> str:
    """Return the rows of `as_rows` as CSV with an empty field for None."""
    import pandas as pd

    return str(pd.DataFrame(as_rows(tables), columns=COLUMNS).to_csv(index=False))


def as_text(tables: Iterable[SelectionTable]) -> str:
    """Return aligned text; * marks the best of a column, [1] refers to a reason below."""
    return "\n\n".join(_text(table) for table in tables)


def as_latex(tables: Iterable[SelectionTable]) -> str:
    """Return tables for booktabs; the best of a column is bold, reasons are footnotes."""
    return "\n\n".join(_latex(table) for table in tables)


def _text(table: SelectionTable) -> str:
    grid = [["", *(f"{name} " for name in table.columns)]]
    grid += _grid(table, "{}*".format, "{} ".format, "[{}] ".format, str)
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    text = [table.title, f"{table.legend}; * best", ""]
    for label, *shown in grid:
        padded = [cell.rjust(width) for cell, width in zip(shown, widths[1:], strict=True)]
        text.append("  ".join([label.ljust(widths[0]), *padded]).rstrip())
    if table.reasons:
        text += ["", *(f"[{k}] {reason}" for k, reason in enumerate(table.reasons, 1))]
    if table.comparisons:
        text += ["", "Difference of the averages over the same trials (95 % interval)"]
    return "\n".join([*text, *map(_describe, table.comparisons)])


def _latex(table: SelectionTable) -> str:
    grid = [["Algorithm", *map(_escape, table.columns)]]
    grid += _grid(table, r"\textbf{{{}}}".format, str, r"\textsuperscript{{{}}}".format, _escape)
    header, *body = [" & ".join(line) + r" \\" for line in grid]
    notes = [rf"\textsuperscript{{{k}}} {_escape(r)}" for k, r in enumerate(table.reasons, 1)]
    if table.comparisons:
        notes.append(_escape("Difference of the averages over the same trials (95 % interval):"))
        notes += [_escape(_describe(comparison)) for comparison in table.comparisons]
    start = rf"\begin{{tabular}}{{l{'c' * len(table.columns)}}}"
    caption = rf"\caption{{{_escape(f'{table.title}. {table.legend}; best in bold.')}}}"
    top = [r"\begin{table}", r"\centering", caption, start, r"\toprule", header, r"\midrule"]
    below = [rf"\par{{\footnotesize {note}}}" for note in notes]
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}", *below, r"\end{table}"])


def _grid(
    table: SelectionTable, best: Show, other: Show, footnote: Show, escape: Show
) -> list[list[str]]:
    """Return the lines of a table, each cell formatted by the function for its kind."""
    reasons = table.reasons

    def show(algorithm: str, k: int, cell: Cell) -> str:
        if cell.reason:
            return footnote(str(reasons.index(cell.reason) + 1))
        return (best if table.is_best(algorithm, k) else other)(escape(str(cell)))

    return [
        [escape(algorithm), *(show(algorithm, k, cell) for k, cell in enumerate(cells))]
        for algorithm, cells in table.lines.items()
    ]


LATEX = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
ESCAPED = str.maketrans(
    {character: rf"\text{name}{{}}" for character, name in LATEX.items()}
    | {character: f"\\{character}" for character in "&%$#_{}"}
    | {"±": r"$\pm$", "−": "$-$"}
)


def _escape(text: str) -> str:
    return text.translate(ESCAPED)
