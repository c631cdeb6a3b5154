"""Options of the commands on tables: `wri fit`, `wri diagnose`, `wri predict` and `wri site`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from wri.cli.options import FIT_ALGORITHMS
from wri.errors import InputError

ROWS = partial(typer.Option, rich_help_panel="Rows and columns")
MODEL = partial(typer.Option, rich_help_panel="Model")
TEXT = partial(typer.Option, rich_help_panel="Text files")
RUN = partial(typer.Option, rich_help_panel="Running")

Files = Annotated[
    list[Path],
    typer.Argument(
        help="CSV, Parquet or .npz files, or one folder of Parquet files; with --images one folder "
        "of pictures."
    ),
]
Target = Annotated[str | None, ROWS(help="Column to be predicted.")]
Env = Annotated[
    str | None, ROWS(help="Column of the environment (site) of each row: hospital, station, year.")
]
EnvFromFile = Annotated[
    bool, ROWS("--env-from-file", help="Each file is one environment, named by the file.")
]
Number = Annotated[list[str] | None, ROWS(help="Columns of numbers, separated by commas.")]
Category = Annotated[list[str] | None, ROWS(help="Columns of categories, such as codes.")]
Drop = Annotated[list[str] | None, ROWS(help="Columns to leave out: ids, dates, free text.")]
TaskName = Annotated[
    Literal["classes", "numbers"] | None, ROWS(help="Kind of the target; detected by default.")
]
Blocks = Annotated[
    str | None,
    ROWS(help="Column whose equal cells mark rows that depend on each other: week, patient."),
]
Images = Annotated[
    bool, ROWS("--images", help="A folder ROOT/SITE/CLASS/*.jpg or *.png in place of files.")
]
Algorithms = Annotated[
    list[str] | None,
    MODEL(
        help=f"Algorithms out of {', '.join(FIT_ALGORITHMS)}; wri and erm by default. Those that "
        "end in -boosting grow trees and need LightGBM."
    ),
]
Keep = Annotated[
    str | None,
    MODEL(
        help="Model to keep: erm, without (ERM without the flagged columns), or 'wri 3' (WRI with "
        "λ = 3, or another). By default the one with the least worst regret over sites like these "
        "and sites where the flagged columns tell nothing."
    ),
]


def _refuse_former(value: str | None) -> None:
    """Name the successor of options that are gone."""
    if value is not None:
        raise InputError(
            "--choose and --penalty-weight no longer exist: --keep 'wri 3' keeps WRI with λ = 3, "
            "--keep erm keeps ERM, and without --keep the model with the least worst regret is kept"
        )


Former = Annotated[
    str | None,
    typer.Option("--choose", "--penalty-weight", hidden=True, callback=_refuse_former),
]
Predictors = Annotated[
    list[str] | None,
    MODEL(
        help="Predictors to try with ERM, out of linear, network, trees; by default those that "
        "take less than about 20 s."
    ),
]
Fast = Annotated[bool, MODEL("--fast", help="Hold no site out: fast, but the verdict is unknown.")]
Hidden = Annotated[
    str | None, MODEL(help="Widths of hidden layers, such as 32,16; linear by default.")
]
Steps = Annotated[
    int | None,
    MODEL(min=1, help="Training steps, 400 by default; rounds of trees, 300 by default."),
]
ModelFolder = Annotated[
    Path | None,
    MODEL(
        "--model", help="Folder of a fitted model: add its gaps between sites and a stress test."
    ),
]
Delimiter = Annotated[
    str | None, TEXT(help="Delimiter of cells: one character, or tab; detected by default.")
]
Encoding = Annotated[
    str | None, TEXT(help="Encoding, such as utf-8, cp1252, utf-16; detected by default.")
]
Output = Annotated[Path, RUN("-o", "--output", help="Folder for the model and report.html.")]
PageFolder = Annotated[
    Path | None, RUN("-o", "--output", help="Folder for the page and its plots.")
]
Memory = Annotated[float, RUN(min=0.01, help="Memory limit for reading, in GB.")]
Seed = Annotated[int, RUN(min=0, help="Seed of all random draws.")]
Device = Annotated[str, RUN(help="auto, cpu, cuda or cuda:1.")]
Backend = Annotated[
    Literal["local", "ray"],
    RUN(help="Fit here, or in Ray's workers, here or on the cluster RAY_ADDRESS."),
]
AsJson = Annotated[bool, RUN("--json", help="Print one JSON document.")]

SavedModel = Annotated[Path, typer.Argument(help="Folder of a saved model.")]
NewRows = Annotated[
    Path, typer.Argument(help="CSV or Parquet file; for models of pictures, a folder of pictures.")
]
Predictions = Annotated[
    Path, RUN("--output", "-o", help="A .csv or .parquet file; replaced when complete.")
]
KeptColumns = Annotated[
    str | None, ROWS(help="Input columns to keep, such as id,ward, or none; all by default.")
]
Outcomes = Annotated[
    str | None,
    ROWS(
        help="Column of outcomes, to measure the model; for pictures in folders of their classes: "
        "class."
    ),
]
Prefix = Annotated[str, ROWS(help="Prefix of the names of the added columns.")]
Level = Annotated[float, RUN(help="Level of the interval for the loss.")]
Plot = Annotated[Path | None, RUN(help="Draw the typicality of the rows to a .png, .svg or .pdf.")]
