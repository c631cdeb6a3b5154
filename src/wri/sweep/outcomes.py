"""What a sweep knows of its data sets and of its finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from wri.errors import InputError, check_option
from wri.measures import MEASURES
from wri.training import ModelSpec

Values = Mapping[str, np.ndarray]
"""Split ("env0_in", "env0_out", "env1_in", …) to `[T]`."""


class Checkpoints(Protocol):
    """What a store keeps of a trained run."""

    @property
    def steps(self) -> np.ndarray: ...  # [T]

    @property
    def measures(self) -> Mapping[str, Values]: ...

    @property
    def diverged_at(self) -> int | None: ...


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What selections and tables need to know of a data set, and where its rows are."""

    name: str
    environments: tuple[str, ...]
    constant: Mapping[str, tuple[float, ...]]  # measure of the best constant, per environment
    held_back: tuple[float, ...]  # share of each environment's rows that is never trained on
    source: Mapping[str, str] = field(default_factory=dict)  # how `wri.sweep.data` finds it again


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """One run: what it is, and its measures at every checkpoint; none before it is finished.

    The split "env0_in" holds the rows of environment 0 that are trained on when it is not held out,
    "env0_out" the others. From the step at which a run diverged, values are NaN.
    """

    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]  # held out, ascending; two for leave-one-out
    hparams_seed: int
    trial_seed: int
    steps: np.ndarray  # [T]
    measures: Mapping[str, Values]
    diverged_at: int | None = None
    model: ModelSpec | None = None  # None where the records come from elsewhere

    def check(self, data: DatasetInfo | None) -> None:
        """Refuse measures that no run has: unknown ones, or not one value for each checkpoint."""
        if not isinstance(self.diverged_at, int | None):
            raise InputError("diverged_at must be a step")
        for measure, splits in self.measures.items():
            check_option("measure", measure, tuple(MEASURES))
            names = () if data is None else range(len(data.environments))
            lost = {f"env{e}_{part}" for e in names for part in ("in", "out")} - splits.keys()
            if lost or {len(values) for values in splits.values()} != {len(self.steps)}:
                raise InputError(f"{measure} lacks values of splits or checkpoints")
        if data is not None and not all(0 <= e < len(data.environments) for e in self.test_envs):
            raise InputError(f"{data.name} has no environments {self.test_envs}")
