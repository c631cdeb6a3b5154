"""Options of the commands: the names that their help shows, and how some of them are read.

Names are from registries that do not import PyTorch. Data sets and selections are in packages with
slow imports, so their names are repeated here; a test compares them.
"""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from wri.errors import InputError
from wri.measures import MEASURES
from wri.presets import PRESETS
from wri.registry import ALGORITHMS, OBJECTIVES, PAPER

DATASETS = ("simulation", "gaussian2d", "hospitals")
SELECTIONS = (
    *("training-domain", "leave-one-out", "invariance"),
    *("oracle", "oracle-early", "guarded-oracle"),
)
NEED_PAIRS = ("leave-one-out",)  # selections that need runs with pairs held out
ON_REQUEST = (*NEED_PAIRS, "invariance")  # selections that a sweep supports only on request
DOMAINBED_SELECTIONS = ("training-domain", "leave-one-out", "oracle")  # in DomainBed's order
MEMORY = 4.0  # GB, the default of every command

OPTION, ARGUMENT = typer.Option, typer.Argument
ROWS = partial(typer.Option, rich_help_panel="Rows and columns")
MODEL = partial(typer.Option, rich_help_panel="Model")
TEXT = partial(typer.Option, rich_help_panel="Text files")
RUN = partial(typer.Option, rich_help_panel="Running")

Columns = list[str] | None

# rows and columns
Files = Annotated[
    list[Path],
    ARGUMENT(help="CSV, Parquet or .npz files, or one folder: of Parquet files, or of pictures."),
]
Target = Annotated[str | None, ROWS(help="Column to be predicted.")]
Env = Annotated[str | None, ROWS(help="Column of the site of each row: hospital, station, year.")]
EnvFromFile = Annotated[bool, ROWS("--env-from-file", help="Each file is one site.")]
Number = Annotated[Columns, ROWS(help="Columns of numbers, separated by commas.")]
Category = Annotated[Columns, ROWS(help="Columns of categories, such as codes.")]
Drop = Annotated[Columns, ROWS(help="Columns to leave out: ids, dates, free text.")]
Task = Literal["classes", "numbers"]
TaskName = Annotated[Task | None, ROWS(help="Kind of the target; detected by default.")]
Blocks = Annotated[
    str | None,
    ROWS(
        help="Column that has the same value in rows that depend on each other, such as patient or "
        "week."
    ),
]
Images = Annotated[bool, ROWS("--images", help="One folder ROOT/SITE/CLASS/*.jpg or *.png.")]
NewRows = Annotated[Path, ARGUMENT(help="CSV or Parquet file, or a folder of pictures.")]
KeptColumns = Annotated[
    str | None, ROWS(help="Input columns to keep, such as id,ward, or none; all by default.")
]
Outcomes = Annotated[
    str | None, ROWS(help="Column of outcomes; for pictures in class folders: class.")
]
Prefix = Annotated[str, ROWS(help="Prefix of the names of the added columns.")]
Delimiter = Annotated[str | None, TEXT(help="One character, or tab; detected by default.")]
Encoding = Annotated[
    str | None, TEXT(help="Encoding, such as utf-8 or cp1252; detected by default.")
]

# the model of `wri fit`
Algorithms = Annotated[
    list[str] | None,
    MODEL(
        help=f"Algorithms: {', '.join(ALGORITHMS)}. Default: wri and erm. Those that end in "
        "-boosting grow trees and need LightGBM."
    ),
]
Keep = Annotated[
    str | None,
    MODEL(
        help="Model to keep: erm, without (ERM without the flagged columns), or 'wri 3' (WRI with "
        "λ = 3 or another value). Default: of --algorithms, the model with the smallest worst "
        "regret over sites like these and sites where the flagged columns tell nothing; if no "
        "column is flagged, WRI with the preset's λ."
    ),
]
Predictors = Annotated[
    list[str] | None,
    MODEL(
        help="Predictors to try with ERM: linear, network, trees. Default: those that take little "
        "time."
    ),
]
Fast = Annotated[
    bool, MODEL("--fast", help="Hold no site out. This is fast, but the answer is then unknown.")
]
Hidden = Annotated[str | None, MODEL(help="Widths of hidden layers, such as 32,16; 0 for none.")]
Steps = Annotated[
    int | None, MODEL(min=1, help="Training steps (400 by default), or rounds of trees (300).")
]
SavedModel = Annotated[Path, ARGUMENT(help="Folder of a saved model.")]
ModelFolder = Annotated[
    Path | None,
    MODEL("--model", help="Saved model: also show its gaps between sites and a stress test."),
]

# running
Output = Annotated[Path, RUN("-o", "--output", help="Folder for the model and report.html.")]
PageFolder = Annotated[Path | None, RUN("-o", "--output", help="Folder for the page and plots.")]
Predictions = Annotated[Path, RUN("--output", "-o", help="A .csv or .parquet file to write.")]
Level = Annotated[float, RUN(help="Level of the interval for the loss.")]
Plot = Annotated[Path | None, RUN(help="Draw the typicality of the rows to a .png, .svg or .pdf.")]
Memory = Annotated[float, RUN(min=0.01, help="Memory limit in GB.")]
Seed = Annotated[int, RUN(min=0, help="Seed of all random draws.")]
Device = Annotated[str, RUN(help="auto, cpu, cuda or cuda:1.")]
Runner = Literal["local", "ray"]
Backend = Annotated[Runner, RUN(help="Train here, or in Ray's workers (local, or RAY_ADDRESS).")]
AsJson = Annotated[bool, RUN("--json", help="Print one JSON document.")]

