"""Plan of a sweep: data sets × algorithms × held-out environments × draws × trials.

The id of a run is a hash of all that determines its result, without the defaults of the preset. So
the same sweep finds the same runs, one more algorithm or trial adds runs and does not change the
others, and a new option does not invalidate old stores. Splits and draws follow DomainBed: in each
environment the shuffle of a trial holds out a fifth, and (hparams_seed, trial_seed, name) determine
a hyper-parameter.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from wri.errors import InputError, check_option
from wri.objectives import OBJECTIVES, Objective
from wri.objectives.hyperparameters import FitSize, complete
from wri.presets import FALLBACK
from wri.sweep.data import SweepData, draw_width, seed_hash
from wri.sweep.selection import SELECTIONS, Outcome
from wri.training import ModelSpec, Run

FORMAT = 8
"""Increased when equal sweeps no longer give equal results; see `tests/sweep/test_golden.py`."""

MOST_RUNS = 1_000_000


def run_seed(
    dataset: str, algorithm: str, test_envs: Sequence[int], hparams_seed: int, trial_seed: int
) -> int:
    """Return the seed of a run's initial weights and batches, from its place in a table.

    Parameters
    ----------
    dataset : str
        Name of the data set, with the place of the feature layer if there is one.
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


def run_place(run: "RunSpec | Outcome") -> tuple[str, str, tuple[int, ...], int, int]:
    """Return what is unique to a run of a store, the arguments of `run_seed`."""
    return run.dataset, run.algorithm, run.test_envs, run.hparams_seed, run.trial_seed


def describe_place(run: "RunSpec | Outcome") -> str:
    """Name a run by its place in a table."""
    held_out = " and ".join(map(str, run.test_envs))
    return (
        f"{run.algorithm} on {run.dataset}, environment {held_out} held out, draw "
        f"{run.hparams_seed}, trial {run.trial_seed}"
    )


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


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run of a sweep: all that determines its result.

    Parameters
    ----------
    dataset : str
        Name of the data set.
    fingerprint : str
        Hash of its rows.
    model : ModelSpec
        What is trained.
    test_envs : tuple of int
        Held-out environments.
    hparams_seed : int, default=0
        Number of the hyper-parameter draw.
    trial_seed : int, default=0
        Number of the trial.
    checkpoint_every : int, default=10
        Steps between checkpoints.
    balanced : bool, default=False
        Whether balanced rows are measured too, for the selection "invariance".
    width : int or None, default=None
        Number of features of the feature layer. None: there is no layer.

    Examples
    --------
    >>> from wri.sweep import RunSpec
    >>> from wri.training import ModelSpec
    >>> run = RunSpec(dataset="toy", fingerprint="0", model=ModelSpec.of("erm"), test_envs=(1,))
    >>> run.place
    'erm on toy, environment 1 held out, draw 0, trial 0'
    """

    dataset: str
    fingerprint: str
    model: ModelSpec
    test_envs: tuple[int, ...]
    hparams_seed: int = 0
    trial_seed: int = 0
    checkpoint_every: int = 10
    balanced: bool = False
    width: int | None = None

    @cached_property
    def id(self) -> str:
        """Hash of all that determines the result."""
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:20]

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self.model.objective.name

    def as_json(self) -> str:
        """Return what differs from the defaults as JSON.

        Returns
        -------
        text : str
            JSON object.
        """
        fields: dict[str, Any] = {
            "format": FORMAT,
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "model": self.model.differences(),
            "test_envs": list(self.test_envs),
        }
        for name in ("hparams_seed", "trial_seed", "checkpoint_every", "balanced", "width"):
            if getattr(self, name) != RunSpec.__dataclass_fields__[name].default:
                fields[name] = getattr(self, name)
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """Make a run from the result of `as_json`.

        Parameters
        ----------
        text : str
            JSON object.

        Returns
        -------
        run : RunSpec
            The run.

        Raises
        ------
        InputError
            If the text is of another version or damaged.
        """
        fields = dict(json.loads(text))
        if fields.pop("format", None) != FORMAT:
            raise InputError(
                "this store was written by another version of wri, whose runs cannot be compared "
                "with those of this one; read it with that version, or name another store"
            )
        model, test_envs = ModelSpec.from_dict(fields.pop("model")), fields.pop("test_envs")
        return cls(model=model, test_envs=tuple(test_envs), **fields)

    @property
    def place(self) -> str:
        """Place of the run in a table; a store has one run per place."""
        return describe_place(self)

    @property
    def layer(self) -> tuple[str, int, tuple[int, ...], int] | None:
        """Data set, trial, held-out environments and width of the run's feature layer, if any."""
        if self.width is None:
            return None
        return self.dataset, self.trial_seed, self.test_envs, self.width

    def run(self, data: SweepData, splits: Mapping[str, np.ndarray]) -> Run:
        """Make the run: trained on the "in" rows of the other environments, measured on all splits.

        Parameters
        ----------
        data : SweepData
            The data set, behind the run's feature layer if it has one.
        splits : mapping of str to ndarray of int
            Rows by split.

        Returns
        -------
        run : Run
            The run.
        """
        environments = range(len(data.names))
        train = [splits[f"env{e}_in"] for e in environments if e not in self.test_envs]
        seed = run_seed(
            data.name, self.algorithm, self.test_envs, self.hparams_seed, self.trial_seed
        )
        return Run(self.model, data.bank, train, seed=seed, evaluate=splits)


