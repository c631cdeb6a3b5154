"""Options of `wri fit` and `wri diagnose`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from wri.cli.options import FIT_ALGORITHMS
from wri.errors import InputError

ROWS, MODEL, TEXT, RUN = "Rows and columns", "Model", "Text files", "Running"

Files = Annotated[
    list[Path],
    typer.Argument(
        help="CSV, Parquet or .npz files, or one folder of Parquet files; with --images one folder "
        "of pictures.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="Column to be predicted.", show_default=False, rich_help_panel=ROWS),
]
Env = Annotated[
    str | None,
    typer.Option(
        help="Column of the environment (site) of each row: hospital, station, year.",
        show_default=False,
        rich_help_panel=ROWS,
    ),
]
EnvFromFile = Annotated[
    bool,
    typer.Option(
        "--env-from-file",
        help="Each file is one environment, named by the file.",
        rich_help_panel=ROWS,
    ),
]
Number = Annotated[
    list[str] | None,
    typer.Option(help="Columns of numbers, separated by commas.", rich_help_panel=ROWS),
]
Category = Annotated[
    list[str] | None,
    typer.Option(help="Columns of categories, such as codes.", rich_help_panel=ROWS),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Columns to leave out: ids, dates, free text.", rich_help_panel=ROWS),
]
TaskName = Annotated[
    Literal["classes", "numbers"] | None,
    typer.Option(
        help="Kind of the target; detected by default.",
        show_default=False,
        rich_help_panel=ROWS,
    ),
]
Blocks = Annotated[
    str | None,
    typer.Option(
        help="Column whose equal cells mark rows that depend on each other: week, patient.",
        show_default=False,
        rich_help_panel=ROWS,
    ),
]
Output = Annotated[
    Path,
    typer.Option(
        "-o", "--output", help="Folder for the model and report.html.", rich_help_panel=RUN
    ),
]
PageFolder = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="Folder for the page and its plots.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Algorithms out of {', '.join(FIT_ALGORITHMS)}; wri and erm by default. Those that "
        "end in -boosting grow trees and need LightGBM.",
        rich_help_panel=MODEL,
    ),
]
Keep = Annotated[
    str | None,
    typer.Option(
        help="Model to keep: erm, without (ERM without the flagged columns), or 'wri 3' (WRI with "
        "λ = 3, or another). By default the one with the least worst regret over sites like these "
        "and sites where the flagged columns tell nothing.",
        show_default=False,
        rich_help_panel=MODEL,
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
    typer.Option(
        help="Predictors to try with ERM, out of linear, network, trees; by default those that "
        "take less than about 20 s.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Fast = Annotated[
    bool,
    typer.Option(
        "--fast",
        help="Hold no site out: fast, but the verdict is unknown.",
        rich_help_panel=MODEL,
    ),
]
Hidden = Annotated[
    str | None,
    typer.Option(
        help="Widths of hidden layers, such as 32,16; linear by default.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Training steps, 400 by default; rounds of trees, 300 by default.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
Images = Annotated[
    bool,
    typer.Option(
        "--images",
        help="A folder ROOT/SITE/CLASS/*.jpg or *.png in place of files.",
        rich_help_panel=ROWS,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="Delimiter of cells: one character, or tab; detected by default.",
        show_default=False,
        rich_help_panel=TEXT,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding, such as utf-8, cp1252, utf-16; detected by default.",
        show_default=False,
        rich_help_panel=TEXT,
    ),
]
Memory = Annotated[
    float, typer.Option(min=0.01, help="Memory limit for reading, in GB.", rich_help_panel=RUN)
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random draws.", rich_help_panel=RUN)]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.", rich_help_panel=RUN)]
Backend = Annotated[
    Literal["local", "ray"],
    typer.Option(
        help="Fit here, or in Ray's workers, here or on the cluster RAY_ADDRESS.",
        rich_help_panel=RUN,
    ),
]
ModelFolder = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="Folder of a fitted model: add its gaps between sites and a stress test.",
        show_default=False,
        rich_help_panel=MODEL,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=RUN)
]
