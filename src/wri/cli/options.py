"""Options of `wri sweep` and of the commands of `wri results`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from wri.cli.names import (
    ALGORITHMS,
    DATASETS,
    DOMAINBED_SELECTIONS,
    MEASURES,
    PRESETS,
    SELECTIONS,
)

StoreFile = Annotated[Path, typer.Option(help="File that keeps the runs; made if need be.")]
OldStore = Annotated[Path, typer.Argument(help="File that a sweep wrote.")]
Datasets = Annotated[
    list[str] | None, typer.Option(help=f"Built-in data sets: {', '.join(DATASETS)}.")
]
DataFile = Annotated[
    Path | None, typer.Option(help="A CSV, Parquet or .npz file instead of a built-in.")
]
Target = Annotated[str | None, typer.Option(help="Column of the target in --data.")]
Env = Annotated[str | None, typer.Option(help="Column of the environment in --data.")]
Task = Annotated[
    str | None,
    typer.Option(help="What the target holds: classes or numbers. Found out by default."),
]
Algorithms = Annotated[
    list[str] | None, typer.Option(help=f"Of {', '.join(ALGORITHMS)}; all by default.")
]
Draws = Annotated[int, typer.Option(help="Hyper-parameter draws; the first is the defaults.")]
Trials = Annotated[int, typer.Option(help="Repetitions of everything.")]
FirstTrial = Annotated[int, typer.Option(help="Number of the first repetition.")]
Steps = Annotated[int | None, typer.Option(help="Steps of each run; the preset's by default.")]
CheckpointEvery = Annotated[int, typer.Option(help="Steps between checkpoints.")]
TestEnvs = Annotated[
    list[int] | None, typer.Option(help="Environments to hold out, from 0; all by default.")
]
Selections = Annotated[
    list[str] | None, typer.Option(help=f"Ways to choose: {', '.join(SELECTIONS)}.")
]
PresetName = Annotated[
    str | None,
    typer.Option(help=f"Defaults of the model: {', '.join(PRESETS)}. For tables: table."),
]
Hidden = Annotated[
    str | None,
    typer.Option(help="Widths of the hidden layers, such as 32,16; 0 for a linear predictor."),
]
Standardise = Annotated[
    bool | None,
    typer.Option(
        "--standardise/--as-is",
        help="Put columns in units of the training rows, or not. By the preset by default.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="name=value for all runs, not drawn; @file.json for several."),
]
MeasureName = Annotated[
    str | None,
    typer.Option(
        help=f"By which runs are chosen and shown: {', '.join(MEASURES)}. The first recorded one "
        "by default."
    ),
]
Recorded = Annotated[
    list[str] | None, typer.Option(help="Measures to record; all that apply by default.")
]
Memory = Annotated[
    float, typer.Option(min=0.01, help="GB that all may take, PyTorch and rows too.")
]
Backend = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Train in threads here, or in Ray's workers, here or on RAY_ADDRESS."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would take.")]
Repair = Annotated[
    bool, typer.Option("--repair", help="Drop damaged runs from the store and train them again.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]
Form = Annotated[
    Literal["text", "latex", "csv"], typer.Option("--format", help="Form of the tables.")
]
Best = Annotated[
    bool,
    typer.Option(
        "--best", help="Show what was chosen: draw, step, hyper-parameters, and how to make it."
    ),
]
FitFolder = Annotated[
    Path | None,
    typer.Option("--fit", help="With --best: train the best model on all rows, save it here."),
]
Algorithm = Annotated[
    str | None, typer.Option(help="With --best: one algorithm of the store instead of all.")
]
Dataset = Annotated[
    str | None, typer.Option(help="With --best: one data set of the store instead of all.")
]
MovedFile = Annotated[
    Path | None, typer.Option("--data", help="With --fit: where the file of the rows is now.")
]
Seed = Annotated[int, typer.Option(min=0, help="With --fit: seed of the model.")]
ExportFolder = Annotated[
    Path,
    typer.Option(
        "--domainbed", help="Folder for DomainBed: a new one, or one that an export wrote."
    ),
]
DatasetNames = Annotated[
    list[str] | None,
    typer.Option(
        "--name", help="OURS=THEIRS: what DomainBed calls a data set; may be given several times."
    ),
]
SweepFolder = Annotated[Path, typer.Argument(help="Sweep folder of DomainBed.")]
DomainBedSelections = Annotated[
    list[str] | None,
    typer.Option(
        "--selection", help=f"Ways to choose: {', '.join(DOMAINBED_SELECTIONS)}. All by default."
    ),
]
OnlyDone = Annotated[
    bool,
    typer.Option(
        "--only-done", help="Leave out runs without the file `done`, which DomainBed counts."
    ),
]
