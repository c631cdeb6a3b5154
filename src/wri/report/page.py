"""Self-contained HTML page: no external resources, and readable without scripts.

`Page` and its blocks are in `blocks.py`; the layout is in `page.html` and `page.css`.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wri import __version__
from wri.report import style
from wri.report.blocks import Block, Page, PageCell, PagePicture, PageTable, Section
from wri.report.pictures import data_uri, inline_svg

_NUMBER = re.compile(r"[+\-−±<>≤≥~≈]?\s?\d|[–—-]?$|not finite$")


def write_page(page: Page, path: Path) -> Path:
    """Write a page to a file, completely or not at all.

    Parameters
    ----------
    page : Page
        What is shown.
    path : Path
        An HTML file; its folder is made where it is missing.

    Returns
    -------
    Path
        The file written.
    """
    data = render_page(page).encode("utf-8", errors="replace")  # lone surrogates
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def render_page(page: Page) -> str:
    """Return the page as HTML; equal pages give equal text."""
    templates = Environment(
        loader=PackageLoader("wri.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["data_uri"] = data_uri
    names = _Names()
    return templates.get_template("page.html").render(
        page=page,
        lead=[page.lead] if isinstance(page.lead, str) else page.lead,
        opening=[_show_block(each, page.title, names) for each in page.opening],
        sections=[_show_section(each, names) for each in page.sections],
        colours=style,
        version=__version__,
    )


class ShownBlock(NamedTuple):
    """Block with what the template needs beside it."""

    block: Block
    label: str = ""  # the accessible name of its scrolling box
    svg: Markup | None = None
    table: "ShownTable | None" = None


class ShownTable(NamedTuple):
    """Table with all its cells as `PageCell`."""

    table: PageTable
    label: str
    numeric: list[bool]  # for each column
    rows: list[list[PageCell]]


class ShownSection(NamedTuple):
    """Section with its id."""

    id: str
    section: Section
    blocks: list[ShownBlock]


class _Names:
    """Ids and labels that occur once in a page, and the number of the next figure."""

    def __init__(self) -> None:
        self.ids: set[str] = {"content", "contents", "title"}  # in the template
        self.labels: set[str] = set()
        self.figures = 0

    def make_id(self, text: str) -> str:
        slug = re.sub(r"[^\w-]+", "-", text).strip("-") or "section"
        return self._add(self.ids, _numbered(slug, "-{}"))

    def make_label(self, text: str) -> str:
        return self._add(self.labels, _numbered(text, " ({})"))

    def make_prefix(self) -> str:
        self.figures += 1
        return f"svg{self.figures}."  # the point keeps it apart from ids of sections

    @staticmethod
    def _add(known: set[str], candidates: Iterator[str]) -> str:
        found = next(each for each in candidates if each not in known)
        known.add(found)
        return found


def _numbered(text: str, form: str) -> Iterator[str]:
    """Yield the text, then the text with 2, 3, … added."""
    yield text
    number = 2
    while True:
        yield text + form.format(number)
        number += 1


def _show_section(section: Section, names: _Names) -> ShownSection:
    blocks = [_show_block(block, section.title, names) for block in section.blocks]
    return ShownSection(names.make_id(section.title), section, blocks)


def _show_block(block: Block, heading: str, names: _Names) -> ShownBlock:
    if isinstance(block, str):
        return ShownBlock(block)
    if isinstance(block, PageTable):
        return ShownBlock(block, table=_show_table(block, heading, names))
    if isinstance(block, PagePicture):
        label = names.make_label(f"Figure: {block.caption or heading}")
        table = _show_table(block.data, heading, names) if block.data else None
        svg = inline_svg(
            block.figure, names.make_prefix(), block.caption or heading, block.alternative
        )
        return ShownBlock(block, label, Markup(svg), table)
    return ShownBlock(block, names.make_label(f"{heading}: {_label(block)}"))


def _label(block: Any) -> str:
    return getattr(block, "label", "") or getattr(block, "caption", "") or block.kind


def _show_table(table: PageTable, heading: str, names: _Names) -> ShownTable:
    rows = [_cells(row) for row in table.rows]
    numeric = [
        place > 0 and all(_NUMBER.match(row[place].text.strip()) for row in rows)
        for place in range(len(table.columns))
    ]
    label = names.make_label(f"Table: {table.caption or heading}")
    return ShownTable(table, label, numeric, rows)


def _cells(row: Sequence[str | PageCell]) -> list[PageCell]:
    return [each if isinstance(each, PageCell) else PageCell(each) for each in row]
