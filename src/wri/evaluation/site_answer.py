"""The answer of `wri site`: may the model be used at a new site without known outcomes?

    not without outcomes, if one of these holds
        a column of the model is missing in the file
        more than half of the rows are outside the evidence, or beyond the training range of one
        column, or hold categories or gaps that training never had
        the fit found the model no better than a constant at sites held out
        no loss can be expected with an interval: sites or rows are too few, or none was held out
        the expected loss is not below the loss of a constant
        a flagged column that told nothing would make the model no better than a constant; the
        same if it reversed, where it does so at a training site
    with care, if one of these holds
        the model uses a flagged column
        the interval of the expected loss contains the loss of a constant
        a column has more rows beyond its training range than usual (above 5 %, beyond chance)
        more than 5 % of the rows hold categories or gaps that training never had
        rare or outside rows are more than twice as frequent as usual, beyond chance
        the folder does not say what a fit measured at sites held out
    yes otherwise

The loss of a constant is its mean at the training sites held out. All rules are here;
`benchmarks/site_answers.py` counts the answers in simulations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from wri.datasets.schema import TableSchema, readable_names
from wri.diagnosis.inputs import listed
from wri.diagnosis.new_site import FEWEST_NEW, OFTEN_BEYOND, NewSite
from wri.errors import shorten
from wri.evaluation.candidates import CONSTANT
from wri.evaluation.changes import SiteWord
from wri.evaluation.summary import FitSummary, used_columns
from wri.evaluation.verdict import when
from wri.futures import LIKE, REVERSED
from wri.number_text import write_number, write_percent
from wri.ood.held_out import USUAL_BEYOND

SiteDecision = Literal["yes", "care", "no"]
LEADS: dict[SiteDecision, str] = {
    "yes": "Yes",
    "care": "With care",
    "no": "Not without outcomes",
}
MOST_ROWS = 0.5  # share of rows from which a site is of another kind
OFTEN_UNSEEN = OFTEN_BEYOND


@dataclass(frozen=True)
class SiteReason:
    """One reason against using the model as it is."""

    answer: SiteDecision
    text: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteAnswer:
    """The answer for one site, with its reasons and what it was decided from.

    Attributes
    ----------
    site : NewSite
        Expected loss and description of the rows.
    summary : FitSummary or None
        What the fit measured.
    used : tuple of str
        Flagged columns that the model uses.
    beyond : dict
        Share of rows beyond the training range, by raw column; those above 5 % and chance.
    missing : tuple of str
        Columns of the model that the file lacks.
    reasons : tuple of SiteReason
        The strongest first.
    """

    site: NewSite
    summary: FitSummary | None
    used: tuple[str, ...]
    beyond: dict[str, float]
    missing: tuple[str, ...]
    reasons: tuple[SiteReason, ...]

    @property
    def answer(self) -> SiteDecision:
        """The strongest reason decides."""
        return self.reasons[0].answer if self.reasons else "yes"

    @property
    def word(self) -> SiteWord:
        """The user's word for a site."""
        return SiteWord.of(None) if self.summary is None else self.summary.word

    @property
    def question(self) -> str:
        """The question in the user's words."""
        return f"May I use it at this {self.word.one}?"

    @property
    def first_sentence(self) -> str:
        """The answer with its strongest reason."""
        if self.reasons:
            return f"{LEADS[self.answer]}: {self.reasons[0].text}"
        word = self.word
        return (
            f"Yes, if it is a {word.one} like the training {word.many}: no column was seen to "
            "change between them, the rows look like theirs, and the whole interval is better "
            "than guessing. Only outcomes can show a relation that has changed here."
        )

    @property
    def sentence(self) -> str:
        """The answer with all its reasons."""
        others = (_capital(reason.text) for reason in self.reasons[1:])
        return " ".join([self.first_sentence, *others])


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def answer_site(
    site: NewSite, model: Any, summary: FitSummary | None, missing: Sequence[str] = ()
) -> SiteAnswer:
    """Decide by the rules above; `missing` are columns of the model that the file lacks."""
    used = () if summary is None else used_columns(summary, model)
    beyond = {
        name: share
        for name, share in _beyond_shares(site, model).items()
        if name.removesuffix(" is missing") not in missing
    }
    found = [
        *_missing_columns(missing),
        *_fit_reasons(summary),
        *_loss_reasons(site, summary),
        *_flagged_reasons(summary, used),
        *_row_reasons(site, beyond, missing),
    ]
    order = sorted(found, key=lambda reason: reason.answer != "no")  # stable
    return SiteAnswer(
        site=site,
        summary=summary,
        used=used,
        beyond=beyond,
        missing=tuple(missing),
        reasons=tuple(order),
    )


def _beyond_shares(site: NewSite, model: Any) -> dict[str, float]:
    """Return the share of rows beyond the training range, by column; only high shares."""
    schema = TableSchema.of(model)
    raw = site.columns if schema is None else schema.features
    names = readable_names(site.columns, raw)
    places = [site.columns.index(name) for name in site.flagged_columns]
    return {names[place]: float(site.beyond[place]) for place in places}


def _missing_columns(missing: Sequence[str]) -> Iterator[SiteReason]:
    if missing:
        names = listed(tuple(f"'{shorten(name)}'" for name in missing), 4)
        yield SiteReason(
            "no",
            f"the model was trained on {names}, which this file lacks. Add or rename it; the "
            "numbers below are those of rows without it.",
        )


