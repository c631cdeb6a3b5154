"""Self-contained HTML page: no external resources, and readable without scripts.

A page has sections, a section has blocks. A block is a string (a paragraph), a list of strings
(bullets), a dict of strings (names with values) or one of the classes here. All texts are plain
text: HTML in the name of a column or a site is shown as it is written. The layout is in `page.html`
and `page.css`.
"""

import os
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from itertools import count
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wri import __version__
from wri.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"[+\-−±<>≤≥~≈]?\s?\d|[–—-]?$|not finite$")


@dataclass(frozen=True)
class Notice:
    """Highlighted paragraph; its tone is shown in words and by an icon, not by colour alone."""

    text: str
    tone: Literal["warning", "note"] = "warning"  # warnings are marked in the table of contents


@dataclass(frozen=True)
class PageCell:
    """Cell of a table with more than a plain text."""

    text: str
    detail: str = ""  # second, smaller line: an interval, a number to compare with
    best: bool = False  # whether the cell stands out among those it is compared with
    tone: Literal["", "warning"] = ""  # "warning" marks numbers that need attention with a sign

    def __str__(self) -> str:
        return f"{self.text} {self.detail}".strip()


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """Table whose first column names the rows."""

    caption: str
    columns: Sequence[str]  # names, that of the row names included
    rows: Sequence[Sequence[str | PageCell]]  # columns of numbers are aligned to the right
    note: str = ""  # line below: how intervals were made, what bold means
    summary: int = 0  # number of last rows that sum up the others; a line sets them apart


@dataclass(frozen=True, kw_only=True)
class PagePicture:
    """Figure with its text alternative."""

    figure: "Figure | Path"  # from `style.figure`, or an SVG file that `style.save` wrote
    alternative: str  # what it shows, for people who do not see it: the finding with its numbers
    caption: str = ""  # line below; the section's title names a figure without one


@dataclass(frozen=True)
class ThumbnailGallery:
    """Photographs beside each other."""

    caption: str
    thumbnails: Sequence[tuple[bytes, str, str]]  # of `make_thumbnail`, alternative, caption


def make_thumbnail(picture: "Image", size: int = 192) -> bytes:
    """Return an RGB picture as JPEG, at most `size` pixels wide and high; it is made smaller."""
    picture.thumbnail((size, size))
    file = BytesIO()
    picture.save(file, "JPEG", quality=80)
    return file.getvalue()


@dataclass(frozen=True)
class CommandBlock:
    """Command to copy: one click selects all of it."""

    command: str
    label: str = "Command"


