"""One file for each table and figure of the paper, or for those that share their training."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from wri.errors import InputError
from wri.experiments.task import Task

if TYPE_CHECKING:
    from wri.report.result import Result


class Experiment(NamedTuple):
    module: str  # in this room; its function `run` takes a Task
    about: str


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
    "tableE1": Experiment(
        "simulation", "accuracy in a simulation as the invariant means move apart"
    ),
    "tableE2": Experiment(
        "simulation", "accuracy in a simulation as the invariant covariances differ"
    ),
    "tableE3": Experiment(
        "simulation",
        "accuracy in a simulation as the spurious features agree ever more in training",
    ),
    "figureE5": Experiment("simulation", "tables E.1 to E.3 as a figure"),
    "figureE6": Experiment("figureE6", "mirrored digits, the out-of-domain test of table 3"),
    "theorem1": Experiment("theorem1", "weighted risk invariance discards spurious dimensions"),
    "sample_complexity": Experiment(
        "sample_complexity", "spread of weighted risks by kind of weight (appendix B)"
    ),
}
"""Every experiment, figures and tables by the names the paper gives them."""


def run_experiment(task: Task) -> "Result":
    """Run one experiment and write its figures below the task's output folder."""
    if task.name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise InputError(f"there is no experiment {task.name!r}; choose one of {known}, or all")
    module = import_module(f"wri.experiments.{EXPERIMENTS[task.name].module}")
    result: Result = module.run(task)
    return result


__all__ = ["EXPERIMENTS", "Experiment", "Task", "run_experiment"]
