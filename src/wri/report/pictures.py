"""Figures and photographs as parts of a page: inline SVG, and images as data URIs."""

import re
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from wri.errors import InputError
from wri.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"

_KINDS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg"}
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def inline_svg(figure: "Figure | Path", prefix: str, title: str, description: str) -> str:
    """Return a figure as an SVG element that can be in one page with others.

    Parameters
    ----------
    figure : Figure or Path
        A drawn figure, or an SVG file.
    prefix : str
        Comes before each id in the figure, so that ids of two figures never meet.
    title, description : str
        The figure's name and its text alternative.

    Returns
    -------
    str
        The element. Equal figures give equal text.
    """
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


def make_thumbnail(picture: "Image", size: int = 192) -> bytes:
    """Return an RGB picture as JPEG, at most `size` pixels wide and high; it is made smaller."""
    picture.thumbnail((size, size))
    file = BytesIO()
    picture.save(file, "JPEG", quality=80)
    return file.getvalue()


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
    for place, (tag, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": f"{prefix}{tag}"})
        element.text = _NO_XML.sub("", text)
        root.insert(place, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title")
    root.set("aria-describedby", f"{prefix}desc")


def _pixels(length: str) -> float:
    """Return the CSS pixels of a length in points."""
    return float(length.removesuffix("pt")) * 96 / 72 if length.endswith("pt") else 0.0
