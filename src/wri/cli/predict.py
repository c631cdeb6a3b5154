"""The commands `wri predict` and `wri site`."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from wri.cli.console import echo, messages, say
from wri.errors import InputError, shorten

if TYPE_CHECKING:
    from wri.tables.predicting import PredictionSummary

Model = Annotated[Path, typer.Argument(help="Folder of a saved model.", show_default=False)]
Rows = Annotated[
    Path,
    typer.Argument(
        help="A CSV or Parquet file; or a folder of pictures, for models of these.",
        show_default=False,
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="A .csv or .parquet, replaced once all is written."),
]
Keep = Annotated[
    str | None,
    typer.Option(help="Columns of the input to keep, such as id,ward; none; all by default."),
]
Target = Annotated[
    str | None,
    typer.Option(help="Column of outcomes: also say how well the model held."),
]
Prefix = Annotated[str, typer.Option(help="Before the names of the added columns.")]
Delimiter = Annotated[
    str | None, typer.Option(help="What parts the cells: one character, or tab. Found by default.")
]
Encoding = Annotated[str | None, typer.Option(help="Such as latin-1. Found by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Level = Annotated[float, typer.Option(help="Of the interval for the loss.")]
Plot = Annotated[
    Path | None, typer.Option(help="Draw how rare the rows are, to a .png, .svg or .pdf.")
]


def predict(
    model: Model,
    rows: Rows,
    output: Output,
    keep: Keep = None,
    target: Target = None,
    prefix: Prefix = "",
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Predict rows of a new site, and say how much evidence there is for each.

    The output has the input's rows in their order, with the columns `prediction`, `probability` (of
    the second of two classes, else one per class; rounded to 6 digits), `rarity` (percentage of
    training rows that are as rare or rarer), `verdict` (supported, rare or outside) and `nearest`
    (the training site in which such a row is most common). Files may be larger than memory.

    Examples:

    `wri predict model/ new.csv -o predictions.csv`

    `wri predict model/ new.parquet -o out.parquet --keep id --target sick --json`

    Exit codes: 0 done, 2 bad input (one sentence says what and where), 130 interrupted (nothing is
    written).
    """
    try:
        done = _predict(model, rows, output, keep, target, prefix, delimiter, encoding)
    except KeyboardInterrupt as signal:
        say("stopped; nothing was written")
        raise typer.Exit(130 if type(signal) is KeyboardInterrupt else 143) from None
    if as_json:
        echo(json.dumps({"output": str(output), **done.as_dict()}))
        return
    if done.ignored:
        from wri.estimators.columns import listed

        say(f"columns that training had not are ignored: {listed(done.ignored)}")
    total = max(1, done.rows)
    shares = ", ".join(
        f"{done.verdicts[name] / total:.1%} {name}" for name in ("supported", "rare", "outside")
    )
    if done.verdicts["unreadable"]:
        shares += f", {done.verdicts['unreadable']} unreadable"
    echo(f"{done.rows:,} rows: {shares}")
    if done.positive is not None:
        echo(f"{prefix}probability is that of {shorten(repr(done.positive))}")
    for line in done.outcomes.as_lines() if done.outcomes is not None else []:
        echo(line)
    spent = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in done.seconds.items())
    say(spent)
    echo(f"written to {output}")


def _predict(
    folder: Path,
    rows: Path,
    output: Path,
    keep: str | None,
    target: str | None,
    prefix: str,
    delimiter: str | None,
    encoding: str | None,
) -> "PredictionSummary":
    from wri.tables.chunks import open_table
    from wri.tables.predicting import predict_file
    from wri.tables.writing import check_output

    check_output(output)
    loaded = _load(folder)
    if rows.is_dir():
        return _predict_pictures(folder, loaded, rows, output, target, prefix)
    if hasattr(loaded, "backbone_"):
        raise InputError(f"{folder} is a model of pictures; give a folder of pictures, not a file")
    table = open_table(rows, delimiter, encoding)
    kept = None if keep is None else [] if keep == "none" else keep.split(",")
    with _bar("predicting") as progress:
        return predict_file(
            loaded, table, output, keep=kept, target=target, prefix=prefix, progress=progress
        )


def _predict_pictures(
    folder: Path, loaded: Any, rows: Path, output: Path, target: str | None, prefix: str
) -> "PredictionSummary":
    if not hasattr(loaded, "backbone_"):
        raise InputError(f"{rows} is a folder, and {folder} a model of tables; name a file of rows")
    if target is not None:
        raise InputError("--target names a column, and a folder of pictures has none")
    from wri.estimators.pictures import PictureClassifier
    from wri.tables.picture_files import predict_pictures

    with _bar("predicting") as progress:
        return predict_pictures(PictureClassifier.load(folder), rows, output, prefix, progress)


def site(
    model: Model,
    rows: Rows,
    level: Level = 0.95,
    plot: Plot = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Say what to expect at a site without outcomes.

    The loss to expect with an interval that contains the spread between sites, how many rows are
    rare or outside the evidence, which training sites they are like, and columns that lie beyond
    their range in training.

    Examples:

    `wri site model/ new.csv`

    `wri site model/ new.csv --plot site.png --json`

    Exit codes: 0 done, 2 bad input (one sentence says what and where).
    """
    from wri.tables.chunks import open_table
    from wri.tables.predicting import read_features
    from wri.tables.site_summary import draw_site, site_document, site_lines

    loaded = _load(model)
    if hasattr(loaded, "backbone_"):
        raise InputError(
            f"{model} is a model of pictures; use PictureClassifier.load(...).score_new_site"
        )
    table = open_table(rows, delimiter, encoding)
    with _bar("reading") as progress:
        frame, ignored = read_features(loaded, table, progress)
    found = loaded.score_new_site(frame, level=level)
    if plot is not None:
        draw_site(found, plot)
    if as_json:
        drawn = None if plot is None else str(plot)
        echo(json.dumps({**site_document(found), "ignored_columns": list(ignored), "plot": drawn}))
        return
    if ignored:
        from wri.estimators.columns import listed

        say(f"columns that training had not are ignored: {listed(ignored)}")
    for line in site_lines(found):
        echo(line)
    if plot is not None:
        echo(f"drawn in {plot}")


def _load(folder: Path) -> Any:
    if not folder.exists():
        raise InputError(f"{shorten(folder)} does not exist; give the folder that wri fit wrote")
    from wri.estimators import load

    return load(folder)


@contextmanager
def _bar(what: str) -> Iterator[Any]:
    """A progress bar, and warnings as lines beside it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with (
        Progress(*columns, console=messages, transient=True) as bar,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        task = bar.add_task(what, total=1.0)
        yield lambda share: bar.update(task, completed=share)
    for text in dict.fromkeys(str(each.message) for each in caught):
        say(text)
