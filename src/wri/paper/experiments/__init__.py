"""Experiments: one module per table or figure of the paper, or for several that share runs."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from wri.progress import Progress, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from wri.paper.result import Result, ResultCell


@dataclass(frozen=True)
class Option:
    """Option of an experiment, for the command line and for `ExperimentTask`."""

    name: str
    kind: Any  # bool, int, str, or a Literal of the allowed values
    help: str
    default: Any = None  # None lets the experiment choose
    _: KW_ONLY
    least: int | None = None
    flags: str = ""  # on the command line, if not --name

    @property
    def flag(self) -> str:
        """Flags on the command line."""
        return self.flags or f"--{self.name}"


class Experiment(NamedTuple):
    """Tables and figures that are computed together, with their options."""

    outputs: Mapping[str, str]  # name of each table or figure, and a line about it
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExperimentTask:
    """Task of running one experiment at one of two sizes."""

    name: str  # in `EXPERIMENTS`
    folder: Path  # of figures and stores
    outputs: tuple[str, ...] = ()  # tables and figures; all of the experiment if empty
    full: bool = False  # the paper's size
    seed: int = 0  # the first
    progress: Progress = silent
    options: Mapping[str, Any] = field(default_factory=dict)

    def seeds(self, full: int, quick: int) -> range:
        """Return as many seeds as a full or a quick run has."""
        return range(self.seed, self.seed + (full if self.full else quick))

    def make_result(
        self,
        rows: "Sequence[ResultCell]",
        notes: Sequence[str],
        figure: "Figure | None" = None,
        output: str = "",
        repetitions: str = "seeds",
        file: str = "",
    ) -> "Result":
        """Return the result of an output, by default the only one, and write its figure."""
        from wri.paper.result import Result
        from wri.report import style

        name = output or self.name
        figures = [] if figure is None else style.save(figure, self.folder, file or name)
        return Result(
            experiment=name,
            rows=[*rows],
            notes=[*notes],
            figures=figures,
            repetitions=repetitions,
        )


PRESET = Option(
    *("preset", Literal["paper", "published", "coloured"]),
    "Hyper-parameters: as printed in the paper, as in its code, or chosen for these data.",
    "coloured",
)
BACKEND = Option(
    *("backend", Literal["local", "ray"]),
    "Train sweeps in threads here, or in Ray's workers (local, or at RAY_ADDRESS).",
    "local",
)
FEATURES = (
    Option(
        *("features", Literal["ae", "cnn", "pca"]),
        "Autoencoder, convolutional network or PCA. With --quick the default is PCA.",
    ),
    Option("width", int, "Number of features.", least=1),
    Option(
        *("epochs", int),
        "Passes of the extractor over its images; 5 of the autoencoder by default.",
        least=1,
    ),
)
OPTIONS: dict[str, tuple[Option, ...]] = {
    "table2": (PRESET, *FEATURES, BACKEND),
    "table3": (
        PRESET,
        *FEATURES,
        Option(
            *("combine", Literal["mean", "maximum"]),
            "How the densities of the environments are combined to one score.",
            "mean",
        ),
        Option(
            *("negatives", Literal["all", "same"]),
            "Common digits: all, or only those digits that are also mirrored.",
            "all",
        ),
    ),
    "ablation": FEATURES,
    "pictures": (
        Option(
            *("datasets", str),
            "Some of VLCS, PACS, OfficeHome, TerraIncognita, DomainNet, separated by commas. By "
            "default all.",
        ),
        Option(
            *("data", str),
            "Folder of the data sets, in place of WRI_DATA; or any folder DIR/DOMAIN/CLASS/*.jpg "
            "of your own.",
        ),
        Option("backbone", str, "Name of the backbone; default efficientnet-lite0."),
        Option(
            *("preset", Literal["domainbed", "one-layer"]),
            "Two hidden layers, as the paper's code ran, or one, as appendix E.5 prints.",
            "domainbed",
        ),
        BACKEND,
    ),
    "simulation": (
        Option(
            *("filtered", bool),
            "Only data seeds that pass the paper's filter, or all. By default both are shown.",
            flags="--filtered/--unfiltered",
        ),
    ),
}
OUTPUTS = {
    "figure1": "two Gaussian features: ERM, IRM, VREx and WRI under invariant covariate shift",
    "figure3": "finite samples under large shift: remaining spurious weight per algorithm",
    "figure4": "IRM's and WRI's penalties of slightly spurious predictors as the shift grows",
    "figureC1": "regression in which WRI discards the spurious weight and ERM does not",
    "figureD3": "error of learned densities over time",
    "figureD4": "learned against true densities",
    "table1": "penalties of predictors that see the digit, the colour or both, without pixels",
    "table2": "ERM, IRM, VREx and WRI on coloured digits of unequal difficulty, as a sweep",
    "table3": "detection of mirrored digits by WRI's density and by the confidence of the others",
    "ablation": "WRI of table 2 with one change at a time",
    "table4": "DomainBed's pictures or yours, each domain held out: ERM, IRM, VREx and WRI",
    "tableE4": "the same with all eight algorithms, per domain",
    "tableE1": "accuracy in a simulation as the invariant means move apart",
    "tableE2": "accuracy in a simulation as the invariant covariances differ",
    "tableE3": "accuracy in a simulation as the spurious features agree more and more in training",
    "figureE5": "tables E.1 to E.3 as a figure",
    "figureE6": "mirrored digits, the out-of-domain test of table 3",
    "theorem1": "weighted risk invariance discards spurious dimensions",
    "sample_complexity": "spread of weighted risks by kind of weight (appendix B)",
    "hospitals": "the paper's example simulated: estimators at new hospitals, and their evidence",
    "heart": "heart disease, each of four real hospitals held out in turn",
}
"""Tables and figures by the names that the paper gives them; ours come last."""
_TOGETHER = {
    "density_quality": ("figureD3", "figureD4"),
    "pictures": ("table4", "tableE4"),
    "simulation": ("tableE1", "tableE2", "tableE3", "figureE5"),
}
_MODULES = {output: module for module, outputs in _TOGETHER.items() for output in outputs}
EXPERIMENTS = {
    module: Experiment(
        {name: OUTPUTS[name] for name in _TOGETHER.get(module, (module,))}, OPTIONS.get(module, ())
    )
    for module in dict.fromkeys(_MODULES.get(output, output) for output in OUTPUTS)
}
"""Experiments by their modules.

A module's function `run` takes an `ExperimentTask` and returns a `Result` per output of the task.
"""


def run_experiment(task: ExperimentTask) -> "list[Result]":
    """Run one experiment, write its figures, and return a result per output of the task."""
    outputs, options = EXPERIMENTS[task.name]
    complete = replace(
        task,
        outputs=task.outputs or tuple(outputs),
        options={option.name: option.default for option in options} | dict(task.options),
    )
    start = perf_counter()
    results = import_module(f"wri.paper.experiments.{task.name}").run(complete)
    seconds = perf_counter() - start
    return [replace(result, seconds=seconds, quick=not task.full) for result in results]
