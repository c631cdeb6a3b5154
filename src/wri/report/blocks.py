"""Parts of a page: a page has sections, a section has blocks.

A block is a plain string (a paragraph) or one of the classes here. All texts are plain text: HTML
in the name of a column or a site is shown as it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Tone = Literal["warning", "note", "good"]


@dataclass(frozen=True)
class Notice:
    """Highlighted paragraph; its tone is shown in words and by an icon, not by colour alone.

    Parameters
    ----------
    text : str
        What the reader must know.
    tone : {"warning", "note", "good"}, default="warning"
        Sections with warnings are marked in the table of contents.
    title : str, default=""
        Words in front of the text; by default "Warning", "Note" or "Good".
    """

    kind: ClassVar = "notice"
    text: str
    tone: Tone = "warning"
    title: str = ""

    @property
    def label(self) -> str:
        return self.title or self.tone.capitalize()


@dataclass(frozen=True)
class PageCell:
    """Cell of a table with more than a plain text.

    Parameters
    ----------
    text : str
        What is shown.
    detail : str, default=""
        A second, smaller line: an interval, a number to compare with.
    best : bool, default=False
        Whether the cell stands out as the best of those it is compared with.
    tone : {"", "warning"}, default=""
        "warning" marks the cell with a sign, for numbers that need attention.
    """

    text: str
    detail: str = ""
    best: bool = False
    tone: Literal["", "warning"] = ""


@dataclass(frozen=True, kw_only=True)
class PageTable:
    """Table whose first column names the rows.

    Parameters
    ----------
    caption : str
        What the table shows.
    columns : sequence of str
        Names of the columns, that of the row names included.
    rows : sequence of sequences of str or PageCell
        As long as `columns`; the first one of each is the row's name. Columns of numbers are
        aligned to the right by themselves.
    note : str, default=""
        A line below: how intervals were made, what bold means.
    summary : int, default=0
        How many of the last rows sum up the others (means, worst cases); a line sets them apart.
    """

    kind: ClassVar = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | PageCell]]
    note: str = ""
    summary: int = 0


@dataclass(frozen=True, kw_only=True)
class PagePicture:
    """Figure with its text alternative.

    Parameters
    ----------
    figure : Figure or Path
        Drawn by `style.figure`, or an SVG file that `style.save` wrote; goes into the page as SVG.
    alternative : str
        What the figure shows, for people who do not see it: the main finding with its numbers,
        such as the `meaning` of a diagnosis. `style.describe` tells titles, axes and legends.
    caption : str, default=""
        A line below the figure, for everybody; the section's title names a figure without one.
    data : PageTable, default=None
        The numbers behind the figure, folded away until asked for.
    """

    kind: ClassVar = "picture"
    figure: "Figure | Path"
    alternative: str
    caption: str = ""
    data: PageTable | None = None


@dataclass(frozen=True)
class Thumbnail:
    """Small photograph.

    Parameters
    ----------
    image : bytes
        PNG or JPEG, such as `pictures.make_thumbnail` gives.
    alternative : str
        What it shows, as far as it is known: label, environment, file.
    caption : str
        A line or two below it.
    """

    image: bytes
    alternative: str
    caption: str


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


@dataclass(frozen=True, kw_only=True)
class Page:
    """Self-contained page.

    Parameters
    ----------
    title : str
        The page's heading and the title of the browser's window.
    lead : str or sequence of str
        What the reader must know if they read no more than this; paragraphs.
    sections : sequence of Section
        Each has a line in the table of contents.
    facts : sequence of (str, str), default=()
        Three to six key numbers, large, below the lead.
    notices : sequence of Notice, default=()
        What concerns the whole page, above the first section.
    opening : sequence of Block, default=()
        Blocks on the first screen, beside each other where there is room.
    """

    title: str
    lead: str | Sequence[str]
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    notices: Sequence[Notice] = ()
    opening: Sequence[Block] = ()
