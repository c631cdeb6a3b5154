"""Options of `wri sweep` and of the commands of `wri results`, and the names that their help shows.

Names are from registries that do not import PyTorch. Data sets and selections are in packages with
slow imports, so their names are repeated here; a test compares them.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from wri.measures import MEASURES as _MEASURES
from wri.presets import PRESETS as _PRESETS
from wri.registry import ALGORITHMS as _ALGORITHMS
from wri.registry import OBJECTIVES, PAPER

ALGORITHMS = tuple(OBJECTIVES)
FIT_ALGORITHMS = tuple(_ALGORITHMS)  # with boosted trees
MEASURES = tuple(_MEASURES)
PRESETS = tuple(_PRESETS)
DATASETS = ("simulation", "gaussian2d", "hospitals")
SELECTIONS = (
    "training-domain",
    "leave-one-out",
    "invariance",
    "oracle",
    "oracle-early",
    "guarded-oracle",
)
NEED_PAIRS = ("leave-one-out",)  # selections that need runs with pairs held out
ON_REQUEST = (*NEED_PAIRS, "invariance")  # selections that a sweep supports only on request
MEMORY = 4.0  # GB, the default of every command
DOMAINBED_SELECTIONS = ("training-domain", "leave-one-out", "oracle")  # in DomainBed's order

StoreFile = Annotated[Path, typer.Option(help="File of the runs; created if it does not exist.")]
OldStore = Annotated[Path, typer.Argument(help="File that a sweep wrote.")]
Datasets = Annotated[
    list[str] | None, typer.Option(help=f"Built-in data sets: {', '.join(DATASETS)}.")
]
DataFile = Annotated[
    Path | None, typer.Option(help="A CSV, Parquet or .npz file instead of a built-in.")
]
Images = Annotated[
    Path | None,
    typer.Option(
        help="A folder of pictures, DIR/DOMAIN/CLASS/*.jpg or *.png; domains are held out."
    ),
]
BackboneName = Annotated[
    str | None,
    typer.Option(
        "--backbone", help="With --images: efficientnet-lite0 (the default), resnet18 or resnet50."
    ),
]
FeatureWidths = Annotated[
    str | None,
    typer.Option(
        "--feature-layer",
        help="Possible widths of a feature layer, such as 32,64, that ERM trains on the training "
        "environments; the largest in the first draw. 0 for none. 32,64 for --images, else none.",
    ),
]
Target = Annotated[str | None, typer.Option(help="Column of the target in --data.")]
Env = Annotated[str | None, typer.Option(help="Column of the environment in --data.")]
Task = Annotated[
    str | None, typer.Option(help="Kind of the target: classes or numbers. Detected by default.")
]
Drop = Annotated[
    list[str] | None, typer.Option(help="Columns of --data to leave out: ids, dates, free text.")
]
Category = Annotated[
    list[str] | None, typer.Option(help="Columns of --data that are categories, such as codes.")
]
Algorithms = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Algorithms out of {', '.join(ALGORITHMS)}; by default those of the paper: "
        f"{', '.join(PAPER)}."
    ),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(help="Python file or module with objectives or densities of your own."),
]
Draws = Annotated[int, typer.Option(help="Hyper-parameter draws; the first is the defaults.")]
Trials = Annotated[int, typer.Option(help="Repetitions with new seeds.")]
FirstTrial = Annotated[int, typer.Option(help="Number of the first repetition.")]
Steps = Annotated[int | None, typer.Option(help="Steps per run; the preset's by default.")]
CheckpointEvery = Annotated[int, typer.Option(help="Steps between checkpoints.")]
TestEnvs = Annotated[
    list[int] | None, typer.Option(help="Environments to hold out, from 0; all by default.")
]
Selections = Annotated[
    list[str] | None, typer.Option(help=f"Selection methods: {', '.join(SELECTIONS)}.")
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
        help="Standardise columns with the training rows, or not. The preset decides by default.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Fix a hyper-parameter: name=value; @file.json for several."),
]
MeasureName = Annotated[
    str | None,
    typer.Option(
        help=f"Measure by which runs are chosen and shown: {', '.join(MEASURES)}. By default the "
        "first recorded one."
    ),
]
Recorded = Annotated[
    list[str] | None, typer.Option(help="Measures to record; all that apply by default.")
]
Memory = Annotated[
    float, typer.Option(min=0.01, help="Memory limit in GB, with PyTorch and the rows.")
]
Backend = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Train in threads here, or in Ray's workers (local, or at RAY_ADDRESS)."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the cost without training.")]
Repair = Annotated[
    bool, typer.Option("--repair", help="Drop damaged runs from the store and train them again.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Form = Annotated[
    Literal["text", "latex", "csv"], typer.Option("--format", help="Format of the tables.")
]
Best = Annotated[
    bool,
    typer.Option(
        "--best", help="Show the chosen draw, step and hyper-parameters, and the Python line."
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
    Path | None, typer.Option("--data", help="With --fit: present path of the file of rows.")
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
    typer.Option("--name", help="OURS=THEIRS: DomainBed's name of a data set; can be repeated."),
]
SweepFolder = Annotated[Path, typer.Argument(help="Sweep folder of DomainBed.")]
DomainBedSelections = Annotated[
    list[str] | None,
    typer.Option(
        "--selection", help=f"Selection methods: {', '.join(DOMAINBED_SELECTIONS)}. All by default."
    ),
]
OnlyDone = Annotated[
    bool,
    typer.Option(
        "--only-done", help="Leave out runs without the file `done`; DomainBed counts them."
    ),
]
