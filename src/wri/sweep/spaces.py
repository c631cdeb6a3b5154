"""Hyper-parameter draws by DomainBed's rule: two seeds and a name determine a number."""

import hashlib
from collections.abc import Sequence

import numpy as np

from wri.objectives import Objective
from wri.objectives.hyperparameters import complete
from wri.objectives.table_rules import FitSize
from wri.presets import FALLBACK


def seed_hash(*parts: int | str) -> int:
    """Return DomainBed's hash of its arguments.

    Parameters
    ----------
    *parts : int or str
        Values to hash.

    Returns
    -------
    seed : int
        Number below 2³¹.

    Examples
    --------
    >>> from wri.sweep import seed_hash
    >>> seed_hash(0, "lr") == seed_hash(0, "lr") < 2**31
    True
    """
    plain = tuple(part if isinstance(part, str) else int(part) for part in parts)
    return int(hashlib.md5(str(plain).encode(), usedforsecurity=False).hexdigest(), 16) % 2**31


def run_seed(
    dataset: str, algorithm: str, test_envs: Sequence[int], hparams_seed: int, trial_seed: int
) -> int:
    """Return the seed of a run's initial weights and batches, from its place in a table.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    algorithm : str
        Name of the algorithm.
    test_envs : sequence of int
        Held-out environments.
    hparams_seed : int
        Number of the hyper-parameter draw.
    trial_seed : int
        Number of the trial.

    Returns
    -------
    seed : int
        Number below 2³¹.

    Examples
    --------
    >>> from wri.sweep import run_seed
    >>> run_seed("toy", "erm", [0], 0, 0) != run_seed("toy", "erm", [0], 0, 1)
    True
    """
    return seed_hash(dataset, algorithm, *test_envs, hparams_seed, trial_seed)


def drawn_values(
    objective: type[Objective] | Objective,
    hparams_seed: int,
    trial_seed: int = 0,
    preset: str = FALLBACK,
    size: FitSize | None = None,
) -> dict[str, float]:
    """Draw from all declared distributions; nothing for `hparams_seed` 0, the defaults."""
    if not hparams_seed:
        return {}
    chosen = {}
    for parameter in objective.hyperparameters():
        setting = parameter.setting(preset)
        if setting.distribution is not None:
            random = np.random.RandomState(
                seed_hash(seed_hash(hparams_seed, trial_seed), parameter.name)
            )
            default = setting.resolve(size)
            chosen[parameter.name] = parameter.check(setting.distribution(random, default))
    return chosen


def draw(
    objective: type[Objective] | Objective,
    hparams_seed: int,
    trial_seed: int = 0,
    preset: str = FALLBACK,
    size: FitSize | None = None,
) -> dict[str, float]:
    """Draw all hyper-parameters of an objective.

    Parameters
    ----------
    objective : Objective or its class
        The objective.
    hparams_seed : int
        Number of the draw; 0 gives the defaults.
    trial_seed : int, default=0
        Number of the trial, which also determines the draw.
    preset : str, default="domainbed"
        Preset of defaults and distributions.
    size : FitSize or None, default=None
        Size of the fit, on which defaults of the preset `table` depend.

    Returns
    -------
    values : dict of str to float
        Hyper-parameters by name.

    Examples
    --------
    >>> from wri.objectives import OBJECTIVES
    >>> from wri.sweep import draw
    >>> draw(OBJECTIVES["erm"], hparams_seed=0)["learning_rate"]
    0.01
    >>> draw(OBJECTIVES["erm"], hparams_seed=1)["learning_rate"] != 0.01
    True
    """
    drawn = drawn_values(objective, hparams_seed, trial_seed, preset, size)
    return complete(objective.hyperparameters(), drawn, preset, size)
