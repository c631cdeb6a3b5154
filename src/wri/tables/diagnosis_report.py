"""Report page of a diagnosis: each question with a sentence, a figure and a table."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wri.number_text import write_number
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
            write_number(found.average[:, k].mean()),
            write_number(found.change[k]),
            write_number(found.p[k], 2),
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
            write_number(found.gaps[k], sign=True),
            write_number(found.weighted_gaps[k], sign=True),
            " to ".join(write_number(end, 2, sign=True) for end in found.weighted_intervals[k]),
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
            write_number(line.loss, 4),
            write_number(line.worst, 4),
            str(line.worst_site),
            write_number(line.change, sign=True),
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
