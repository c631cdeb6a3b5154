"""Parts of a page: a page has sections, a section has blocks.

A block is a plain string (a paragraph) or one of the classes here. All texts are plain text: HTML
in the name of a column or a site is shown as it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

Tone = Literal["warning", "note", "good"]


@dataclass(frozen=True)
class Notice:
    """Highlighted paragraph; its tone is shown in words and by an icon, not by colour alone."""

    kind: ClassVar = "notice"
    text: str
    tone: Tone = "warning"  # sections with warnings are marked in the table of contents
    title: str = ""  # words in front of the text; by default "Warning", "Note" or "Good"

    @property
    def label(self) -> str:
        return self.title or self.tone.capitalize()


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

    kind: ClassVar = "table"
    caption: str
    columns: Sequence[str]  # names, that of the row names included
    rows: Sequence[Sequence[str | PageCell]]  # columns of numbers are aligned to the right
    note: str = ""  # line below: how intervals were made, what bold means
    summary: int = 0  # number of last rows that sum up the others; a line sets them apart


@dataclass(frozen=True, kw_only=True)
class PagePicture:
    """Figure with its text alternative."""

    kind: ClassVar = "picture"
    figure: "Figure | Path"  # from `style.figure`, or an SVG file that `style.save` wrote
    alternative: str  # what it shows, for people who do not see it: the finding with its numbers
    caption: str = ""  # line below; the section's title names a figure without one
    data: PageTable | None = None  # numbers behind the figure, folded away until asked for


@dataclass(frozen=True)
class Thumbnail:
    """Small photograph."""

    image: bytes  # PNG or JPEG, such as `make_thumbnail` gives
    alternative: str  # what it shows, as far as it is known: label, environment, file
    caption: str  # a line or two below it


def make_thumbnail(picture: "Image", size: int = 192) -> bytes:
    """Return an RGB picture as JPEG, at most `size` pixels wide and high; it is made smaller."""
    picture.thumbnail((size, size))
    file = BytesIO()
    picture.save(file, "JPEG", quality=80)
    return file.getvalue()


@dataclass(frozen=True)
class ThumbnailGallery:
    """Photographs beside each other."""

    kind: ClassVar = "gallery"
    caption: str
    thumbnails: Sequence[Thumbnail]


@dataclass(frozen=True)
class FactList:
    """Names with values, such as a model card: `[("Rows", "4,210"), ("Sites", "12")]`."""

    kind: ClassVar = "facts"
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class BulletList:
    """Short texts, one below the other."""

    kind: ClassVar = "bullets"
    items: Sequence[str]


@dataclass(frozen=True)
class CommandBlock:
    """Command to copy: one click selects all of it."""

    kind: ClassVar = "command"
    command: str
    label: str = "Command"


Block = (
    str | Notice | PageTable | PagePicture | ThumbnailGallery | FactList | BulletList | CommandBlock
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


def make_card(
    title: str, facts: Sequence[tuple[str, str]], limits: Sequence[str], command: str
) -> Section:
    """Make the last section of a page: facts, what it does not tell, and the command."""
    blocks: list[Block] = [FactList(facts), BulletList(limits), CommandBlock(command, "Made by")]
    return Section(title=title, blocks=blocks)


@dataclass(frozen=True, kw_only=True)
class Page:
    """Self-contained page."""

    title: str  # heading, and title of the browser's window
    lead: str | Sequence[str]  # what the reader must know if they read no more; paragraphs
    sections: Sequence[Section]  # each has a line in the table of contents
    facts: Sequence[tuple[str, str]] = ()  # three to six key numbers, large, below the lead
    notices: Sequence[Notice] = ()  # what concerns the whole page, above the first section
    opening: Sequence[Block] = ()  # on the first screen, beside each other where there is space
