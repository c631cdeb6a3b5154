"""Page of `wri reproduce`: tables and figures of experiments beside the paper's numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from wri.paper.results.origin import describe_origin
from wri.paper.results.result import FAR, QUICK, Result, ResultCell, ResultTable
from wri.report.page import (
    Block,
    CommandBlock,
    Page,
    PageCell,
    PagePicture,
    PageTable,
    Section,
    write_page,
)


def write_results(
    results: Sequence[Result],
    about: Mapping[str, str],
    command: str,
    folder: Path,
    missing: Mapping[str, str] | None = None,
) -> Path:
    """Write `index.html` into a folder; `missing` says which data the other experiments need."""
    lead = [
        *([f"{QUICK[:1].upper()}{QUICK[1:]}."] if any(each.quick for each in results) else []),
        "Tables and figures of the paper, computed here. The paper's value, where given, appears "
        "below ours.",
    ]
    if any(row.far_from_paper for result in results for row in result.rows):
        lead.append(
            f"A warning sign marks cells whose printed number lies more than {FAR:g} of our "
            "standard errors away."
        )
    subject = results[0].experiment if len(results) == 1 else "tables and figures"
    page = Page(
        title=f"Weighted risk invariance: {subject}",
        lead=lead,
        sections=[
            *(_section(result, about[result.experiment]) for result in results),
            *([_missing_section(missing)] if missing else []),
            Section(
                title="How to make this page again",
                blocks=[CommandBlock(command), describe_origin()],
            ),
        ],
    )
    return write_page(page, folder / "index.html")


def _missing_section(missing: Mapping[str, str]) -> Section:
    lines = [f"{names}: {remedy}" for names, remedy in missing.items()]
    return Section(title="Not computed: data are missing", blocks=[lines])


def _section(result: Result, about: str) -> Section:
    drawn = [path for path in result.figures if path.suffix == ".svg"]
    blocks: list[Block] = [
        f"{about[:1].upper()}{about[1:]}. {result.what_is_shown} {result.seconds:.1f} s.",
        *(PagePicture(figure=path, alternative=f"{result.experiment}: {about}.") for path in drawn),
        *(_table(table) for table in result.tables),
    ]
    if result.notes:
        blocks.append(result.notes)
    return Section(title=result.experiment, blocks=blocks)


def _table(table: ResultTable) -> PageTable:
    return PageTable(
        caption=table.title,
        columns=["", *table.columns],
        rows=[[name, *(_cell(each) for each in cells)] for name, cells in table.lines],
    )


def _cell(row: ResultCell | None) -> PageCell:
    if row is None:
        return PageCell("")
    return PageCell(
        row.text,
        detail=f"paper {row.paper_text}" if row.paper_text else "",
        tone="warning" if row.far_from_paper else "",
    )
