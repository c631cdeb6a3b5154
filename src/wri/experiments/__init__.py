"""One file for each table and figure of the paper, or for those that share their training."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from wri.errors import InputError, check_option
from wri.experiments.task import OPTIONS, Task

if TYPE_CHECKING:
    from wri.report.result import Result


Options = Mapping[str, tuple[str, ...] | None]
"""Fields of a Task that an experiment heeds, with their values where these are few."""


class Experiment(NamedTuple):
    module: str  # in this room; its function `run` takes a Task
    about: str
    options: Options = MappingProxyType({})


FILTERED: Options = {"filtered": None}
PRESETS: Options = {"preset": ("paper", "published", "wri")}
FEATURES: Options = {"features": ("ae", "cnn", "pca"), "width": None}

EXPERIMENTS = {
    "figure1": Experiment(
        "figure1", "two Gaussian features: ERM, IRM, VREx and WRI under invariant covariate shift"
    ),
    "figure3": Experiment(
        "figure3", "finite samples under large shift: how spurious each algorithm stays"
    ),
    "figure4": Experiment(
        "figure4", "IRM's and WRI's penalties of slightly spurious predictors as the shift grows"
    ),
    "figureC1": Experiment(
        "figureC1", "regression in which WRI discards the spurious weight and ERM does not"
    ),
    "figureD3": Experiment("density_quality", "error of learned densities over time"),
    "figureD4": Experiment("density_quality", "learned against true densities"),
    "table1": Experiment(
        "table1", "penalties of predictors that see the digit, the colour or both, without pixels"
    ),
    "table2": Experiment(
        "table2",
        "ERM, IRM, VREx and WRI on coloured digits of unequal difficulty, as a sweep",
        {**PRESETS, **FEATURES},
    ),
    "table3": Experiment(
        "table3",
        "mirrored digits told from common ones, by WRI's density and the others' confidence",
        {**PRESETS, **FEATURES, "combine": ("mean", "maximum"), "negatives": ("all", "same")},
    ),
    "ablation": Experiment(
        "ablation", "table 2's WRI with one thing changed at a time, and why it wins", FEATURES
    ),
    "tableE1": Experiment(
        "simulation", "accuracy in a simulation as the invariant means move apart", FILTERED
    ),
    "tableE2": Experiment(
        "simulation", "accuracy in a simulation as the invariant covariances differ", FILTERED
    ),
    "tableE3": Experiment(
        "simulation",
        "accuracy in a simulation as the spurious features agree ever more in training",
        FILTERED,
    ),
    "figureE5": Experiment("simulation", "tables E.1 to E.3 as a figure", FILTERED),
    "figureE6": Experiment("figureE6", "mirrored digits, the out-of-domain test of table 3"),
    "theorem1": Experiment("theorem1", "weighted risk invariance discards spurious dimensions"),
    "sample_complexity": Experiment(
        "sample_complexity", "spread of weighted risks by kind of weight (appendix B)"
    ),
    "hospitals": Experiment(
        "hospitals",
        "the paper's example simulated: estimators at new hospitals, and their evidence",
    ),
    "heart": Experiment("heart", "heart disease, each of four real hospitals held out in turn"),
}
"""Every experiment, figures and tables by the names the paper gives them; ours come last."""


def run_experiment(task: Task) -> "Result":
    """Run one experiment and write its figures below the task's output folder."""
    check_task(task)
    module = import_module(f"wri.experiments.{EXPERIMENTS[task.name].module}")
    result: Result = module.run(task)
    return result


def check_task(task: Task) -> None:
    """Refuse an experiment or an option that there is not."""
    if task.name not in EXPERIMENTS:
        names = ", ".join(EXPERIMENTS)
        raise InputError(f"there is no experiment {task.name!r}; choose one of {names}, or all")
    known = EXPERIMENTS[task.name].options
    for option in OPTIONS:
        value, values = getattr(task, option), known.get(option)
        if value is None:
            continue
        if option not in known:
            heeded = f"only {', '.join(known)}" if known else "none of these options"
            raise InputError(f"{task.name} does not heed {option}: {heeded}; leave it out")
        if values is not None:
            check_option(option, value, values)


__all__ = ["EXPERIMENTS", "Experiment", "Task", "check_task", "run_experiment"]
