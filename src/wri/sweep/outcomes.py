"""Descriptions of data sets and of finished runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from wri.errors import InputError, check_option
from wri.measures import MEASURES
from wri.training import ModelSpec
from wri.training.runs import RunResult


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """Description of a data set for selections and tables.

    Attributes
    ----------
    name : str
        Name of the data set.
    environments : tuple of str
        Names of the environments.
    constant : mapping of str to tuple of float
        Measure of the best constant predictor per environment.
    held_back : tuple of float
        Share of each environment's rows that is never used for training.
    source : mapping of str to str, default={}
        How `wri.sweep.data` finds the rows again.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import gather
    >>> info = gather("hospitals", hospitals(20, seed=0)).info
    >>> info.environments, info.held_back[0]
    (('north', 'east', 'south', 'west'), 0.2)
    """

    name: str
    environments: tuple[str, ...]
    constant: Mapping[str, tuple[float, ...]]  # measure of the best constant, per environment
    held_back: tuple[float, ...]  # share of each environment's rows that is never trained on
    source: Mapping[str, str] = field(default_factory=dict)  # how `wri.sweep.data` finds it again


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome(RunResult):
    """Results of one run at each checkpoint; none before it is finished.

    The split "env0_in" holds the rows of environment 0 that are used for training if it is not held
    out, "env0_out" the others. From the step of divergence on, values are NaN.

    Attributes
    ----------
    steps : ndarray of shape (T,)
        Steps of the checkpoints.
    measures : mapping of str to mapping of str to ndarray
        Values `[T]` by measure and split.
    diverged_at : int or None, default=None
        Step of divergence.
    dataset : str
        Name of the data set.
    algorithm : str
        Name of the algorithm.
    test_envs : tuple of int
        Held-out environments, ascending; two for leave-one-out.
    hparams_seed : int
        Number of the hyper-parameter draw.
    trial_seed : int
        Number of the trial.
    model : ModelSpec or None, default=None
        Specification; None for records of other programs.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.sweep import Outcome
    >>> run = Outcome(
    ...     dataset="toy",
    ...     algorithm="erm",
    ...     test_envs=(0,),
    ...     hparams_seed=0,
    ...     trial_seed=0,
    ...     steps=np.array([0, 9]),
    ...     measures={"accuracy": {"env0_in": np.array([0.5, 0.8])}},
    ... )
    >>> run.measures["accuracy"]["env0_in"].max()
    np.float64(0.8)
    """

    dataset: str
    algorithm: str
    test_envs: tuple[int, ...]  # held out, ascending; two for leave-one-out
    hparams_seed: int
    trial_seed: int
    diverged_at: int | None = None
    model: ModelSpec | None = None  # None where the records come from elsewhere

    def check(self, data: DatasetInfo | None) -> None:
        """Refuse measures that are unknown or incomplete.

        Parameters
        ----------
        data : DatasetInfo or None
            The data set, if it is known.

        Raises
        ------
        InputError
            If a measure is unknown, or values of splits or checkpoints are missing.
        """
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
