"""Self-contained HTML page: no external resources, and readable without scripts.

`Page` and its blocks are in `blocks.py`; the layout is in `page.html` and `page.css`.
"""

import os
import re
from base64 import b64encode
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wri import __version__
from wri.errors import InputError
from wri.report import style
from wri.report.blocks import Page, PageCell, PagePicture, PageTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"

_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg"}
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"[+\-−±<>≤≥~≈]?\s?\d|[–—-]?$|not finite$")


def write_page(page: Page, path: Path) -> Path:
    """Write a page to a file, completely or not at all."""
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
    ids, labels, figures = {"content", "contents", "title"}, set[str](), count(1)

    def draw(picture: PagePicture, title: str) -> Markup:
        prefix = f"svg{next(figures)}."  # the point keeps it apart from ids of sections
        return Markup(inline_svg(picture.figure, prefix, title, picture.alternative))

    templates.globals.update(
        label=lambda text: _make_unique(text, labels, " ({})"),
        draw=draw,
        find_numeric=_find_numeric,
    )
    templates.filters.update(data_uri=data_uri, as_cell=_as_cell)
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
    numbered = (text + form.format(number) for number in count(2))
    found = next(each for each in chain([text], numbered) if each not in known)
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
    width = _pixels(root.attrib.pop("width", ""))
    root.attrib.pop("height", None)  # follows from the width and the view box
    if width:
        root.set("style", f"--width: {width:g}px")
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def read_description(path: Path) -> str:
    """Return the description in an SVG file; empty if there is none."""
    return ElementTree.fromstring(path.read_text("utf-8")).findtext(DESCRIPTION, "").strip()


def data_uri(image: bytes) -> str:
    """Return PNG or JPEG as an address that holds the image itself."""
    for start, kind in _KINDS.items():
        if image.startswith(start):
            return f"data:image/{kind};base64,{b64encode(image).decode()}"
    raise InputError("a thumbnail must be a PNG or a JPEG image")


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


def _pixels(length: str) -> float:
    """Return the CSS pixels of a length in points."""
    return float(length.removesuffix("pt")) * 96 / 72 if length.endswith("pt") else 0.0
