"""What a sweep knows of its data sets and of its finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Described:
    """What selection and tables need to know of a data set."""

    name: str
    environments: tuple[str, ...]
    constant_accuracy: tuple[float, ...]  # of the best constant prediction in each environment
    held_back: tuple[float, ...]  # share of each environment's rows that is never trained on


@dataclass(frozen=True, eq=False)
class Outcome:
    """One run: what it is, and its accuracy at every checkpoint; none before it is finished.

    `accuracy` maps "env0_in", "env0_out", "env1_in", … to `[T]` in [0, 1]: the rows of each
    environment that are trained on when it is not held out, and the others. From the step at
    which a run diverged on it is NaN.
    """

    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]  # held out, ascending; two for leave-one-out
    hparams_seed: int
    trial_seed: int
    steps: np.ndarray  # [T]
    accuracy: Mapping[str, np.ndarray]
    diverged_at: int | None = None
