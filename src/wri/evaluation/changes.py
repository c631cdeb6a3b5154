"""Columns whose relation to the target changes between sites, and the diagnosis of a table.

A spread τ of a column's slopes between E sites makes Cochran's Q about (1 + τ²/s²) · χ²(E − 1),
s being the slopes' standard error. So a spread is found with probability 0.8 if

    τ = s · sqrt(c / q − 1),    c, q: quantiles 1 − 0.05/D and 0.2 of χ²(E − 1), D columns

Numbers are flagged only if a second test agrees, which takes 1.4 times the spread. In simulations
with 3 to 10 sites such spreads were found in 65 to 90 % of tables.

Slopes of categories are differences from the most common category, the reference.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from wri.datasets.table_rows import TableRows
from wri.diagnosis import (
    ChangingFeatures,
    changing_features,
    environment_overlap,
    risk_gaps,
    stress_test,
)
from wri.diagnosis.changing_features import LEVEL, flagged_columns
from wri.diagnosis.inputs import listed
from wri.errors import InputError, shorten
from wri.number_text import write_number
from wri.progress import Progress, silent
from wri.rows import find_constant_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POWER, BOTH_TESTS = 0.8, 1.4
QUESTIONS = {
    "changes": "Which columns' relation to the target changes between sites?",
    "overlap": "Do the sites have cases in common?",
    "gaps": "Does a prediction mean the same everywhere?",
    "stress": "What would it cost if a changing relation broke or reversed?",
}


class SiteWord(NamedTuple):
    """The user's word for a site: the name of its column if that is one English-looking word."""

    one: str
    many: str

    @classmethod
    def of(cls, column: str | None) -> "SiteWord":
        word = (column or "").lower()
        is_word = word.isascii() and word.isalpha() and word not in ("file", "folder", "env")
        if not is_word or word.endswith("s"):  # a plural, or one whose plural is hard to tell
            return cls("site", "sites")
        if word.endswith(("x", "z", "ch", "sh")):
            return cls(word, f"{word}es")
        if word.endswith("y") and word[-2:-1] not in "aeiou":
            return cls(word, f"{word[:-1]}ies")
        return cls(word, f"{word}s")


@dataclass(frozen=True, kw_only=True)
class ColumnChange:
    """How the relation of one raw column to the target changes between sites."""

    column: str
    encoded: str  # its encoded column that changes most, such as "ward = a"
    p: float
    slopes: dict[str, float]  # of the encoded column by site
    unsure: tuple[str, ...]  # sites whose slope has the other sign, perhaps by chance
    reversed_at: tuple[str, ...]  # sites whose slope has clearly the other sign
    unit: str

    @property
    def sentence(self) -> str:
        """Range of slopes, sign and P-value."""
        low, high = (pick(self.slopes, key=self.slopes.__getitem__) for pick in (min, max))
        sign = "the sign is the same everywhere"
        if self.reversed_at:
            sign = f"it reverses at {listed(self.reversed_at, 3)}"
        elif self.unsure:
            sign = f"it may reverse at {listed(self.unsure, 3)}"
        of = f" of '{self.encoded}':" if self.encoded != self.column else ""
        return (
            f"slope{of} {write_number(self.slopes[low], 2)} at {shorten(low)} to "
            f"{write_number(self.slopes[high], 2)} at {shorten(high)}, in {self.unit}; {sign}; "
            f"P {'≤' if self.p <= 0.001 else '='} {write_number(self.p, 2)}"
        )


def column_changes(found: ChangingFeatures, owners: Sequence[str]) -> list[ColumnChange]:
    """Return the changes of the flagged raw columns, the largest first."""
    changes: dict[str, ColumnChange] = {}
    widest, flagged = found.widest(), found.is_flagged
    for k in found.order:
        if not flagged[k] or owners[k] in changes:
            continue
        slopes, errors = (part[widest[k], :, k] for part in (found.slopes, found.errors))
        sign = np.sign(found.average[widest[k], k])
        names = np.array([str(label) for label in found.environments], dtype=object)
        against, known = slopes * sign < 0, ~np.isnan(slopes)
        changes[owners[k]] = ColumnChange(
            column=owners[k],
            encoded=found.names[k],
            p=float(found.p[k]),
            slopes=dict(zip(names[known], slopes[known].tolist(), strict=True)),
            unsure=tuple(names[against]),
            reversed_at=tuple(names[against & (np.abs(slopes) > 2 * errors)]),
            unit=found.unit,
        )
    return list(changes.values())


