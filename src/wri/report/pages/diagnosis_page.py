"""Report page of a diagnosis: each question with a sentence, a figure and a table."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from wri.datasets.table_rows import TableRows
from wri.diagnosis import ChangingFeatures
from wri.diagnosis.inputs import listed
from wri.errors import shorten
from wri.evaluation.changes import Answer, ColumnChange, SiteWord
from wri.number_text import write_number
from wri.report.page import Block, Page, PageCell, PagePicture, PageTable, Section, make_card

MOST_LINES = 40  # of a table
LIMITS = (
    "The tests do not see changes that are not linear. They do not see a relation that is the same "
    "at all these sites and will change at the next.",
    "Where nothing changes, some column is flagged in 5 % of tables.",
    "Rows that depend on each other need --blocks.",
)


def answer_table(answer: Answer) -> PageTable | None:
    """Return the numbers of an answer as a table; None if it has none."""
    if not answer.answered:
        return None
    if answer.name == "changes":
        return slope_table(answer.result, answer.changes)
    make = _TABLES.get(answer.name)
    return make(answer.result) if make else None


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


def slope_table(found: ChangingFeatures, changes: Sequence[ColumnChange]) -> PageTable:
    """Build the table of slopes: the smallest and the largest, and where the sign flips."""
    rows = list[list[str | PageCell]]()
    flips = {each.encoded: each.reversed_at for each in changes}
    sites, widest = [shorten(name) for name in found.environments], found.widest()
    order = sorted(found.order, key=lambda k: not found.is_flagged[k])  # flagged first
    for k in order[:MOST_LINES]:
        slopes = found.slopes[widest[k], :, k]
        ends = (int(np.nanargmin(slopes)), int(np.nanargmax(slopes)))
        rows.append(
            [
                found.names[k],
                _finding(bool(found.is_flagged[k]), flips.get(found.names[k], ())),
                *(PageCell(write_number(slopes[end], 2), f"at {sites[end]}") for end in ends),
                write_number(found.p[k], 2),
            ]
        )
    return PageTable(
        caption=f"Slopes in {found.unit}; flagged columns, then the largest change",
        columns=["column", "finding", "smallest", "largest", "P"],
        rows=rows,
        note="Given the other columns. P: corrected for the number of columns. A sign flips if a "
        "slope has the other sign and is more than two standard errors from zero. "
        f"{_more(len(found.names))}".strip(),
    )


def _finding(is_flagged: bool, reversed_at: tuple[str, ...]) -> str:
    if not is_flagged:
        return ""
    return f"changes; sign flips at {listed(reversed_at, 3)}" if reversed_at else "changes"


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


_TABLES = {"overlap": _overlap, "gaps": _gaps, "stress": _stress}


def next_step(answers: Mapping[str, Answer], command: str) -> str:
    """Return what to do next, with the command of `wri fit` for the same columns."""
    changes = answers["changes"].changes
    if not changes:
        return f"{command} (measures how models hold at sites held out)"
    names = listed(tuple(f"'{shorten(each.column)}'" for each in changes), 3)
    return f"{command} (measures what each model would lose if {names} told nothing, or reversed)"


def build_diagnosis_page(
    rows: TableRows, answers: Mapping[str, Answer], command: str, next_command: str
) -> Page:
    """Build the report page of a diagnosis; what changes is on the first screen."""
    word = SiteWord.of(rows.environment)
    facts = {
        "Rows": f"{len(rows.y):,}",
        word.many.capitalize(): ", ".join(f"{k} {n:,}" for k, n in rows.environments.items()),
        "Target": rows.target,
        "Files": "; ".join(each.described for each in rows.files),
        "Made": date.today().isoformat(),
    }
    first, *others = ([*answer_blocks(answer)] for answer in answers.values())
    questions = [answer.question for answer in answers.values()]
    sections = [
        Section(title=question, blocks=blocks)
        for question, blocks in zip(questions[1:], others, strict=True)
    ]
    return Page(
        title=f"What changes about '{rows.target}' between {word.many}?",
        lead=[f"{questions[0]} {first[0]}", f"Next: {next_command}"],
        opening=first[1:],
        sections=[*sections, make_card("Card", facts, LIMITS, command)],
    )


def answer_blocks(answer: Answer) -> Iterator[Block]:
    """Yield an answer's sentence, table and figure."""
    yield answer.meaning
    figure, table = answer.plot(), answer_table(answer)
    if table is not None:
        yield table
    if figure is not None:
        yield PagePicture(figure=figure, alternative=answer.meaning, caption=answer.question)
