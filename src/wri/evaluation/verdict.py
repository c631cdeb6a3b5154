"""The verdict of a fit: will it hold at a new site, and which model is kept.

no        no better than a constant at sites held out
care      a column's relation to the target changes between sites
likely    nothing was seen to change; the sentence says what could have been seen
unknown   no site was held out
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wri.diagnosis import ChangingFeatures
from wri.diagnosis.inputs import listed
from wri.estimators.choice import FEWEST_FOR_ERRORS, CandidateLosses, pick
from wri.evaluation.candidates import (
    CONSTANT,
    NETWORK,
    PLAIN,
    TREES,
    WITHOUT,
    FitCandidate,
    FitOptions,
)
from wri.evaluation.changes import ColumnChange, SiteWord, describe_changes, flagged_document
from wri.evaluation.held_out import HeldOutScores
from wri.futures import LIKE, REVERSED, UNRELATED, Future
from wri.number_text import write_number

REMEDIES = {NETWORK: "--hidden 32,16", TREES: "--algorithms wri-boosting"}
VerdictWord = Literal["no", "care", "likely", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Answer to the question whether the model holds at a new site, with the model that is kept.

    Attributes
    ----------
    answer : {"no", "care", "likely", "unknown"}
    question, sentence : str
        The question, and the answer with its reason.
    kept : str
        The kept model, with its cost and its saving beside ERM.
    advice : tuple of str
        Other predictors that are better at sites left out, by more than chance.
    untried : str
        Predictors that were not tried.
    changes : tuple of ColumnChange
        Flagged columns.
    word : SiteWord
        The user's word for a site.
    """

    answer: VerdictWord
    question: str
    sentence: str
    kept: str
    advice: tuple[str, ...]
    untried: str
    changes: tuple[ColumnChange, ...]
    word: SiteWord


def choose_candidate(held: HeldOutScores, options: FitOptions) -> FitCandidate:
    """Return the candidate with the least worst regret over the futures like and unrelated."""
    asked = [each for each in held.candidates if each.is_asked]
    futures = tuple(future for future in held.futures if future != REVERSED)
    losses = np.array([[held.losses(each.name, f) for f in futures] for each in asked])
    weights = [0.0 if each.penalty_weight is None else each.penalty_weight for each in asked]
    default = options.default_weight()
    found = CandidateLosses(
        losses=losses,
        futures=futures,
        weights=weights,
        default=default,
        flagged=held.columns,
    )
    return asked[pick(found, "regret")]


def beside(kept: FitCandidate, candidates: Sequence[FitCandidate]) -> FitCandidate | None:
    """Return the ERM to compare a model with, with the same predictor; None for ERM itself."""
    boosted = str(kept.algorithm).endswith("-boosting")
    name = f"{PLAIN}-boosting" if boosted else PLAIN
    return next((each for each in candidates if each.name == name != kept.name), None)


def when(future: Future, columns: Sequence[str], word: SiteWord) -> str:
    """Name a future as part of a sentence."""
    named = listed(tuple(columns), 2)
    if len(columns) > 2 or len(named) > 30:
        named = f"the {len(columns)} flagged columns" if columns[1:] else "the flagged column"
    return {
        LIKE: f"{word.many} like these",
        UNRELATED: f"if {named} told nothing",
        REVERSED: f"if {named} reversed",
    }[future]


def name_candidate(candidate: FitCandidate, columns: Sequence[str], classes: bool) -> str:
    """Return the label of a line of the table."""
    if candidate.name == WITHOUT:
        named = listed(tuple(columns), 2)
        return f"ERM without {named if len(named) <= 20 else 'them'}"
    if candidate.algorithm is None and candidate.name != CONSTANT:
        return "logistic regression" if classes else "ridge regression"
    return candidate.label


def decide(
    held: HeldOutScores | None,
    options: FitOptions,
    kept: FitCandidate,
    *,
    changes: Sequence[ColumnChange],
    slopes: ChangingFeatures | None,
    target: str,
    word: SiteWord,
    sites: int,
) -> Verdict:
    """Put the verdict into words."""
    answer, sentence = _reason(held, kept, changes, slopes, target, word, sites)
    return Verdict(
        answer=answer,
        question=f"Will it hold at a new {word.one}?",
        sentence=sentence,
        kept=_describe_kept(held, options, kept, word),
        advice=() if held is None else tuple(_advise(held, word)),
        untried="" if held is None else _describe_untried(held, options),
        changes=tuple(changes),
        word=word,
    )


