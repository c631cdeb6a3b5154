"""Diagnosis of one table: one answer per question, in words and as a figure.

What changes between sites comes first. Slopes of categories are differences from the most common
category, the reference.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from wri.diagnosis import (
    ChangingFeatures,
    changing_features,
    environment_overlap,
    risk_gaps,
)
from wri.errors import InputError
from wri.progress import Progress, silent
from wri.rows import find_constant_columns
from wri.tables.held_out import comparable_columns
from wri.tables.verdict import ColumnChange, SiteWord, column_changes, describe_changes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, kw_only=True)
class NamedColumns:
    """Numbers without missing values, with target, site and block per row."""

    x: np.ndarray  # [n, D]
    names: tuple[str, ...]  # [D]
    owners: tuple[str, ...]  # [D], raw columns
    y: np.ndarray  # [n]
    groups: np.ndarray  # [n]
    blocks: np.ndarray | None = None  # [n]
    target: str = "the target"
    site: str | None = None  # column of sites

    @property
    def frame(self) -> pd.DataFrame:
        """The columns as a DataFrame."""
        return pd.DataFrame(self.x, columns=list(self.names), copy=False)

    def sample(self, most: int, seed: int) -> "NamedColumns":
        """Draw at most `most` rows, each site in proportion; blocks may lose rows."""
        n = len(self.y)
        if n <= most:
            return self
        rows = np.sort(np.random.default_rng(seed).permutation(n)[:most])
        blocks = None if self.blocks is None else self.blocks[rows]
        x, y, groups = self.x[rows], self.y[rows], self.groups[rows]
        return replace(self, x=x, y=y, groups=groups, blocks=blocks)

    def varying(self) -> "NamedColumns":
        """Return the table without constant columns."""
        return self._take(np.flatnonzero(~find_constant_columns(self.x)))

    def comparable(self) -> "NamedColumns":
        """Return the columns whose slopes can be compared: one category less per column."""
        return self._take(comparable_columns(self.x, self.owners))

    def _take(self, kept: np.ndarray) -> "NamedColumns":
        names, owners = (tuple(each[k] for k in kept) for each in (self.names, self.owners))
        return replace(self, x=self.x[:, kept], names=names, owners=owners)


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


def diagnose_columns(
    columns: NamedColumns,
    *,
    classes: bool,
    models: Mapping[str, Any] | None = None,
    seen: bool = True,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[str, Answer]:
    """Answer all questions that the rows allow.

    Parameters
    ----------
    columns
        Numbers without gaps, targets, sites and perhaps blocks.
    classes
        Whether targets are classes.
    models
        Fitted estimators by name that take these columns; questions about models are asked of
        them, that of gaps of the last one.
    seen
        Whether the models have seen the rows; on rows of their training a model looks invariant,
        so gaps are asked of other rows only.
    seed
        Of everything that is drawn.
    progress
        Called with the questions answered and in all.

    Returns
    -------
    dict
        Answers by the names of `QUESTIONS`.
    """
    own = columns.varying()
    x, groups = own.frame, own.groups
    dependent = {"blocks": own.blocks} if own.blocks is not None else {}
    total = 4 if models else 2
    found: dict[str, Answer] = {}

    def add(name: str, find: Callable[[], Any]) -> None:
        found[name] = ask(name, find)
        progress(len(found), total)

    found["changes"] = ask_changes(columns, classes)
    progress(1, total)
    add(
        "overlap",
        lambda: environment_overlap(x, groups, **_accepted_options(environment_overlap, dependent)),
    )
    changed = {change.column for change in found["changes"].changes}
    flagged = tuple(
        name for name, owner in zip(columns.names, columns.owners, strict=True) if owner in changed
    )
    if models:
        _ask_models(columns, found, models, flagged, seen, dependent, seed, add)
    return found


def ask_changes(columns: NamedColumns, classes: bool) -> Answer:
    """Say which raw columns change, and where their sign flips."""
    word = SiteWord.of(columns.site)
    question = f"Which columns' relation to '{columns.target}' changes between {word.many}?"
    slopes, changes = compare_slopes(columns, classes)
    meaning = describe_changes(changes, slopes, columns.target, word)
    if changes[1:]:
        meaning += " " + " ".join(f"{each.column}: {each.sentence}." for each in changes[1:])
    return Answer(
        name="changes", question=question, meaning=meaning, result=slopes, changes=tuple(changes)
    )


def compare_slopes(
    columns: NamedColumns, classes: bool
) -> tuple[ChangingFeatures | None, list[ColumnChange]]:
    """Compare slopes between sites; None if fewer than two sites allow it."""
    own = columns.comparable()
    try:
        found = changing_features(own.frame, own.y, own.groups, classes=classes, blocks=own.blocks)
    except InputError:  # the sentence says that nothing could be compared
        return None, []
    return found, column_changes(found, own.owners)


def _ask_models(
    columns: NamedColumns,
    found: dict[str, Answer],
    models: Mapping[str, Any],
    flagged: tuple[str, ...],
    seen: bool,
    dependent: dict[str, Any],
    seed: int,
    add: Callable[[str, Callable[[], Any]], None],
) -> None:
    """Answer the questions about models."""
    from wri.diagnosis import stress_test

    x, y, groups = columns.x, columns.y, columns.groups
    if not seen:
        last = list(models.values())[-1]
        add(
            "gaps",
            lambda: risk_gaps(
                last, x, y, groups, seed=seed, **_accepted_options(risk_gaps, dependent)
            ),
        )
    if flagged:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X has feature names")  # models of arrays
            add("stress", lambda: stress_test(models, columns.frame, y, groups, list(flagged)))
    else:
        reason = "No column's relation was found to change, so there is nothing to break."
        found["stress"] = Answer(name="stress", question=QUESTIONS["stress"], meaning=reason)


def _accepted_options(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a function takes."""
    return {
        name: value for name, value in options.items() if name in signature(function).parameters
    }