def detectable_spread(found: ChangingFeatures) -> np.ndarray:  # [D]
    """Return the spread of each column's slopes that would be found with probability 0.8."""
    errors = found.errors[found.widest(), :, np.arange(len(found.names))]  # [D, E]
    sites = np.isfinite(errors).sum(1)
    spread = np.sqrt(1 / np.nanmean(1 / np.square(errors), 1))
    level = LEVEL / (len(found.names) * len(found.contrasts))
    critical, least = chi2.ppf(1 - level, sites - 1), chi2.ppf(1 - POWER, sites - 1)
    factor = BOTH_TESTS if "target" in found.unit else 1.0  # numbers
    return np.asarray(factor * spread * np.sqrt(critical / least - 1))


def compare_slopes(rows: TableRows) -> tuple[ChangingFeatures | None, list[ColumnChange]]:
    """Compare slopes between sites; None if fewer than two sites allow it."""
    own = rows.take_columns(comparable_columns(rows.X.to_numpy(), rows.owners))
    try:
        found = changing_features(own.X, own.y, own.groups, classes=own.classes, blocks=own.blocks)
    except InputError:  # the sentence says that nothing could be compared
        return None, []
    return found, column_changes(found, own.owners)


def flag_columns(rows: TableRows) -> np.ndarray:
    """Return the numbers of the encoded columns whose raw column changes; X is an array."""
    if not rows.owners:
        return np.empty(0, int)
    site, y = np.unique(rows.groups, return_inverse=True)[1], target_codes(rows)
    compared = comparable_columns(rows.X, rows.owners)
    found = flagged_columns(rows.X[:, compared], y, site, rows.classes, blocks=rows.blocks)
    names = {rows.owners[compared[k]] for k in found}
    return np.flatnonzero([owner in names for owner in rows.owners])


def comparable_columns(x: np.ndarray, owners: Sequence[str]) -> np.ndarray:
    """Return the columns whose slopes can be compared.

    Constant ones are left out, and the most common category of each column: it is the reference,
    without which slopes of categories are not determined.
    """
    kept = ~find_constant_columns(x)
    for owner in {*owners}:
        own = np.flatnonzero([name == owner for name in owners])
        own = own[np.isin(x[:, own], (0.0, 1.0)).all(0)]
        if len(own) > 1 and (x[:, own].sum(1) == 1).all():
            kept[own[x[:, own].mean(0).argmax()]] = False
    return np.flatnonzero(kept)


def target_codes(rows: TableRows) -> np.ndarray:  # [n]
    """Return numbers of classes, or the numbers themselves."""
    return np.unique(rows.y, return_inverse=True)[1] if rows.classes else rows.y.astype(float)


def describe_changes(
    changes: Sequence[ColumnChange], slopes: ChangingFeatures | None, target: str, word: SiteWord
) -> str:
    """Say which columns change; where none does, say what could have been seen."""
    if changes:
        names = quoted([each.column for each in changes], 4)
        first = f"{changes[0].column}: " if changes[1:] else ""
        return (
            f"The relation of {names} to '{target}' differs between {word.many} "
            f"({first}{changes[0].sentence})."
        )
    if slopes is None:
        return f"Whether a column's relation to '{target}' changes could not be tested."
    least = detectable_spread(slopes)
    low, high = (f"{write_number(value, 2)}" for value in (least.min(), least.max()))
    span = low if low == high else f"{low} to {high} (by column)"
    return (
        f"No column's relation to '{target}' differs between the {len(slopes.environments)} "
        f"{word.many} by more than chance. If slopes varied between {word.many} with a standard "
        f"deviation of {span} {slopes.unit}, the test would detect it in about 80 % of cases. "
        f"Smaller or non-linear differences, and those of a new {word.one}, cannot be excluded."
    )


def quoted(names: Sequence[str], most: int) -> str:
    """List names in quotes for a sentence."""
    return listed(tuple(f"'{shorten(name)}'" for name in names), most)


def flagged_document(changes: Sequence[ColumnChange]) -> list[dict[str, Any]]:
    """Return flagged columns for JSON."""
    return [
        {"column": c.column, "p": c.p, "slopes": c.slopes, "reversed_at": list(c.reversed_at)}
        for c in changes
    ]


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
    total = len(QUESTIONS) if models else 2
    found = {"changes": ask_changes(rows)}
    progress(1, total)

    def add(name: str, find: Callable[[], Any]) -> None:
        found[name] = ask(name, find)
        progress(len(found), total)

    found["overlap"] = ask_overlap(rows)
    progress(2, total)
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
        reason = (
            "No column's relation was found to change, so no future with a changed relation was "
            "measured."
        )
        found["stress"] = Answer(name="stress", question=QUESTIONS["stress"], meaning=reason)
    return found


def ask_overlap(rows: TableRows) -> Answer:
    """Say whether the sites have cases in common; constant columns are left out."""
    x = rows.X.iloc[:, np.flatnonzero(~find_constant_columns(rows.X.to_numpy()))]
    return ask("overlap", lambda: environment_overlap(x, rows.groups, blocks=rows.blocks))


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
