"""From what is asked for to runs: data sets × algorithms × held-out environments × draws × trials.

A run's id is a hash of all that decides its result, so the same question finds the same runs, and
one more algorithm or trial adds runs without touching the others. Splits and draws follow
DomainBed: in every environment a trial's shuffle holds out a fifth, and (hparams_seed, trial_seed,
name) decide a hyper-parameter.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from wri.errors import InputError, check_option
from wri.objectives import OBJECTIVES, make_objective
from wri.sweep.data import Data
from wri.sweep.selection import SELECTIONS
from wri.sweep.spaces import draw, seed_hash
from wri.training import Run

FORMAT = 2  # raised when equal questions no longer give equal results


@dataclass(frozen=True)
class Planned:
    """One run of a sweep: all that decides its result."""

    dataset: str
    fingerprint: str  # of the data
    algorithm: str
    test_envs: tuple[int, ...]
    hparams_seed: int
    trial_seed: int
    steps: int
    checkpoint_every: int
    preset: str
    objective: str  # with the options that the preset brings, written out
    hyper: Mapping[str, float]
    format: int = FORMAT

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.as_json().encode()).hexdigest()[:20]

    def as_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def place(self) -> str:
        """Where it stands in a table; a store has one run for each."""
        held_out = " and ".join(map(str, self.test_envs))
        return (
            f"{self.algorithm} on {self.dataset}, environment {held_out} held out, draw "
            f"{self.hparams_seed}, trial {self.trial_seed}"
        )

    @classmethod
    def from_json(cls, text: str) -> "Planned":
        fields = json.loads(text)
        if fields.get("format") != FORMAT:
            raise InputError(
                "this store was written by another version of wri, whose runs this one cannot "
                "compare with its own; read it with that version, or name another store"
            )
        return cls(**fields | {"test_envs": tuple(fields["test_envs"])})

    def run(self, data: Data, splits: Mapping[str, np.ndarray]) -> Run:
        """What is trained: the other environments' "in" rows; all splits are measured."""
        environments = range(len(data.names))
        train = [splits[f"env{e}_in"] for e in environments if e not in self.test_envs]
        numbers = (*self.test_envs, self.hparams_seed, self.trial_seed)
        seed = seed_hash(self.dataset, self.algorithm, *numbers)
        objective = make_objective(self.algorithm, self.preset)
        return Run(objective, data.bank, train, self.hyper, seed, splits, preset=self.preset)


@dataclass(frozen=True)
class Question:
    """What a sweep is asked for.

    Parameters
    ----------
    algorithms
        By their names.
    draws, trials
        Hyper-parameter draws (the first is the defaults) and repetitions of everything.
    steps, checkpoint_every
        Of each run.
    selections
        Which ways of choosing are wanted: leave-one-out needs runs with pairs held out.
    test_envs
        Which environments are held out, by number; all when not given.
    preset
        Where defaults and distributions of hyper-parameters come from.
    overrides
        Hyper-parameters that no run draws but all have.
    first_trial
        Number of the first trial; the others follow it.
    """

    algorithms: tuple[str, ...]
    draws: int = 1
    trials: int = 1
    steps: int = 500
    checkpoint_every: int = 10
    selections: tuple[str, ...] = ("training-domain",)
    test_envs: tuple[int, ...] | None = None
    preset: str = "domainbed"
    overrides: Mapping[str, float] | None = None
    first_trial: int = 0

    def __post_init__(self) -> None:
        for name in ("draws", "trials", "steps", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.first_trial < 0:
            raise InputError(f"first_trial must not be negative, not {self.first_trial}")
        if not self.algorithms:
            raise InputError(f"name at least one algorithm of {', '.join(OBJECTIVES)}")
        for algorithm in self.algorithms:
            make_objective(algorithm)
        for selection in self.selections:
            check_option("selection", selection, tuple(SELECTIONS))
        known = {
            parameter.name
            for algorithm in self.algorithms
            for parameter in OBJECTIVES[algorithm].hyperparameters()
        }
        for name in self.overrides or {}:
            if name not in known:
                raise InputError(
                    f"no algorithm here knows {name!r}; hyper-parameters are "
                    f"{', '.join(sorted(known))}"
                )
        for algorithm in self.algorithms:  # presets and values outside their range say so here
            self._hyper(algorithm, 0, 0)

    @property
    def setting(self) -> dict[str, object]:
        """What all runs of a store have in common."""
        return {
            "steps": self.steps,
            "checkpoint_every": self.checkpoint_every,
            "preset": self.preset,
            "overrides": dict(self.overrides or {}),
            "format": FORMAT,
        }

    def plan(self, datasets: Iterable[Data]) -> list[Planned]:
        """Every run that the wanted selections need, none twice."""
        planned = []
        for data in datasets:
            fingerprint = data.fingerprint
            for algorithm in dict.fromkeys(self.algorithms):
                for trial in range(self.first_trial, self.first_trial + self.trials):
                    for n in range(self.draws):
                        hyper = self._hyper(algorithm, n, trial)
                        planned += [
                            Planned(
                                data.name,
                                fingerprint,
                                algorithm,
                                held_out,
                                n,
                                trial,
                                self.steps,
                                self.checkpoint_every,
                                self.preset,
                                repr(make_objective(algorithm, self.preset)),
                                hyper,
                            )
                            for held_out in self._held_out(data, algorithm)
                        ]
        return planned

    def _hyper(self, algorithm: str, hparams_seed: int, trial_seed: int) -> dict[str, float]:
        objective = OBJECTIVES[algorithm]
        hyper = draw(objective, hparams_seed, trial_seed, self.preset)
        known = {parameter.name: parameter for parameter in objective.hyperparameters()}
        for name, value in (self.overrides or {}).items():
            if name in known:
                hyper[name] = known[name].check(value)
        return hyper

    def _held_out(self, data: Data, algorithm: str) -> list[tuple[int, ...]]:
        every = range(len(data.names))
        chosen: Sequence[int] = every if self.test_envs is None else sorted(set(self.test_envs))
        for e in chosen:
            if e not in every:
                names = ", ".join(f"{n} ({name})" for n, name in enumerate(data.names))
                raise InputError(f"data set {data.name!r} has no environment {e}; it has {names}")
        pairs = "leave-one-out" in self.selections
        least = OBJECTIVES[algorithm].least_environments
        if len(every) - (2 if pairs else 1) < least:
            how = "leave-one-out holds out two" if pairs else "a sweep holds out one"
            raise InputError(
                f"{how} of the {len(every)} environments of {data.name!r}, and {algorithm} needs "
                f"{least} to train on; leave {algorithm}{' or leave-one-out' if pairs else ''} out"
            )
        singles: list[tuple[int, ...]] = [(e,) for e in chosen]
        if not pairs:
            return singles
        return singles + [pair for pair in combinations(every, 2) if set(pair) & set(chosen)]
