"""The verdict of a fit: will it hold at a new site, which model is kept, and the saved summary.

no        no better than a constant at sites held out
care      a column's relation to the target changes between sites
likely    nothing was seen to change; the sentence says what could have been seen
unknown   no site was held out

`wri site` and `wri predict --target` read the summary, which is saved with the model. Models that
Python saved, and folders of older versions, have none.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from wri.diagnosis.inputs import listed
from wri.errors import InputError
from wri.estimators.choice import FEWEST_FOR_ERRORS, CandidateLosses, pick
from wri.estimators.pipeline import last_step
from wri.evaluation.candidates import (
    CONSTANT,
    NETWORK,
    PLAIN,
    TREES,
    WITHOUT,
    FitCandidate,
    FitOptions,
)
from wri.evaluation.changes import SiteWord, describe_changes
from wri.evaluation.held_out import HeldOutScores
from wri.futures import FUTURES, LIKE, REVERSED, UNRELATED, Future
from wri.number_text import write_number
from wri.saving.values import as_json

if TYPE_CHECKING:
    from wri.evaluation.fitting import TableFit

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
    """

    answer: VerdictWord
    question: str
    sentence: str
    kept: str
    advice: tuple[str, ...] = ()
    untried: str = ""


def choose_candidate(held: HeldOutScores | None, options: FitOptions) -> FitCandidate:
    """Return the candidate with the least worst regret over the futures like and unrelated.

    Where no site was held out, it is that with the preset's λ.
    """
    asked = [each for each in options.candidates() if each.is_asked]
    default = options.default_weight()
    if held is None:
        return next((each for each in asked if each.penalty_weight == default), asked[0])
    futures = tuple(future for future in held.futures if future != REVERSED)
    found = CandidateLosses(
        losses=np.array([[held.losses(each.name, f) for f in futures] for each in asked]),
        futures=futures,
        weights=[each.penalty_weight or 0.0 for each in asked],
        default=default,
        flagged=held.columns,
    )
    return asked[pick(found, "regret")]


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


def decide(fit: "TableFit") -> Verdict:
    """Put the verdict into words."""
    held, word = fit.held_out, fit.word
    question = f"Will it hold at a new {word.one}?"
    seen = describe_changes(fit.changes, fit.slopes, fit.rows.target, word)
    if held is None:
        two = f"with two {word.many} none can be left out"
        why = f"--fast left no {word.one} out" if len(fit.rows.environments) > 2 else two
        return Verdict(
            answer="unknown",
            question=question,
            sentence=f"Unknown: {why}, so nothing was measured at a new {word.one}. {seen}",
            kept=f"Kept: {name_candidate(fit.kept, (), True)}, without a comparison.",
        )
    seen += _describe_folds(held, bool(fit.changes), word)
    answer, sentence = _reason(held, fit.kept, seen, bool(fit.changes), word)
    return Verdict(
        answer=answer,
        question=question,
        sentence=sentence,
        kept=_describe_kept(held, fit.options, fit.kept, word),
        advice=tuple(_advise(held, word)),
        untried=_describe_untried(held, fit.options),
    )


def _reason(
    held: HeldOutScores, kept: FitCandidate, seen: str, changes: bool, word: SiteWord
) -> tuple[VerdictWord, str]:
    gap = held.difference(kept.name, CONSTANT)
    own, constant = (held.losses(name).mean() for name in (kept.name, CONSTANT))
    beside = f"{held.loss_name} {write_number(own)} against {write_number(constant)}"
    if gap.value >= 0:
        return "no", (
            f"No: at {word.many} left out it is no better than a constant ({beside}). It is not "
            f"fit for use. {seen}"
        )
    if gap.high >= 0 and len(held.environments) >= FEWEST_FOR_ERRORS:
        return "care", (
            f"Not shown: at {word.many} left out it is better than a constant ({beside}), but not "
            f"by more than chance. {seen}"
        )
    lead = "Not without care" if changes else "Nothing was found that speaks against it"
    return "care" if changes else "likely", f"{lead}: {seen[:1].lower()}{seen[1:]}"


def _describe_folds(held: HeldOutScores, changes: bool, word: SiteWord) -> str:
    """Say where all rows and the rows without one site flag different columns."""
    if changes == bool(held.columns):
        return ""
    if changes:
        return (
            f" If any one {word.one} is left out, the difference is no longer detected, so its "
            "cost was not measured."
        )
    sites = tuple(site for site, own in held.flagged.items() if own)
    which, found = sites[0], f"{listed(held.columns, 3)} {'are' if held.columns[1:] else 'is'}"
    if sites[1:]:
        which = f"one of {listed(sites, 3)}"
        found = f"at least one of {listed(held.columns, 3)} is" if held.columns[1:] else found
    return f" If {which} is left out, {found} flagged: compare the columns of the table below."


