"""Report page of a diagnosis: each question with a sentence, a figure and a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wri.report.blocks import (
    Block,
    CommandBlock,
    FactList,
    Notice,
    Page,
    PagePicture,
    PageTable,
    Section,
)
from wri.tables.diagnosing import Answer

MOST_LINES = 40  # of a table


def answer_table(answer: Answer) -> PageTable | None:
    """Return the numbers of an answer as a table; None if it has none."""
    make = _TABLES.get(answer.name)
    return make(answer.result) if make and answer.answered else None


def _overlap(found: Any) -> PageTable:
    i, j = np.triu_indices(len(found.labels), 1)
    order = np.argsort(found.overlap[i, j])[:MOST_LINES]
    rows = [
        [
            f"{found.labels[i[k]]} and {found.labels[j[k]]}",
            f"{found.overlap[i[k], j[k]]:.2f}",
            f"{min(found.effective_rows[i[k], j[k]], found.effective_rows[j[k], i[k]]):.0f}",
        ]
        for k in order
    ]
    return PageTable(
        caption="Pairs of sites, the smallest overlap first",
        columns=["pair", "overlap", "effective rows"],
        rows=rows,
        note=_more(len(i)),
    )


def _changes(found: Any) -> PageTable:
    order = found.order[:MOST_LINES]
    rows = [
        [
            found.names[k],
            f"{found.average[:, k].mean():.3g}",
            f"{found.change[k]:.3g}",
            f"{found.p[k]:.2g}",
            "changes" if found.names[k] in found.flagged else "",
        ]
        for k in order
    ]
    return PageTable(
        caption="Columns, the largest change first",
        columns=["column", "mean slope", "spread between sites", "corrected p", "finding"],
        rows=rows,
        note=_more(len(found.names)),
    )


def _gaps(found: Any) -> PageTable:
    order = np.argsort(-np.abs(found.weighted_gaps))[:MOST_LINES]
    rows = [
        [
            " − ".join(str(found.labels[end]) for end in found.pairs[k]),
            f"{found.gaps[k]:+.3g}",
            f"{found.weighted_gaps[k]:+.3g}",
            "{:+.2g} to {:+.2g}".format(*found.weighted_intervals[k]),
            "" if found.judged[k] else "too little overlap",
        ]
        for k in order
    ]
    return PageTable(
        caption=f"Gaps of risks between sites, {found.unit}",
        columns=["pair", "gap", "weighted gap", "its interval", "remark"],
        rows=rows,
        note=_more(len(found.pairs)),
    )


def _stress(found: Any) -> PageTable:
    rows = [
        [
            f"{line.model}, {line.relation}",
            f"{line.loss:.4g}",
            f"{line.worst:.4g}",
            str(line.worst_site),
            f"{line.change:+.3g}",
        ]
        for line in found.table().itertuples()
    ]
    return PageTable(
        caption=f"Loss with the relation of {', '.join(found.columns)} unchanged, broken, reversed",
        columns=["model", "mean loss of sites", "worst", "worst site", "change"],
        rows=rows,
    )


def _more(count: int) -> str:
    return f"{count - MOST_LINES} more are not shown." if count > MOST_LINES else ""


_TABLES = {"overlap": _overlap, "changes": _changes, "gaps": _gaps, "stress": _stress}


def build_diagnosis_page(
    title: str,
    facts: Sequence[tuple[str, str]],
    answers: Mapping[str, Answer],
    command: str,
    notices: Sequence[str] = (),
) -> Page:
    """Build the report page of a diagnosis.

    Parameters
    ----------
    title
        Heading.
    facts
        What was looked at.
    answers
        By question.
    command
        What made the page.
    notices
        What a reader must know first.
    """
    sections = []
    for answer in answers.values():
        blocks: list[Block] = [answer.meaning]
        figure, table = answer.plot(), answer_table(answer)
        if figure is not None:
            blocks.append(
                PagePicture(figure=figure, alternative=answer.meaning, caption=answer.question)
            )
        blocks += [] if table is None else [table]
        sections.append(Section(title=answer.question, blocks=blocks))
    sections.append(Section(title="How to make this page again", blocks=[CommandBlock(command)]))
    return Page(
        title=title,
        lead=[f"{answer.question} {answer.meaning}" for answer in answers.values()][:1],
        facts=facts[:4],
        notices=[Notice(text, "note") for text in notices],
        sections=[Section(title="What was looked at", blocks=[FactList(facts)]), *sections],
    )