# sweeps
StoreFile = Annotated[Path, OPTION(help="File of the runs; created if it does not exist.")]
Datasets = Annotated[list[str] | None, OPTION(help=f"Built-in data sets: {', '.join(DATASETS)}.")]
DataFile = Annotated[Path | None, OPTION(help="A CSV, Parquet or .npz file of rows.")]
PictureFolder = Annotated[
    Path | None, OPTION(help="A folder DIR/DOMAIN/CLASS/*.jpg or *.png; domains are held out.")
]
BackboneName = Annotated[
    str | None, OPTION("--backbone", help="efficientnet-lite0 (the default), resnet18 or resnet50.")
]
FeatureWidths = Annotated[
    str | None,
    OPTION(
        "--feature-layer",
        help="Widths of a feature layer, such as 32,64, that ERM trains on the training "
        "environments. The first draw has the largest width, the other draws choose at random. 0 "
        "for none. Default: 32,64 with --images, otherwise none.",
    ),
]
SweepAlgorithms = Annotated[
    list[str] | None,
    OPTION(help=f"Algorithms: {', '.join(OBJECTIVES)}. Default: {', '.join(PAPER)}."),
]
Plugins = Annotated[
    list[str] | None, OPTION(help="Python file or module with your own objectives or densities.")
]
Draws = Annotated[
    int, OPTION(help="Number of hyper-parameter draws; the first one has the defaults.")
]
Trials = Annotated[int, OPTION(help="Number of repetitions with new seeds.")]
FirstTrial = Annotated[int, OPTION(help="Number of the first repetition.")]
RunSteps = Annotated[int | None, OPTION(help="Steps per run; the preset's by default.")]
CheckpointEvery = Annotated[int, OPTION(help="Steps between checkpoints.")]
TestEnvs = Annotated[list[int] | None, OPTION(help="Environments to hold out, from 0.")]
Selections = Annotated[list[str] | None, OPTION(help=f"Methods: {', '.join(SELECTIONS)}.")]
PresetName = Annotated[
    str | None, OPTION(help=f"Defaults of the model: {', '.join(PRESETS)}. For tables: table.")
]
Standardise = Annotated[
    bool | None,
    OPTION("--standardise/--as-is", help="Standardise columns; the preset decides by default."),
]
Set = Annotated[
    list[str] | None, OPTION("--set", help="Fix a hyper-parameter: name=value, or @file.json.")
]
MeasureName = Annotated[
    str | None,
    OPTION(
        help=f"Measure that chooses the runs and is shown: {', '.join(MEASURES)}. Default: the "
        "first recorded."
    ),
]
Recorded = Annotated[list[str] | None, OPTION(help="Measures to record; all by default.")]
DryRun = Annotated[bool, OPTION("--dry-run", help="Show the cost without training.")]
Repair = Annotated[bool, OPTION("--repair", help="Drop damaged runs and train them again.")]

# results of sweeps
OldStore = Annotated[Path, ARGUMENT(help="File that a sweep wrote.")]
Form = Annotated[Literal["text", "latex", "csv"], OPTION("--format", help="Format of the tables.")]
Best = Annotated[bool, OPTION("--best", help="Show the chosen runs, and the best model in Python.")]
FitFolder = Annotated[
    Path | None,
    OPTION(
        "--fit", help="With --best: train the best model on all rows and save it in this folder."
    ),
]
Algorithm = Annotated[str | None, OPTION(help="With --best: one algorithm of the store.")]
Dataset = Annotated[str | None, OPTION(help="With --best: one data set of the store.")]
MovedFile = Annotated[
    Path | None, OPTION("--data", help="With --fit: path of the rows, if the file was moved.")
]
ExportFolder = Annotated[
    Path, OPTION("--domainbed", help="Folder for DomainBed: a new one, or one of an export.")
]
DatasetNames = Annotated[
    list[str] | None, OPTION("--name", help="OURS=THEIRS: DomainBed's name of a data set.")
]
SweepFolder = Annotated[Path, ARGUMENT(help="Sweep folder of DomainBed.")]
DomainBedSelections = Annotated[
    list[str] | None,
    OPTION("--selection", help=f"Methods: {', '.join(DOMAINBED_SELECTIONS)}. All by default."),
]
OnlyDone = Annotated[bool, OPTION("--only-done", help="Leave out runs without the file `done`.")]


def command_line() -> str:
    """Return the command line, for the report."""
    return shlex.join(["wri", *sys.argv[1:]])


def check_columns(target: str | None, env: str | None, env_from_file: bool) -> str:
    """Return the target; refuse commands that do not name it and the sites."""
    if target is None:
        raise InputError("name the column to be predicted with --target")
    if env is None and not env_from_file:
        raise InputError(
            "name the column of sites with --env, or give one file per site and --env-from-file"
        )
    if env is not None and env_from_file:
        raise InputError("--env and --env-from-file both define the sites; give one of them")
    return target


def kinds_of(number: list[str] | None, category: list[str] | None) -> dict[str, str]:
    """Return the kinds of columns given by options."""
    both = sorted({*(number or ())} & {*(category or ())})
    if both:
        raise InputError(f"column {both[0]!r} is in --number and --category; remove it from one")
    return dict.fromkeys(number or (), "number") | dict.fromkeys(category or (), "category")


def read_hidden(text: str | None, flag: str = "--hidden") -> tuple[int, ...] | None:
    """Read widths of layers from "32,16"; "0" is no layer."""
    if text is None:
        return None
    try:
        widths = tuple(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        widths = ()
    if not widths or (min(widths) < 1 and widths != (0,)):
        raise InputError(f"{flag} {text} must be widths such as 32,16, or 0 for none")
    return () if widths == (0,) else widths
