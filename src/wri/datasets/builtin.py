"""Built-in data sets by name: small simulations, the same on every machine."""

from collections.abc import Callable
from typing import NamedTuple

from wri.datasets.environments import Environment
from wri.datasets.gaussian2d import Gaussian2D
from wri.datasets.hospitals import REVERSED, TRAINING, hospitals
from wri.datasets.simulation import Simulation, SimulationSetting
from wri.errors import InputError


class BuiltinDataset(NamedTuple):
    """Description of a built-in data set and the function that makes it."""

    about: str
    make: Callable[[int], list[Environment]]  # from a seed


def _simulation(seed: int = 0) -> list[Environment]:
    setting = SimulationSetting(
        invariant_shift=0.15, parity=85.0, environments=4, classes=3, d_inv=5, d_spu=5
    )
    return Simulation.balanced(setting, 500, seed)[1]


def _gaussian2d(seed: int = 0) -> list[Environment]:
    return Gaussian2D().sample(1000, seed)


def _hospitals(seed: int = 0) -> list[Environment]:
    return hospitals(500, seed, (*TRAINING, REVERSED))


BUILTIN = {
    "simulation": BuiltinDataset(
        "appendix E.2, small: 4 environments × 500 rows, 5 invariant and 5 spurious columns, "
        "3 classes",
        _simulation,
    ),
    "gaussian2d": BuiltinDataset(
        "Figure 1: 3 environments × 1000 rows, an invariant and a spurious column, 2 classes",
        _gaussian2d,
    ),
    "hospitals": BuiltinDataset(
        "the paper's example: 5 environments × 500 rows, smoking, a marker that misleads in the "
        "last one, and noise, 2 classes",
        _hospitals,
    ),
}


def load_builtin(name: str, seed: int = 0) -> list[Environment]:
    """Make the environments of a built-in data set.

    Parameters
    ----------
    name : str
        Key of `BUILTIN`.
    seed : int, default=0
        Seed of parameters and rows.

    Returns
    -------
    environments : list of Environment
        The environments.

    Raises
    ------
    InputError
        If the name is unknown.

    Examples
    --------
    >>> from wri.datasets import load_builtin
    >>> [(each.name, each.x.shape) for each in load_builtin("gaussian2d")][:1]
    [('environment 1', (1000, 2))]
    """
    if name not in BUILTIN:
        raise InputError(
            f"there is no built-in data set {name!r}, only {', '.join(BUILTIN)}; for a file give "
            "--data FILE --target COLUMN --env COLUMN"
        )
    return BUILTIN[name].make(seed)
