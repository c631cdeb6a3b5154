"""Columns whose relation to the target changes between sites, in the user's words.

A spread τ of a column's slopes between E sites makes Cochran's Q about (1 + τ²/s²) · χ²(E − 1),
s being the slopes' standard error. So a spread is found with probability 0.8 if

    τ = s · sqrt(c / q − 1),    c, q: quantiles 1 − 0.05/D and 0.2 of χ²(E − 1), D columns

Numbers are flagged only if a second test agrees, which takes 1.4 times the spread. In simulations
with 3 to 10 sites such spreads were found in 65 to 90 % of tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from wri.datasets.table_rows import TableRows
from wri.diagnosis import ChangingFeatures, changing_features
from wri.diagnosis.changing_features import LEVEL, flagged_columns
from wri.diagnosis.inputs import listed
from wri.errors import InputError, shorten
from wri.number_text import write_number
from wri.rows import find_constant_columns

POWER, BOTH_TESTS = 0.8, 1.4


class SiteWord(NamedTuple):
    """The user's word for a site: the name of its column if that is one English-looking word."""

    one: str
    many: str

    @classmethod
    def of(cls, column: str | None) -> "SiteWord":
        word = (column or "").lower()
        if not (word.isascii() and word.isalpha()) or word in ("file", "folder", "env"):
            return cls("site", "sites")
        if word.endswith("s"):
            return cls("site", "sites")  # a plural, or one whose plural is hard to tell
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
        low, high = (
            pick_site(self.slopes, key=self.slopes.__getitem__) for pick_site in (min, max)
        )
        if self.reversed_at:
            sign = f"it reverses at {listed(self.reversed_at, 3)}"
        elif self.unsure:
            sign = f"it may reverse at {listed(self.unsure, 3)}"
        else:
            sign = "it does not change its sign"
        chance = f"{'at most ' if self.p <= 0.001 else ''}{write_number(100 * self.p, 2)} %"
        of = f" of '{self.encoded}':" if self.encoded != self.column else ""
        return (
            f"slope{of} {write_number(self.slopes[low], 2)} at {shorten(low)} to "
            f"{write_number(self.slopes[high], 2)} at {shorten(high)}, in {self.unit}; {sign}; "
            f"chance would do this in {chance} of tables"
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
        names = [str(label) for label in found.environments]
        against = [e for e in range(len(names)) if slopes[e] * sign < 0]
        clear = [e for e in against if abs(slopes[e]) > 2 * errors[e]]
        changes[owners[k]] = ColumnChange(
            column=owners[k],
            encoded=found.names[k],
            p=float(found.p[k]),
            slopes={
                names[e]: float(slopes[e]) for e in range(len(names)) if slopes[e] == slopes[e]
            },
            unsure=tuple(names[e] for e in against),
            reversed_at=tuple(names[e] for e in clear),
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
        names = listed(tuple(f"'{shorten(each.column)}'" for each in changes), 4)
        verb = "tell" if changes[1:] else "tells"
        first = f"{changes[0].column}: " if changes[1:] else ""
        return (
            f"{names} {verb} about '{target}' differently from {word.one} to {word.one} "
            f"({first}{changes[0].sentence})."
        )
    if slopes is None:
        return f"Whether a column's relation to '{target}' changes could not be tested."
    least = detectable_spread(slopes)
    low, high = (f"{write_number(value, 2)}" for value in (least.min(), least.max()))
    span = low if low == high else f"{low} to {high} (by column)"
    return (
        f"No column's relation to '{target}' changes between the {len(slopes.environments)} "
        f"{word.many} by more than chance. Slopes that differ with a standard deviation of {span} "
        f"{slopes.unit} would be found in about 4 of 5 tables. "
        f"Smaller changes, changes that are not linear, and what only a new {word.one} does stay "
        "open."
    )


def flagged_document(changes: Sequence[ColumnChange]) -> list[dict[str, Any]]:
    """Return flagged columns for JSON."""
    return [
        {"column": c.column, "p": c.p, "slopes": c.slopes, "reversed_at": list(c.reversed_at)}
        for c in changes
    ]
