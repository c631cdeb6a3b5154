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
from wri.sweep.data import SweepData, seed_hash
from wri.sweep.layers import LayerPlace, draw_width
from wri.sweep.outcomes import Outcome
from wri.sweep.selection import SELECTIONS
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
    fingerprint: str  # of the data
    model: ModelSpec
    test_envs: tuple[int, ...]
    hparams_seed: int = 0
    trial_seed: int = 0
    checkpoint_every: int = 10
    balanced: bool = False  # also measured on balanced rows, for the selection that needs them
    width: int | None = None  # of the feature layer, if there is one

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
        model = ModelSpec.from_dict(fields.pop("model"))
        run = cls(model=model, test_envs=tuple(fields.pop("test_envs")), **fields)
        numbers = [*run.test_envs, run.hparams_seed, run.trial_seed, run.checkpoint_every]
        numbers += [] if run.width is None else [run.width]
        if (
            {type(run.dataset), type(run.fingerprint)} != {str}
            or {*map(type, numbers)} != {int}
            or type(run.balanced) is not bool
        ):
            raise InputError("names must be texts, and environments and seeds whole numbers")
        return run

    @property
    def place(self) -> str:
        """Place of the run in a table; a store has one run per place."""
        return describe_place(self)

    @property
    def layer(self) -> LayerPlace | None:
        """Place of the feature layer that the run sees; None if there is none."""
        if self.width is None:
            return None
        return LayerPlace(self.dataset, self.trial_seed, self.test_envs, self.width)

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
    only_draws : tuple of int or None, default=None
        Numbers of the draws to use. None: all.

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
    only_draws: tuple[int, ...] | None = None

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
        # unknown presets and names, and values out of range, raise here
        known = {
            parameter.name
            for algorithm in self.algorithms
            for parameter in self._model(algorithm, {}).objective.hyperparameters()
        }
        for name in self.overrides or {}:
            if name not in known:
                raise InputError(
                    f"no algorithm here has {name!r}; hyper-parameters are "
                    f"{', '.join(sorted(known))}"
                )
        for algorithm in self.algorithms:
            self._overridden(self._model(algorithm, {}))

    @property
    def setting(self) -> dict[str, object]:
        """Settings that all runs of a store share."""
        return {
            "steps": self._model(self.algorithms[0], {}).steps,
            "checkpoint_every": self.checkpoint_every,
            "preset": self.preset,
            "hidden": None if self.hidden is None else list(self.hidden),
            "standardise": self.standardise,
            "overrides": dict(self.overrides or {}),
            "measures": None if self.measures is None else list(self.measures),
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
                width=None if data.layer is None else draw_width(data.layer, n, trial),
            )
            for data in datasets
            for algorithm in algorithms
            for trial in trials
            for n in (range(self.draws) if self.only_draws is None else self.only_draws)
            for held_out in self._held_out(data, algorithm)
        ]

    def _model(self, algorithm: str, hyper: Mapping[str, float]) -> ModelSpec:
        declared = OBJECTIVES[algorithm].hyperparameters() if algorithm in OBJECTIVES else ()
        of_steps = any(each.of_steps and each.name in (self.overrides or {}) for each in declared)
        model = ModelSpec.of(
            algorithm,
            preset=self.preset,
            hidden=self.hidden,
            standardise=self.standardise,
            steps=self.steps,
            hyper=hyper,
        )
        return model.in_steps() if of_steps or self.steps is not None else model

    def _drawn(
        self, algorithm: str, data: SweepData, held_out: Sequence[int], draw: int, trial: int
    ) -> ModelSpec:
        """Return an algorithm with the hyper-parameters of a draw."""
        plain = self._model(algorithm, {})
        sizes = data.training_sizes(held_out)
        layer = data.layer
        width = data.bank.features.shape[1] if layer is None else draw_width(layer, draw, trial)
        size = plain.fit_size(width, float(sum(sizes)), max(sizes))
        hyper = drawn_values(plain.objective, draw, trial, self.preset, size)
        if plain.is_solved:
            steps = {each.name for each in plain.objective.hyperparameters() if each.of_steps}
            hyper = {name: value for name, value in hyper.items() if name not in steps}
        return self._overridden(replace(plain, hyper=hyper))

    def _overridden(self, model: ModelSpec) -> ModelSpec:
        known = {parameter.name for parameter in model.objective.hyperparameters()}
        fixed = {name: v for name, v in (self.overrides or {}).items() if name in known}
        return replace(model, hyper={**model.hyper, **fixed})

    def _held_out(self, data: SweepData, algorithm: str) -> list[tuple[int, ...]]:
        every = range(len(data.names))
        chosen: Sequence[int] = every if self.test_envs is None else sorted(set(self.test_envs))
        for e in chosen:
            if e not in every:
                names = ", ".join(f"{n} ({name})" for n, name in enumerate(data.names))
                raise InputError(f"data set {data.name!r} has no environment {e}; it has {names}")
        paired = [name for name in self.selections if SELECTIONS[name].needs_pairs]
        least = OBJECTIVES[algorithm].least_environments
        if len(every) - (2 if paired else 1) < least:
            how = f"{paired[0]} holds out two" if paired else "a sweep holds out one"
            remedy = f"leave {algorithm}{f' or {paired[0]}' if paired else ''} out"
            raise InputError(
                f"{how} of the {len(every)} environments of {data.name!r}, but {algorithm} needs "
                f"{least} for training; {remedy}"
            )
        balanced = [name for name in self.selections if SELECTIONS[name].needs_balance]
        if balanced and len(every) - (2 if paired else 1) < 2:
            raise InputError(
                f"{balanced[0]} compares training environments, but of the {len(every)} of "
                f"{data.name!r} too few are left; leave it out"
            )
        singles: list[tuple[int, ...]] = [(e,) for e in chosen]
        if not paired:
            return singles
        return singles + [pair for pair in combinations(every, 2) if set(pair) & set(chosen)]
