"""Hyper-parameter draws by DomainBed's rule: two seeds and a name decide a number."""

import hashlib
from collections.abc import Sequence

import numpy as np

from wri.objectives import Objective
from wri.objectives.hyperparameters import complete
from wri.objectives.table_rules import FitSize
from wri.presets import FALLBACK


def seed_hash(*parts: int | str) -> int:
    """DomainBed's hash of its arguments, a number below 2³¹."""
    plain = tuple(part if isinstance(part, str) else int(part) for part in parts)
    return int(hashlib.md5(str(plain).encode(), usedforsecurity=False).hexdigest(), 16) % 2**31


def run_seed(
    dataset: str, algorithm: str, test_envs: Sequence[int], hparams_seed: int, trial_seed: int
) -> int:
    """Seed of a run's initial weights and batches, from its place in a table."""
    return seed_hash(dataset, algorithm, *test_envs, hparams_seed, trial_seed)


def drawn_values(
    objective: type[Objective] | Objective,
    hparams_seed: int,
    trial_seed: int = 0,
    preset: str = FALLBACK,
    size: FitSize | None = None,
) -> dict[str, float]:
    """One draw from every declared distribution; nothing for `hparams_seed` 0, the defaults."""
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
    """All hyper-parameters of a draw.

    Parameters
    ----------
    objective
        Whose hyper-parameters.
    hparams_seed
        Number of the draw; 0 gives the defaults.
    trial_seed
        Number of the repetition, which also decides the draw.
    preset
        Where defaults and distributions come from.
    size
        What the defaults of the preset `table` depend on.
    """
    drawn = drawn_values(objective, hparams_seed, trial_seed, preset, size)
    return complete(objective.hyperparameters(), drawn, preset, size)
