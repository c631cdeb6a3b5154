"""Selection of the hyper-parameter draw and the checkpoint that count as the result.

Each method gives each checkpoint a value of the measure, times its sign so that larger is better,
and NaN if the checkpoint must not be chosen. The best checkpoint of a run represents its draw, and
the best draw is shown, by the measure on the *in* rows of the environment held out (Gulrajani &
Lopez-Paz, 2021). Among equal values the first counts: the smallest draw, then the smallest step. A
run that diverged is never chosen, even if it was good before.

A table shows the choice of each held-out environment and trial. For use one specification is
needed, which is then trained on all environments:

    value of (model, step) = mean over held-out environments and trials of the selection's value

A model must have run with every environment held out.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from wri.errors import InputError, check_option
from wri.measures import MEASURES
from wri.presets import PRESETS
from wri.training import ModelSpec
from wri.training.runs import RunResult

ROUNDING = 1e-6
"""Rounding of the measure of a constant predictor in single precision."""


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
    constant: Mapping[str, tuple[float, ...]]
    held_back: tuple[float, ...]
    source: Mapping[str, str] = field(default_factory=dict)


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
    test_envs: tuple[int, ...]
    hparams_seed: int
    trial_seed: int
    diverged_at: int | None = None
    model: ModelSpec | None = None


@dataclass(frozen=True, kw_only=True)
class SelectedCheckpoint:
    """Selected checkpoint of one trial, with the measure on each split.

    Attributes
    ----------
    hparams_seed : int
        Number of the draw.
    step : int
        Step, counted from 0.
    value : float
        Value by which it was chosen.
    score : float
        Measure on the "in" rows of the environment held out.
    splits : mapping of str to float
        Measure by split: "env0_in", "env0_out", …
    model : ModelSpec or None, default=None
        Specification, if it is known.

    Examples
    --------
    >>> from wri.sweep import SelectedCheckpoint
    >>> chosen = SelectedCheckpoint(hparams_seed=0, step=9, value=0.8, score=0.7, splits={})
    >>> chosen.step
    9
    """

    hparams_seed: int
    step: int
    value: float
    score: float
    splits: Mapping[str, float]
    model: ModelSpec | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """Run with the values that a selection uses."""

    run: Outcome
    held_out: int
    data: DatasetInfo
    pairs: Sequence[Outcome]  # the same draw with one more environment held out
    measure: str

    def values(self, environment: int, rows: str, run: Outcome | None = None) -> np.ndarray:  # [T]
        """Return the measure times its sign, on the rows "in" or "out" of an environment."""
        found = (run or self.run).measures[self.measure][f"env{environment}_{rows}"]
        return MEASURES[self.measure].sign * np.asarray(found, float)

    @property
    def others(self) -> list[int]:
        """Numbers of the training environments."""
        return _others(self.held_out, self.data)


def training_domain(candidate: Candidate) -> np.ndarray:  # [T]
    """Return the mean over the training environments on their out rows."""
    return np.mean([candidate.values(k, "out") for k in candidate.others], axis=0)


def leave_one_out(candidate: Candidate) -> np.ndarray:  # [T]
    """Return the mean over v on the in rows of environment v when v is held out as well."""
    validation = []
    for v, pair in zip(candidate.others, candidate.pairs, strict=True):
        values = candidate.values(v, "in", pair)
        at_step = dict(zip(pair.steps.tolist(), values, strict=True))
        validation.append([at_step.get(step, np.nan) for step in candidate.run.steps.tolist()])
    return np.mean(validation, axis=0)  # [V, T] -> [T]


def oracle(candidate: Candidate) -> np.ndarray:  # [T]
    """Return the measure on the out rows of the held-out environment, at the last step only."""
    steps = candidate.run.steps
    return np.where(steps == steps.max(), candidate.values(candidate.held_out, "out"), np.nan)


def oracle_early(candidate: Candidate) -> np.ndarray:  # [T]
    """Return the measure on the out rows of the held-out environment."""
    return candidate.values(candidate.held_out, "out")


def guarded_oracle(candidate: Candidate) -> np.ndarray:  # [T]
    """Return `oracle_early` where the constant predictor is beaten in all training environments."""
    splits = candidate.run.measures[candidate.measure]
    beaten = [
        beats_constant(splits, k, candidate.data, candidate.measure) for k in candidate.others
    ]  # [E − 1, T]
    return np.where(np.all(beaten, axis=0), oracle_early(candidate), np.nan)


def invariance(candidate: Candidate) -> np.ndarray:  # [T]
    """Return the worst training environment on balanced held-back rows (`balance`)."""
    return np.min([candidate.values(k, "balanced") for k in candidate.others], axis=0)


class Selection(NamedTuple):
    """Selection method."""

    description: str
    values: Callable[[Candidate], np.ndarray]
    needs_pairs: bool = False
    needs_balance: bool = False


SELECTIONS = {
    "training-domain": Selection(
        "best checkpoint on held-back rows of the training environments", training_domain
    ),
    "leave-one-out": Selection(
        "best checkpoint on training environments that are left out in turn",
        leave_one_out,
        needs_pairs=True,
    ),
    "invariance": Selection(
        "best checkpoint in the worst training environment, on held-back rows that are weighted so "
        "that features whose relation to the label changes no longer predict the label",
        invariance,
        needs_balance=True,
    ),
    "oracle": Selection(
        "last checkpoint, draw chosen on held-back rows of the test environment", oracle
    ),
    "oracle-early": Selection(
        "best checkpoint on held-back rows of the test environment", oracle_early
    ),
    "guarded-oracle": Selection(
        "as oracle-early, if it beats the constant predictor in every training environment",
        guarded_oracle,
    ),
}


def choose(
    selection: str,
    outcomes: Iterable[Outcome],
    data: DatasetInfo,
    *,
    algorithm: str,
    held_out: int,
    trial_seed: int,
    measure: str = "accuracy",
) -> SelectedCheckpoint | str:
    """Choose the checkpoint that counts for one trial of an algorithm.

    Parameters
    ----------
    selection : str
        Name in `SELECTIONS`.
    outcomes : iterable of Outcome
        Finished runs; those of other data sets, algorithms and trials are ignored.
    data : DatasetInfo
        The data set.
    algorithm : str
        Name of the algorithm.
    held_out : int
        Number of the test environment.
    trial_seed : int
        Number of the trial.
    measure : str, default="accuracy"
        Name in `wri.measures`, by which the choice is made and shown.

    Returns
    -------
    choice : SelectedCheckpoint or str
        The checkpoint, or the reason why there is none.

    References
    ----------
    I. Gulrajani and D. Lopez-Paz, "In Search of Lost Domain Generalization", ICLR, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.sweep import DatasetInfo, Outcome, choose
    >>> data = DatasetInfo(name="toy", environments=("a", "b"), constant={}, held_back=(0.2, 0.2))
    >>> values = {"env0_in": [0.5, 0.6], "env0_out": [0.5, 0.5], "env1_out": [0.9, 0.8]}
    >>> splits = {name: np.array(column) for name, column in values.items()}
    >>> run = Outcome(
    ...     dataset="toy",
    ...     algorithm="erm",
    ...     test_envs=(0,),
    ...     hparams_seed=0,
    ...     trial_seed=0,
    ...     steps=np.array([0, 9]),
    ...     measures={"accuracy": splits},
    ... )
    >>> found = choose("training-domain", [run], data, algorithm="erm", held_out=0, trial_seed=0)
    >>> found.step, found.score
    (0, 0.5)
    """
    found = candidates(selection, outcomes, data, algorithm, held_out, trial_seed, measure)
    if isinstance(found, str):
        return found
    values = {n: selected_values(selection, found[n]) for n in sorted(found)}  # [T] each
    draw = max(values, key=lambda n: values[n].max())  # the first of equals
    at, run = int(values[draw].argmax()), found[draw].run
    if values[draw][at] == -np.inf:
        return f"no checkpoint qualifies for {selection}"
    splits = {name: float(column[at]) for name, column in run.measures[measure].items()}
    return SelectedCheckpoint(
        hparams_seed=draw,
        step=int(run.steps[at]),
        value=float(MEASURES[measure].sign * values[draw][at]),
        score=splits[f"env{held_out}_in"],
        splits=splits,
        model=run.model,
    )


def selected_values(selection: str, candidate: Candidate) -> np.ndarray:  # [T]
    """Return the values of a selection; −∞ for checkpoints that must not be chosen."""
    score = candidate.values(candidate.held_out, "in")
    values = SELECTIONS[selection].values(candidate)
    admitted = np.isfinite(values) & np.isfinite(score)
    model, steps = candidate.run.model, candidate.run.steps
    if model is not None and PRESETS[model.preset].waits_for_penalty:
        # checkpoints before the penalty has its full weight do not count
        admitted &= (steps >= model.full_penalty_at) | (steps == steps.max())
    return np.where(admitted, values, -np.inf)


def candidates(
    selection: str,
    outcomes: Iterable[Outcome],
    data: DatasetInfo,
    algorithm: str,
    held_out: int,
    trial_seed: int,
    measure: str,
) -> dict[int, Candidate] | str:
    """Return the draws of a trial that did not diverge, or the reason for none."""
    check_option("selection", selection, tuple(SELECTIONS))
    runs: dict[tuple[int, ...], dict[int, Outcome]] = {}  # by test_envs, then by draw
    for run in outcomes:
        if (run.dataset, run.algorithm, run.trial_seed) == (data.name, algorithm, trial_seed):
            runs.setdefault(run.test_envs, {})[run.hparams_seed] = run
    draws = runs.get((held_out,), {})
    if not draws:
        return f"no run of {algorithm} with {data.environments[held_out]} held out"
    pairs: list[tuple[int, ...]] = []
    if SELECTIONS[selection].needs_pairs:
        if len(data.environments) < 3:
            return f"{selection} needs at least three environments"
        pairs = [(min(held_out, v), max(held_out, v)) for v in _others(held_out, data)]
        absent = {pair: draws.keys() - runs.get(pair, {}).keys() for pair in pairs}
        if lost := set[int]().union(*absent.values()):
            named = ", ".join(f"{{{a}, {b}}}" for (a, b), missing in absent.items() if missing)
            where = "" if len(lost) == len(draws) else f" in {len(lost)} of {len(draws)} draws"
            return f"pairs {named} are missing for {selection}{where}"
    needed = {(held_out,), *pairs}
    waiting = {n for envs in needed for n, run in runs[envs].items() if len(run.steps) == 0}
    if waiting:
        return f"{len(waiting)} of {len(draws)} draws are not finished"
    if SELECTIONS[selection].needs_balance:
        wanted = {f"env{k}_balanced" for k in _others(held_out, data)}
        if not all(wanted <= run.measures[measure].keys() for run in draws.values()):
            return f"the runs have no balanced rows; name {selection} when you sweep"
    found = {}
    for draw, run in draws.items():
        own = [runs[pair][draw] for pair in pairs]
        if not any(map(_has_diverged, (run, *own))):
            found[draw] = Candidate(
                run=run, held_out=held_out, data=data, pairs=own, measure=measure
            )
    if found:
        return found
    if all(_has_diverged(run) for run in draws.values()):
        return "all runs diverged"
    return f"every draw has a diverged run that {selection} needs"


def beats_constant(
    splits: Mapping[str, np.ndarray] | Mapping[str, float],
    environment: int,
    data: DatasetInfo,
    measure: str = "accuracy",
) -> np.ndarray:
    """Return whether a measure beats that of the constant predictor on all rows.

    Parameters
    ----------
    splits : mapping of str to ndarray or float
        Measure of all checkpoints or of one, by split.
    environment : int
        Number of the environment.
    data : DatasetInfo
        The data set.
    measure : str, default="accuracy"
        Name in `wri.measures`.

    Returns
    -------
    beats : ndarray of bool
        One value per checkpoint.

    Examples
    --------
    >>> from wri.sweep import DatasetInfo, beats_constant
    >>> constant = {"accuracy": (0.6, 0.6)}
    >>> data = DatasetInfo(
    ...     name="toy", environments=("a", "b"), constant=constant, held_back=(0.2, 0.2)
    ... )
    >>> bool(beats_constant({"env0_in": 0.7, "env0_out": 0.7}, 0, data))
    True
    """
    inside, outside = (np.asarray(splits[f"env{environment}_{k}"], float) for k in ("in", "out"))
    share = data.held_back[environment]
    whole = (1 - share) * inside + share * outside
    sign = MEASURES[measure].sign
    return sign * whole > sign * data.constant[measure][environment] + ROUNDING


def _others(held_out: int, data: DatasetInfo) -> list[int]:
    return [k for k in range(len(data.environments)) if k != held_out]


def _has_diverged(run: Outcome) -> bool:
    """Return whether a run diverged or has no finite value."""
    columns = [column for splits in run.measures.values() for column in splits.values()]
    return run.diverged_at is not None or not any(np.isfinite(c).any() for c in columns)


@dataclass(frozen=True, kw_only=True)
class BestModel:
    """Best model of a sweep, to be trained on all environments.

    Attributes
    ----------
    dataset : str
        Name of the data set.
    algorithm : str
        Name of the algorithm.
    selection : str
        Selection method.
    measure : str
        Measure of the selection.
    draw : int
        Number of the hyper-parameter draw.
    step : int
        Step, counted from 0.
    value : float
        Mean of the selection's values.
    model : ModelSpec
        Specification that stops after the step.

    Examples
    --------
    >>> from wri.sweep import BestModel
    >>> from wri.training import ModelSpec
    >>> best = BestModel(
    ...     dataset="hospitals",
    ...     algorithm="erm",
    ...     selection="training-domain",
    ...     measure="accuracy",
    ...     draw=0,
    ...     step=9,
    ...     value=0.8,
    ...     model=ModelSpec.of("erm", steps=10),
    ... )
    >>> best.model.last_step
    10
    """

    dataset: str
    algorithm: str
    selection: str
    measure: str
    draw: int
    step: int
    value: float
    model: ModelSpec


def best_model(
    outcomes: Iterable[Outcome], data: DatasetInfo, algorithm: str, selection: str, measure: str
) -> BestModel:
    """Find the model and step with the best mean over held-out environments and trials.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Runs of a store.
    data : DatasetInfo
        The data set.
    algorithm : str
        Algorithm whose draws are compared.
    selection : str
        Name in `SELECTIONS`.
    measure : str
        Name in `wri.measures`.

    Returns
    -------
    best : BestModel
        The best model.

    Raises
    ------
    InputError
        If no checkpoint can be chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.sweep import DatasetInfo, Outcome, best_model
    >>> from wri.training import ModelSpec
    >>> data = DatasetInfo(name="toy", environments=("a", "b"), constant={}, held_back=(0.2, 0.2))
    >>> splits = {f"env{e}_{part}": np.array([0.6, 0.7]) for e in (0, 1) for part in ("in", "out")}
    >>> runs = [
    ...     Outcome(
    ...         dataset="toy",
    ...         algorithm="erm",
    ...         test_envs=(e,),
    ...         hparams_seed=0,
    ...         trial_seed=0,
    ...         steps=np.array([0, 9]),
    ...         measures={"accuracy": splits},
    ...         model=ModelSpec.of("erm", steps=10),
    ...     )
    ...     for e in (0, 1)
    ... ]
    >>> best_model(runs, data, "erm", "training-domain", "accuracy").step
    9
    """
    runs = [run for run in outcomes if (run.dataset, run.algorithm) == (data.name, algorithm)]
    if not runs:
        raise InputError(f"there is no run of {algorithm} on {data.name}")
    held_out = sorted({run.test_envs[0] for run in runs if len(run.test_envs) == 1})
    tried: dict[str, list[Candidate]] = {}  # by model, each held-out environment and trial
    for trial in sorted({run.trial_seed for run in runs}):
        for k in held_out:
            found = candidates(selection, runs, data, algorithm, k, trial, measure)
            if isinstance(found, str):
                raise InputError(
                    f"{algorithm} on {data.name}, {data.environments[k]} held out, trial {trial}: "
                    f"{found}"
                )
            for each in found.values():
                model = each.run.model
                key = json.dumps(model.differences(), sort_keys=True) if model else ""
                tried.setdefault(key, []).append(each)
    whole = [own for own in tried.values() if {each.held_out for each in own} == {*held_out}]
    best, at, run = -np.inf, 0, runs[0]
    for own in sorted(whole, key=lambda own: own[0].run.hparams_seed):
        values = np.mean([selected_values(selection, each) for each in own], axis=0)  # [T]
        if values.max() > best:
            best, at, run = values.max(), int(values.argmax()), own[0].run
    if best == -np.inf or run.model is None:
        raise InputError(f"{algorithm} on {data.name}: no checkpoint qualifies for {selection}")
    step = int(run.steps[at])
    is_last = step + 1 == run.model.last_step
    return BestModel(
        dataset=data.name,
        algorithm=algorithm,
        selection=selection,
        measure=measure,
        draw=run.hparams_seed,
        step=step,
        value=float(MEASURES[measure].sign * best),
        model=run.model if is_last else replace(run.model, stop_after=step + 1),
    )