Block = (
    str
    | Sequence[str]
    | Mapping[str, str]
    | Notice
    | PageTable
    | PagePicture
    | ThumbnailGallery
    | CommandBlock
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """Blocks below one heading, in the order in which they are shown."""

    title: str
    blocks: Sequence[Block]

    @property
    def warnings(self) -> int:
        """Number of warnings among the blocks."""
        return sum(isinstance(each, Notice) and each.tone == "warning" for each in self.blocks)


def make_card(title: str, facts: Mapping[str, str], limits: Sequence[str], command: str) -> Section:
    """Make the last section of a page: facts and versions, what it does not tell, the command."""
    packages = (("PyTorch", "torch"), ("scikit-learn", "scikit-learn"))
    versions = [f"wri {__version__}", f"Python {python_version()}"]
    versions += [f"{name} {version(package)}" for name, package in packages]
    facts = {**facts, "Versions": ", ".join(versions)}
    return Section(title=title, blocks=[facts, limits, CommandBlock(command, "Made by")])


@dataclass(frozen=True, kw_only=True)
class Page:
    """Self-contained page."""

    title: str  # heading, and title of the browser's window
    lead: str | Sequence[str]  # what the reader must know if they read no more; paragraphs
    sections: Sequence[Section]  # each has a line in the table of contents
    notices: Sequence[Notice] = ()  # what concerns the whole page, above the first section
    opening: Sequence[Block] = ()  # on the first screen, beside each other where there is space


def write_page(page: Page, path: Path) -> Path:
    """Write a page to a file, completely or not at all."""
    return write_whole(path, render_page(page).encode("utf-8", errors="replace"))  # lone surrogates


def write_whole(path: Path, data: bytes) -> Path:
    """Write a file, completely or not at all."""
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
    ids, labels, figures = {"content", "contents", "title"}, set[str](), count(1)

    def draw(picture: PagePicture, title: str) -> Markup:
        prefix = f"svg{next(figures)}."  # the point keeps it apart from ids of sections
        return Markup(inline_svg(picture.figure, prefix, title, picture.alternative))

    templates.globals.update(
        label=lambda text: _make_unique(text, labels, " ({})"),
        kind_of=lambda block: type(block).__name__,
        draw=draw,
        find_numeric=_find_numeric,
    )
    templates.filters.update(base64=lambda data: b64encode(data).decode(), as_cell=_as_cell)
    return templates.get_template("page.html").render(
        page=page,
        lead=[page.lead] if isinstance(page.lead, str) else page.lead,
        sections=[(_make_unique(_slug(each.title), ids, "-{}"), each) for each in page.sections],
        colours=style,
        version=__version__,
    )


def _slug(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text).strip("-") or "section"


def _make_unique(text: str, known: set[str], form: str) -> str:
    """Return the text, with 2, 3, … added if it is known, and remember it."""
    found, number = text, 1
    while found in known:
        number += 1
        found = text + form.format(number)
    known.add(found)
    return found


def _find_numeric(table: PageTable) -> list[bool]:
    """Return which columns hold numbers."""
    rows = [[_as_cell(each).text.strip() for each in row] for row in table.rows]
    return [k > 0 and all(_NUMBER.match(row[k]) for row in rows) for k in range(len(table.columns))]


def _as_cell(cell: str | PageCell) -> PageCell:
    return cell if isinstance(cell, PageCell) else PageCell(cell)


def inline_svg(figure: "Figure | Path", prefix: str, title: str, description: str) -> str:
    """Return a figure as an SVG element that can be in one page with others."""
    text = figure.read_text("utf-8") if isinstance(figure, Path) else style.as_svg(figure)
    root = ElementTree.fromstring(_NO_XML.sub("", text))  # drops comments, too
    for name in ("metadata", "defs"):  # the first <defs> holds a style sheet for the whole page
        found = root.find(f"{{{SVG}}}{name}")
        if found is not None and (name == "metadata" or found.find(f"{{{SVG}}}style") is not None):
            root.remove(found)
    for group in root.iter(f"{{{SVG}}}g"):
        for child in list(group):
            if child.get("id") == "patch_1":  # the figure's background; the page has its own
                group.remove(child)
    _prefix_ids(root, prefix)
    _name(root, prefix, title, description)
    points = root.attrib.pop("width").removesuffix("pt")
    del root.attrib["height"]  # follows from the width and the view box
    root.set("style", f"--width: {float(points) * 96 / 72:g}px")
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _prefix_ids(root: ElementTree.Element, prefix: str) -> None:
    """Rename ids and everything that refers to them.

    Equal images in a figure share an id, which only the first one keeps.
    """
    known: set[str] = set()
    for element in root.iter():
        if element.get("id") in known:
            del element.attrib["id"]
        known.add(element.get("id", ""))
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, prefix + value)
            elif key in ("href", f"{{{XLINK}}}href") and value.startswith("#"):
                element.set(key, f"#{prefix}{value[1:]}")
            else:
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}\1)", value))


def _name(root: ElementTree.Element, prefix: str, title: str, description: str) -> None:
    """Add title and description as elements, to which the figure refers."""
    for old in root.findall(f"{{{SVG}}}title"):
        root.remove(old)
    for index, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": f"{prefix}{tag}"})
        element.text = _NO_XML.sub("", text)
        root.insert(index, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title")
    root.set("aria-describedby", f"{prefix}desc")