def _reason(
    held: HeldOutScores | None,
    kept: FitCandidate,
    changes: Sequence[ColumnChange],
    slopes: ChangingFeatures | None,
    target: str,
    word: SiteWord,
    sites: int,
) -> tuple[VerdictWord, str]:
    seen = describe_changes(changes, slopes, target, word)
    seen += _describe_folds(held, changes, word)
    if held is None:
        why = "--fast left no {one} out" if sites > 2 else "with two {many} none can be left out"
        why = why.format(one=word.one, many=word.many)
        return "unknown", f"Unknown: {why}, so nothing was measured at a new one. {seen}"
    gap = held.difference(kept.name, CONSTANT)
    own, constant = (held.losses(name).mean() for name in (kept.name, CONSTANT))
    beside = f"{held.loss_name} {write_number(own)} against {write_number(constant)}"
    if gap.value >= 0:
        return "no", (
            f"No: at {word.many} left out it is no better than a constant ({beside}). It is not "
            f"fit for use. {seen}"
        )
    if gap.high >= 0 and sites >= FEWEST_FOR_ERRORS:
        seen = (
            f"At {word.many} left out it is better than a constant ({beside}), but by no more than "
            f"chance between {word.many}. {seen}"
        )
        return "care", f"Not shown. {seen}"
    if changes:
        return "care", f"Not without care: {seen}"
    return "likely", f"No reason against it was found: {seen[:1].lower()}{seen[1:]}"


def _describe_folds(
    held: HeldOutScores | None, changes: Sequence[ColumnChange], word: SiteWord
) -> str:
    """Say where all rows and the rows without one site flag different columns."""
    if held is None or bool(changes) == bool(held.columns):
        return ""
    if changes:
        return (
            f" With any {word.one} left out this is no longer visible, so its cost could not be "
            "measured."
        )
    sites = tuple(site for site, own in held.flagged.items() if own)
    return (
        f" Only with {listed(sites, 3)} left out, {listed(held.columns, 3)} would be flagged: look "
        "at both futures below."
    )


def _describe_kept(
    held: HeldOutScores | None, options: FitOptions, kept: FitCandidate, word: SiteWord
) -> str:
    """Name the kept model, what it costs and saves beside ERM, and the other choices."""
    columns = () if held is None else held.columns
    label = name_candidate(kept, columns, True)
    if held is None:
        return f"Kept: {label}, without a comparison."
    ruled = choose_candidate(held, options)
    said = f"Kept: {label}."
    if ruled.name != kept.name:
        said = f"Kept: {label}, as asked; the rule keeps {ruled.label}."
    erm = beside(kept, held.candidates)
    if erm is not None and len(held.environments) >= FEWEST_FOR_ERRORS:
        parts = [_compare(held, kept, erm, future, word) for future in held.futures[:2]]
        said += f" Beside {erm.label} it {' and '.join(parts)}."
    names = [c.name for c in held.candidates if c.is_asked or c.is_plain or c.name == WITHOUT]
    names = [n for n in names if n != kept.name and (n != WITHOUT or columns)]
    others = "|".join(shlex.quote(name) for name in names)
    return f"{said} Another choice: --keep {others}." if others else said


def _compare(
    held: HeldOutScores, kept: FitCandidate, erm: FitCandidate, future: Future, word: SiteWord
) -> str:
    """Describe the relative difference of two losses, with its standard error over sites."""
    own, plain = (held.losses(each.name, future) for each in (kept, erm))
    change = 100 * (own - plain) / plain.mean()
    error = change.std(ddof=1) / np.sqrt(len(change))
    verb, where = "costs" if change.mean() > 0 else "saves", when(future, held.columns, word)
    where = f"at {where}" if future == LIKE else where
    size, chance = write_number(abs(change.mean()), 2), write_number(error, 2)
    return f"{verb} {size} % (standard error {chance}) {where}"


def _advise(held: HeldOutScores, word: SiteWord) -> list[str]:
    """Say which other predictor is better than a linear one by more than chance."""
    said: list[str] = []
    for each in held.candidates:
        if each.name not in REMEDIES or held.difference(each.name, PLAIN).high >= 0:
            continue
        own, linear = (held.losses(name).mean() for name in (each.name, PLAIN))
        said.append(
            f"{each.label}, is better than linear ERM at {word.many} left out ({held.loss_name} "
            f"{write_number(own)} against {write_number(linear)}, more than chance). Add "
            f"{REMEDIES[each.name]} to train WRI on it."
        )
    return said


def _describe_untried(held: HeldOutScores, options: FitOptions) -> str:
    """Name predictors that were not tried, and how to ask for them."""
    names = [each.name for each in held.candidates]
    missed = [name for name in REMEDIES if name not in names]
    if not missed or PLAIN not in names or options.hidden or options.predictors is not None:
        return ""
    asked = ",".join(("linear", *REMEDIES))
    return f"Not tried, to save time: {' and '.join(missed)} (--predictors {asked})."


def verdict_document(verdict: Verdict, held: HeldOutScores | None) -> dict[str, Any]:
    """Return verdict and futures for JSON."""
    return {
        "verdict": {
            "answer": verdict.answer,
            "question": verdict.question,
            "sentence": verdict.sentence,
            "kept": verdict.kept,
            "advice": list(verdict.advice),
            "untried": verdict.untried,
            "flagged": flagged_document(verdict.changes),
        },
        "futures": {} if held is None else held.mean_losses(),
    }