@dataclass(frozen=True)
class SweepSpec:
    """Specification of a sweep.

    Parameters
    ----------
    algorithms : tuple of str
        Names of algorithms.
    draws : int, default=1
        Number of hyper-parameter draws; the first is the defaults.
    trials : int, default=1
        Number of repetitions.
    steps : int or None, default=None
        Steps per run. None: by the preset, whose linear predictors may be solved without steps.
    checkpoint_every : int, default=10
        Steps between checkpoints.
    selections : tuple of str, default=("training-domain",)
        Selection methods; some need runs with pairs held out.
    test_envs : tuple of int or None, default=None
        Numbers of the environments to hold out. None: all, in turn.
    preset : str, default="domainbed"
        Preset of defaults and distributions.
    hidden : tuple of int or None, default=None
        Hidden layers of all runs. None: by the preset.
    standardise : bool or None, default=None
        Whether all runs standardise. None: by the preset.
    overrides : mapping of str to float or None, default=None
        Hyper-parameters with the same value in all runs, not drawn.
    first_trial : int, default=0
        Number of the first trial; the others follow.
    measures : tuple of str or None, default=None
        Recorded measures. None: all that the targets allow.

    Raises
    ------
    InputError
        If a name is unknown or a number is out of range.

    Examples
    --------
    >>> from wri.datasets import hospitals
    >>> from wri.sweep import SweepSpec, gather
    >>> spec = SweepSpec(("erm", "wri"), trials=3)
    >>> len(spec.plan([gather("hospitals", hospitals(20, seed=0))]))
    24
    """

    algorithms: tuple[str, ...]
    _: KW_ONLY
    draws: int = 1
    trials: int = 1
    steps: int | None = None
    checkpoint_every: int = 10
    selections: tuple[str, ...] = ("training-domain",)
    test_envs: tuple[int, ...] | None = None
    preset: str = FALLBACK
    hidden: tuple[int, ...] | None = None
    standardise: bool | None = None
    overrides: Mapping[str, float] | None = None
    first_trial: int = 0
    measures: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("draws", "trials", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.first_trial < 0:
            raise InputError(f"first_trial must not be negative, not {self.first_trial}")
        if not self.algorithms:
            raise InputError(f"name at least one algorithm of {', '.join(OBJECTIVES)}")
        for selection in self.selections:
            check_option("selection", selection, tuple(SELECTIONS))
        known = {  # unknown presets and names, and values out of range, raise here
            parameter.name
            for algorithm in self.algorithms
            for parameter in self._model(algorithm).objective.hyperparameters()
        }
        if unknown := sorted((self.overrides or {}).keys() - known):
            raise InputError(
                f"no algorithm here has {unknown[0]!r}; hyper-parameters are "
                f"{', '.join(sorted(known))}"
            )

    @property
    def setting(self) -> dict[str, object]:
        """Settings that all runs of a store share."""
        as_given = ("checkpoint_every", "preset", "hidden", "standardise", "measures")
        return {
            **{name: getattr(self, name) for name in as_given},
            "steps": self._model(self.algorithms[0]).steps,
            "overrides": dict(self.overrides or {}),
            "format": FORMAT,
        }

    def plan(self, datasets: Iterable[SweepData]) -> list[RunSpec]:
        """Return all runs that the selections need, each once.

        Parameters
        ----------
        datasets : iterable of SweepData
            Data sets.

        Returns
        -------
        runs : list of RunSpec
            The runs.

        Raises
        ------
        InputError
            If there are too many runs or too few environments.
        """
        datasets = list(datasets)
        algorithms = tuple(dict.fromkeys(self.algorithms))
        places = sum(len(self._held_out(data, name)) for data in datasets for name in algorithms)
        runs = places * self.draws * self.trials  # counted before any is made
        if runs > MOST_RUNS:
            raise InputError(
                f"this sweep has {runs:,} runs, but a store holds at most {MOST_RUNS:,} runs; use "
                "fewer trials, draws, algorithms or held-out environments"
            )
        trials = range(self.first_trial, self.first_trial + self.trials)
        balanced = any(SELECTIONS[name].needs_balance for name in self.selections)
        return [
            RunSpec(
                dataset=data.name,
                fingerprint=data.fingerprint,
                model=self._drawn(algorithm, data, held_out, n, trial),
                test_envs=held_out,
                hparams_seed=n,
                trial_seed=trial,
                checkpoint_every=self.checkpoint_every,
                balanced=balanced,
                width=draw_width(data.layer, n, trial),
            )
            for data in datasets
            for algorithm in algorithms
            for trial in trials
            for n in range(self.draws)
            for held_out in self._held_out(data, algorithm)
        ]

    def _model(self, algorithm: str) -> ModelSpec:
        """Return an algorithm with the preset's defaults and the overrides."""
        model = ModelSpec.of(
            algorithm,
            preset=self.preset,
            hidden=self.hidden,
            standardise=self.standardise,
            steps=self.steps,
        )
        given = self.overrides or {}
        fixed = [each for each in model.objective.hyperparameters() if each.name in given]
        model = replace(model, hyper={each.name: given[each.name] for each in fixed})
        in_steps = self.steps is not None or any(each.of_steps for each in fixed)
        return model.in_steps() if in_steps else model

    def _drawn(
        self, algorithm: str, data: SweepData, held_out: Sequence[int], draw: int, trial: int
    ) -> ModelSpec:
        """Return an algorithm with the hyper-parameters of a draw."""
        model, sizes = self._model(algorithm), data.training_sizes(held_out)
        width = draw_width(data.layer, draw, trial) or data.bank.features.shape[1]
        size = model.fit_size(width, float(sum(sizes)), max(sizes))
        hyper = drawn_values(model.objective, draw, trial, self.preset, size)
        if model.is_solved:
            for parameter in model.objective.hyperparameters():
                if parameter.of_steps:
                    hyper.pop(parameter.name, None)
        return replace(model, hyper={**hyper, **model.hyper})

    def _held_out(self, data: SweepData, algorithm: str) -> list[tuple[int, ...]]:
        every = range(len(data.names))
        chosen: Sequence[int] = every if self.test_envs is None else sorted(set(self.test_envs))
        for e in chosen:
            if e not in every:
                names = ", ".join(f"{n} ({name})" for n, name in enumerate(data.names))
                raise InputError(f"data set {data.name!r} has no environment {e}; it has {names}")
        paired = [name for name in self.selections if SELECTIONS[name].needs_pairs]
        balanced = [name for name in self.selections if SELECTIONS[name].needs_balance]
        needed = {algorithm: OBJECTIVES[algorithm].least_environments, **dict.fromkeys(balanced, 2)}
        for name, least in needed.items():
            if len(every) - (2 if paired else 1) < least:
                how = f"{paired[0]} holds out two" if paired else "a sweep holds out one"
                raise InputError(
                    f"{how} of the {len(every)} environments of {data.name!r}, but {name} needs "
                    f"{least} for training; leave {' or '.join([name, *paired])} out"
                )
        singles: list[tuple[int, ...]] = [(e,) for e in chosen]
        pairs = [pair for pair in combinations(every, 2) if set(pair) & set(chosen)]
        return singles + (pairs if paired else [])
