"""One file for each table and figure of the paper."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from wri.errors import InputError
from wri.experiments.result import Result

EXPERIMENTS = {
    "figure1": "two Gaussian features: ERM, IRM, VREx and WRI under invariant covariate shift",
}
"""Every experiment by the name the paper gives it; its module has a function `run`."""


def run_experiment(
    name: str,
    full: bool,
    seed: int,
    output: Path,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run one experiment and write its figures below `output`."""
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise InputError(f"there is no experiment {name!r}; choose one of {known}, or all")
    module = import_module(f"wri.experiments.{name}")
    result: Result = module.run(full, seed, output, progress or (lambda done, of: None))
    return result


__all__ = ["EXPERIMENTS", "Result", "run_experiment"]
