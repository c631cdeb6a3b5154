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
from wri.evaluation.changes import SiteWord, quoted
from wri.evaluation.verdict import FitSummary, when
from wri.futures import LIKE, REVERSED, UNRELATED
from wri.number_text import write_number, write_percent
from wri.ood.held_out import USUAL_BEYOND

SiteDecision = Literal["yes", "care", "no"]
Reason = tuple[SiteDecision, str]
LEADS: dict[SiteDecision, str] = {"yes": "Yes", "care": "With care", "no": "Not without outcomes"}
MOST_ROWS = 0.5  # share of rows from which a site is of another kind
OFTEN_UNSEEN = OFTEN_BEYOND


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
    reasons : tuple of (str, str)
        Answers with their reasons against using the model as it is, the strongest first.
    """

    site: NewSite
    summary: FitSummary | None
    used: tuple[str, ...]
    beyond: dict[str, float]
    missing: tuple[str, ...]
    reasons: tuple[Reason, ...]

    @property
    def answer(self) -> SiteDecision:
        """The strongest reason decides."""
        return self.reasons[0][0] if self.reasons else "yes"

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
            return f"{LEADS[self.answer]}: {self.reasons[0][1]}"
        word = self.word
        return (
            f"Yes, if this {word.one} is like the training {word.many}: no relation was found to "
            "change between them, these rows look like theirs, and the whole interval is better "
            "than guessing. Only outcomes can show a relation that has changed here."
        )

    @property
    def other_sentences(self) -> list[str]:
        """The other reasons."""
        return [f"{text[:1].upper()}{text[1:]}" for _, text in self.reasons[1:]]

    @property
    def sentence(self) -> str:
        """The answer with all its reasons."""
        return " ".join([self.first_sentence, *self.other_sentences])


def answer_site(
    site: NewSite, model: Any, summary: FitSummary | None, missing: Sequence[str] = ()
) -> SiteAnswer:
    """Decide by the rules above; `missing` are columns of the model that the file lacks."""
    schema = TableSchema.of(model)
    flagged = () if summary is None else tuple(summary.reversed_at)
    used = tuple(name for name in flagged if schema is None or name in schema.features)
    names = readable_names(site.columns, site.columns if schema is None else schema.features)
    places = [site.columns.index(name) for name in site.flagged_columns]
    beyond = {
        names[place]: float(site.beyond[place])
        for place in places
        if names[place].removesuffix(" is missing") not in missing
    }
    found = [
        *_missing_columns(missing),
        *_fit_reasons(summary),
        *_loss_reasons(site, summary),
        *_flagged_reasons(summary, used),
        *_row_reasons(site, beyond, missing),
    ]
    return SiteAnswer(
        site=site,
        summary=summary,
        used=used,
        beyond=beyond,
        missing=tuple(missing),
        reasons=tuple(sorted(found, key=lambda reason: reason[0] != "no")),  # stable
    )


def _missing_columns(missing: Sequence[str]) -> Iterator[Reason]:
    if missing:
        yield (
            "no",
            f"this file has no column {quoted(missing, 4)}, which the model was trained on. Add or "
            "rename it. The numbers below treat it as missing.",
        )


def _fit_reasons(summary: FitSummary | None) -> Iterator[Reason]:
    if summary is None:
        yield (
            "care",
            "the model was not saved by `wri fit`, so its loss at held-out sites and the columns "
            "whose relations change are unknown.",
        )
    elif summary.answer == "no":
        own, constant = summary.futures[summary.kept][LIKE], summary.futures[CONSTANT][LIKE]
        yield (
            "no",
            f"in the fit it was no better than guessing at held-out {summary.word.many} (loss "
            f"{write_number(own)}, guessing {write_number(constant)}).",
        )


def _loss_reasons(site: NewSite, summary: FitSummary | None) -> Iterator[Reason]:
    loss, constant = site.loss, None if summary is None else summary.loss(LIKE, CONSTANT)
    if loss is None or loss.low is None or loss.high is None:
        yield "no", _describe_no_interval(site)
    elif summary is not None and constant is not None and max(loss.new, loss.high) >= constant:
        guess = (
            f"guessing ({write_number(constant)}). Guessing always predicts what is usual for "
            f"'{shorten(summary.target)}'."
        )
        if loss.new >= constant:
            expected = write_number(loss.new)
            yield "no", f"the expected {site.measure} is {expected}, no better than {guess}"
        else:
            ends = f"{write_number(loss.low)} to {write_number(loss.high)}"
            level = write_percent(loss.level)
            yield "care", f"the {level} interval of the {site.measure}, {ends}, includes {guess}"


def _describe_no_interval(site: NewSite) -> str:
    if len(site.labels) < 3:
        return f"with {len(site.labels)} training sites, no loss at a new site can be estimated."
    if site.loss is not None:
        return "no site was held out in the fit, so no loss can be promised."
    if len(site.verdicts) < FEWEST_NEW:
        return f"{len(site.verdicts)} rows are too few to estimate a loss ({FEWEST_NEW} needed)."
    return "too few held-out rows had predictions like those here, so no loss can be estimated."


def _flagged_reasons(summary: FitSummary | None, used: tuple[str, ...]) -> Iterator[Reason]:
    """Say what a break of the flagged columns would cost."""
    if summary is None or not used:
        return
    word, seen = summary.word, [site for own in summary.reversed_at.values() for site in own]
    future = REVERSED if seen else UNRELATED  # reversed if some training site has shown it
    told = (
        f"the relation of {quoted(used, 3)} to '{shorten(summary.target)}' differs between "
        f"{word.many}. What it is here cannot be seen without outcomes."
    )
    broken, like = summary.loss(future), summary.loss(LIKE)
    constant = summary.loss(LIKE, CONSTANT)
    if broken is None or like is None or constant is None:
        yield "care", f"{told} The cost of a change was not measured."
        return
    known = f" (as at {listed(tuple(dict.fromkeys(seen)), 3)})" if seen else ""
    case = when(future, summary.columns, word)
    worse = broken >= constant
    yield (
        "no" if worse else "care",
        f"{told} {case[:1].upper()}{case[1:]}{known}, the loss would go from {write_number(like)} "
        f"to {write_number(broken)}, {'no' if worse else 'still'} better than guessing "
        f"({write_number(constant)}).",
    )


def _row_reasons(
    site: NewSite, beyond: dict[str, float], missing: Sequence[str]
) -> Iterator[Reason]:
    if site.outside > MOST_ROWS:
        yield (
            "no",
            f"{write_percent(site.outside, 2)} of the rows are outside the evidence: training had "
            "no rows like them.",
        )
    elif site.flagged_often and not missing:
        yield (
            "care",
            f"{write_percent(site.rare + site.outside, 2)} of the rows are rare or outside the "
            f"evidence ({write_percent(sum(site.usual), 2)} is usual).",
        )
    if beyond:
        most = max(beyond.values())
        yield (
            "no" if most > MOST_ROWS else "care",
            f"up to {write_percent(most, 2)} of the rows lie beyond the training range of "
            f"{listed(tuple(map(shorten, beyond)), 3)} ({write_percent(USUAL_BEYOND)} is usual). "
            "Nothing was measured there.",
        )
    unseen = [cells for cells in site.unseen if cells.column not in missing]
    share = float(np.any([cells.rows for cells in unseen], axis=0).mean()) if unseen else 0.0
    if share > OFTEN_UNSEEN:
        names = listed(tuple(dict.fromkeys(shorten(cells.column) for cells in unseen)), 3)
        yield (
            "no" if share > MOST_ROWS else "care",
            f"{write_percent(share, 2)} of the rows have categories or missing cells in {names} "
            "that never occurred in training.",
        )
