"""Diagnosis of one table: one answer per question, in words and as a figure.

What changes between sites comes first. Slopes of categories are differences from the most common
category, the reference.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wri.datasets.table_rows import TableRows
from wri.diagnosis import environment_overlap, risk_gaps, stress_test
from wri.errors import InputError
from wri.evaluation.changes import ColumnChange, SiteWord, compare_slopes, describe_changes
from wri.progress import Progress, silent
from wri.rows import find_constant_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Answer to one question; without a result `meaning` gives the reason."""

    name: str
    question: str
    meaning: str
    result: Any = None
    changes: tuple[ColumnChange, ...] = ()  # flagged raw columns

    @property
    def answered(self) -> bool:
        """Whether there is a result."""
        return self.result is not None

    def plot(self) -> "Figure | None":
        """Draw the result, if it has a figure."""
        return self.result.plot() if hasattr(self.result, "plot") else None


QUESTIONS = {
    "changes": "Which columns' relation to the target changes between sites?",
    "overlap": "Do the sites have cases in common?",
    "gaps": "Does a prediction mean the same everywhere?",
    "stress": "What would it cost if a changing relation broke or reversed?",
}


def ask(name: str, find: Callable[[], Any]) -> Answer:
    """Answer one question; an InputError becomes the reason for no answer."""
    try:
        result = find()
    except InputError as error:
        meaning = f"This could not be answered: {error}."
        return Answer(name=name, question=QUESTIONS[name], meaning=meaning)
    return Answer(name=name, question=QUESTIONS[name], meaning=result.meaning, result=result)


def diagnose_rows(
    rows: TableRows,
    models: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Answer]:
    """Answer the questions of `QUESTIONS` that rows with encoded columns allow.

    `models` are fitted estimators that have not seen the rows; gaps are asked of the last one.
    """
    x = rows.X.iloc[:, np.flatnonzero(~find_constant_columns(rows.X.to_numpy()))]
    total = 4 if models else 2
    found: dict[str, Answer] = {}

    def add(name: str, find: Callable[[], Any]) -> None:
        found[name] = ask(name, find)
        progress(len(found), total)

    found["changes"] = ask_changes(rows)
    progress(1, total)
    add("overlap", lambda: environment_overlap(x, rows.groups, blocks=rows.blocks))
    if not models:
        return found
    last = list(models.values())[-1]
    own = rows.X.to_numpy()
    add("gaps", lambda: risk_gaps(last, own, rows.y, rows.groups, blocks=rows.blocks, seed=seed))
    changed = {change.column for change in found["changes"].changes}
    flagged = [n for n, owner in zip(rows.X, rows.owners, strict=True) if owner in changed]
    if flagged:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X has feature names")  # models of arrays
            add("stress", lambda: stress_test(models, rows.X, rows.y, rows.groups, flagged))
    else:
        reason = "No column's relation was found to change, so there is nothing to break."
        found["stress"] = Answer(name="stress", question=QUESTIONS["stress"], meaning=reason)
    return found


def ask_changes(rows: TableRows) -> Answer:
    """Say which raw columns change, and where their sign flips."""
    word = SiteWord.of(rows.environment)
    question = f"Which columns' relation to '{rows.target}' changes between {word.many}?"
    slopes, changes = compare_slopes(rows)
    meaning = describe_changes(changes, slopes, rows.target, word)
    if changes[1:]:
        meaning += " " + " ".join(f"{each.column}: {each.sentence}." for each in changes[1:])
    return Answer(
        name="changes", question=question, meaning=meaning, result=slopes, changes=tuple(changes)
    )
