"""Hyper-parameter draws by DomainBed's rule: two seeds and a name decide a number."""

import hashlib

import numpy as np

from wri.objectives import Objective


def seed_hash(*parts: int | str) -> int:
    """DomainBed's hash of its arguments, a number below 2³¹."""
    plain = tuple(part if isinstance(part, str) else int(part) for part in parts)
    return int(hashlib.md5(str(plain).encode(), usedforsecurity=False).hexdigest(), 16) % 2**31


def draw(
    objective: type[Objective] | Objective,
    hparams_seed: int,
    trial_seed: int = 0,
    preset: str = "domainbed",
) -> dict[str, float]:
    """The defaults for `hparams_seed` 0, else one draw from every declared distribution."""
    chosen = {}
    for parameter in objective.hyperparameters():
        setting = parameter.setting(preset)
        value = setting.default
        if hparams_seed and setting.distribution is not None:
            seed = seed_hash(seed_hash(hparams_seed, trial_seed), parameter.name)
            value = setting.distribution(np.random.RandomState(seed))
        chosen[parameter.name] = parameter.check(value)
    return chosen
