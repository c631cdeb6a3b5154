"""One self-contained HTML page with the tables and figures of experiments."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from wri import __version__
from wri.report.result import Result


def write_page(
    results: Sequence[Result], about: Mapping[str, str], command: str, folder: Path
) -> Path:
    """Write `index.html` into a folder.

    Parameters
    ----------
    results
        What is shown, in this order.
    about
        A line on each experiment, by its name.
    command
        What made the results, shown at the top.
    folder
        Where the page goes; figures are copied into it as SVG, so it can travel alone.
    """
    templates = Environment(
        loader=PackageLoader("wri.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pictures = {
        result.experiment: [_inline(path) for path in result.figures if path.suffix == ".svg"]
        for result in results
    }
    text = templates.get_template("page.html").render(
        results=results, about=about, command=command, pictures=pictures, version=__version__
    )
    page = folder / "index.html"
    page.write_text(text, encoding="utf-8")
    return page


def _inline(path: Path) -> str:
    return "data:image/svg+xml;base64," + b64encode(path.read_bytes()).decode()