def _fit_reasons(summary: FitSummary | None) -> Iterator[SiteReason]:
    if summary is None:
        yield SiteReason(
            "care",
            "the folder does not say what was measured at sites held out, or which columns "
            "change between sites; a fit by `wri fit` does.",
        )
    elif summary.answer == "no":
        own, constant = summary.loss(LIKE), summary.loss(LIKE, CONSTANT)
        yield SiteReason(
            "no",
            f"at the {summary.word.many} held out by the fit it was no better than guessing (loss "
            f"{_number(own)} against {_number(constant)}).",
        )


def _number(value: float | None) -> str:
    return "unknown" if value is None else write_number(value)


def _loss_reasons(site: NewSite, summary: FitSummary | None) -> Iterator[SiteReason]:
    loss, constant = site.loss, None if summary is None else summary.loss(LIKE, CONSTANT)
    if loss is None or loss.low is None or loss.high is None:
        yield SiteReason("no", _describe_no_interval(site))
        return
    if constant is None:
        return
    ends = f"{write_number(loss.low)} to {write_number(loss.high)}"
    guess = f"{write_number(constant)}, the {site.measure} of guessing"
    if loss.new >= constant:
        yield SiteReason(
            "no",
            f"the expected {site.measure}, {write_number(loss.new)}, is no better than {guess} "
            f"(always predicting what is usual for '{_target(summary)}').",
        )
    elif loss.high >= constant:
        yield SiteReason(
            "care",
            f"no better than guessing is within the interval: {site.measure} {ends} "
            f"({write_percent(loss.level)}) contains {guess} (always predicting what is usual for "
            f"'{_target(summary)}').",
        )


def _target(summary: FitSummary | None) -> str:
    return "the target" if summary is None else shorten(summary.target)


def _describe_no_interval(site: NewSite) -> str:
    if len(site.labels) < 3:
        return (
            f"with {len(site.labels)} training sites nothing could be measured at a new one, so no "
            "loss can be promised."
        )
    if site.loss is None and len(site.verdicts) < FEWEST_NEW:
        return f"{len(site.verdicts)} rows are too few to say what to expect ({FEWEST_NEW} needed)."
    if site.loss is None:
        return (
            "hardly any row held out in training had predictions like those here, so no loss can "
            "be expected."
        )
    return "no site was left out when the model was fitted, so no loss can be promised."


def _flagged_reasons(summary: FitSummary | None, used: tuple[str, ...]) -> Iterator[SiteReason]:
    """Say what a break of the flagged columns would cost."""
    if summary is None or not used:
        return
    word, future = summary.word, summary.likely_break
    names = listed(tuple(f"'{shorten(name)}'" for name in used), 3)
    verb = "tell" if used[1:] else "tells"
    told = (
        f"{names} {verb} about '{_target(summary)}' differently from {word.one} to {word.one}, "
        "which cannot be seen here without outcomes."
    )
    broken, like, constant = (
        summary.loss(future),
        summary.loss(LIKE),
        summary.loss(LIKE, CONSTANT),
    )
    if broken is None or like is None or constant is None:
        yield SiteReason("care", f"{told} What that would cost was not measured.")
        return
    seen = tuple(dict.fromkeys(site for own in summary.reversed_at.values() for site in own))
    known = f" (as at {listed(seen, 3)})" if future == REVERSED else ""
    cost = (
        f"{when(future, summary.columns, word)}{known}, the loss would go from "
        f"{write_number(like)} to {write_number(broken)}"
    )
    worse = broken >= constant
    beside = "no better than" if worse else "still better than"
    yield SiteReason(
        "no" if worse else "care",
        f"{told} {_capital(cost)}, {beside} guessing ({write_number(constant)}).",
    )


def _row_reasons(
    site: NewSite, beyond: dict[str, float], missing: Sequence[str]
) -> Iterator[SiteReason]:
    outside = site.outside
    if outside > MOST_ROWS:
        yield SiteReason(
            "no",
            f"{write_percent(outside, 2)} of the rows are outside the evidence: the model guesses "
            "there.",
        )
    elif site.flagged_often and not missing:
        usual = sum(site.usual)
        yield SiteReason(
            "care",
            f"{write_percent(site.rare + outside, 2)} of the rows are rare or outside the evidence "
            f"({write_percent(usual, 2)} is usual).",
        )
    if beyond:
        names = listed(tuple(shorten(name) for name in beyond), 3)
        most = max(beyond.values())
        yield SiteReason(
            "no" if most > MOST_ROWS else "care",
            f"up to {write_percent(most, 2)} of the rows lie beyond the training range of {names} "
            f"({write_percent(USUAL_BEYOND)} is usual); nothing was measured there.",
        )
    unseen = [cells for cells in site.unseen if cells.column not in missing]
    share = float(np.any([cells.rows for cells in unseen], axis=0).mean()) if unseen else 0.0
    if share > OFTEN_UNSEEN:
        names = listed(tuple(dict.fromkeys(shorten(cells.column) for cells in unseen)), 3)
        yield SiteReason(
            "no" if share > MOST_ROWS else "care",
            f"{write_percent(share, 2)} of the rows hold categories or gaps that training never "
            f"had, in {names}.",
        )