def _describe_kept(
    held: HeldOutScores, options: FitOptions, kept: FitCandidate, word: SiteWord
) -> str:
    """Name the kept model, what it costs and saves beside ERM, and the other choices."""
    ruled = choose_candidate(held, options)
    asked = f", as asked; the rule would keep {ruled.label}" if ruled.name != kept.name else ""
    said = f"Kept: {name_candidate(kept, held.columns, True)}{asked}."
    _, *erm = options.compared(kept)
    if erm and len(held.environments) >= FEWEST_FOR_ERRORS:
        parts = [_compare(held, kept, erm[0], future, word) for future in held.futures[:2]]
        said += f" Compared with {erm[0].label}, it {' and '.join(parts)}."
    names = [each.name for each in held.candidates if each.is_keepable]
    names = [n for n in names if n != kept.name and (n != WITHOUT or held.columns)]
    others = "|".join(shlex.quote(name) for name in names)
    return f"{said} To keep another model: --keep {others}." if others else said


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
            f"'{each.label}' beats linear ERM at {word.many} left out by more than chance "
            f"({held.loss_name} {write_number(own)} against {write_number(linear)}). Add "
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
    return f"Not tried, to save time: {' and '.join(missed)}. To try them: --predictors {asked}."


@dataclass(frozen=True, kw_only=True)
class FitSummary:
    """What a fit measured, for use at a new site."""

    target: str
    site: str | None  # column of sites
    answer: VerdictWord
    kept: str  # name of the model, a key of futures
    label: str
    constant: tuple[float, ...]  # shares of the classes, or the mean of the target
    futures: Mapping[str, Mapping[Future, float]]  # mean loss by model; empty: not measured
    columns: tuple[str, ...]  # flagged without some site, which the futures change
    reversed_at: Mapping[str, tuple[str, ...]]  # flagged columns, sites with the other sign

    @property
    def word(self) -> SiteWord:
        """The user's word for a site."""
        return SiteWord.of(self.site)

    def loss(self, future: Future, model: str | None = None) -> float | None:
        """Return the mean loss of the kept or another model at sites held out, in a future."""
        return self.futures.get(self.kept if model is None else model, {}).get(future)


def attach_summary(fit: "TableFit") -> None:
    """Put the summary of a fit on its model, to be saved with it."""
    held, y = fit.held_out, fit.rows.y
    columns = () if held is None else held.columns
    if fit.classes:
        constant = tuple(float(np.mean(y == label)) for label in fit.estimator.classes_)
    else:
        constant = (float(y.mean()),)
    summary = FitSummary(
        target=fit.rows.target,
        site=fit.rows.environment,
        answer=fit.verdict.answer,
        kept=fit.kept.name,
        label=name_candidate(fit.kept, columns, fit.classes),
        constant=constant,
        futures={} if held is None else held.mean_losses(),
        columns=columns,
        reversed_at={each.column: each.reversed_at for each in fit.changes},
    )
    last_step(fit.model).fit_summary_ = as_json(asdict(summary))


def read_summary(model: Any) -> FitSummary | None:
    """Return the summary of a loaded model; None if it has none."""
    last = last_step(model)
    found = getattr(last, "fit_summary_", None)
    if found is None:
        return None
    try:
        lists = {name: tuple(found[name]) for name in ("constant", "columns")}
        reversed_at = {column: tuple(sites) for column, sites in found["reversed_at"].items()}
        summary = FitSummary(**{**found, **lists, "reversed_at": reversed_at})
        if not _is_possible(summary, getattr(last, "classes_", None)):
            raise ValueError("impossible values")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"the model's fit_summary is damaged ({error!r:.80}); fit it again"
        ) from error
    return summary


def _is_possible(summary: FitSummary, classes: np.ndarray | None) -> bool:
    """Return whether values and their types are possible for a model."""
    sites = [site for own in summary.reversed_at.values() for site in own]
    texts = [summary.target, summary.site or "", summary.kept, summary.label, *summary.columns]
    numbers = [loss for own in summary.futures.values() for loss in own.values()]
    shares = np.array(summary.constant)
    return bool(
        {*map(type, (*texts, *sites))} <= {str}
        and summary.answer in get_args(VerdictWord)
        and all({LIKE} <= {*own} <= {*FUTURES} for own in summary.futures.values())
        and (summary.answer == "unknown") == (not summary.futures)
        and (not summary.futures or {summary.kept, CONSTANT} <= {*summary.futures})
        and np.isfinite([*numbers, *shares]).all()
        and min(numbers, default=0.0) >= 0
        and len(shares) == (1 if classes is None else len(classes))
        and (classes is None or (shares.min() > 0 and abs(shares.sum() - 1) < 1e-6))
    )
