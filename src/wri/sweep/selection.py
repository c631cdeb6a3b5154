"""Which draw of the hyper-parameters, and which checkpoint of its run, counts as the result.

Every method gives each checkpoint a value of the chosen measure, times its sign so that more is
better, and NaN where the checkpoint may not be chosen. The best checkpoint of a run stands for its
draw and the best draw is shown, by the measure on the *in* rows of the environment held out
(Gulrajani & Lopez-Paz, 2021). Among equals the first counts: the smallest draw, then the smallest
step. A run that diverged is never chosen, however good it was before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wri.errors import check_option
from wri.measures import MEASURES
from wri.presets import PRESETS
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.training import ModelSpec

ROUNDING = 1e-6
"""What single precision may add to the measure of a constant predictor."""


@dataclass(frozen=True, kw_only=True)
class SelectedCheckpoint:
    """The checkpoint that counts for one trial, with the measure on every split."""

    hparams_seed: int
    step: int
    value: float  # by which it was chosen
    score: float  # of the environment held out, "in" rows
    splits: Mapping[str, float]  # "env0_in", "env0_out", …
    model: ModelSpec | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate:
    """A run with what a selection looks at."""

    run: Outcome
    held_out: int
    data: DatasetInfo
    pairs: Sequence[Outcome]  # the same draw with one more environment held out
    measure: str = "accuracy"

    def values(self, environment: int, rows: str, run: Outcome | None = None) -> np.ndarray:  # [T]
        """The measure times its sign, on the rows "in" or "out" of an environment."""
        found = (run or self.run).measures[self.measure][f"env{environment}_{rows}"]
        return MEASURES[self.measure].sign * np.asarray(found, float)

    @property
    def others(self) -> list[int]:
        """The training environments."""
        return _others(self.held_out, self.data)


def training_domain(candidate: Candidate) -> np.ndarray:  # [T]
    """Mean over the training environments on their out rows."""
    return np.mean([candidate.values(k, "out") for k in candidate.others], axis=0)


def leave_one_out(candidate: Candidate) -> np.ndarray:  # [T]
    """Mean over v on the in rows of environment v when v is held out as well."""
    validation = []
    for v, pair in zip(candidate.others, candidate.pairs, strict=True):
        values = candidate.values(v, "in", pair)
        at_step = dict(zip(pair.steps.tolist(), values, strict=True))
        validation.append([at_step.get(step, np.nan) for step in candidate.run.steps.tolist()])
    return np.mean(validation, axis=0)  # [V, T] -> [T]


def oracle(candidate: Candidate) -> np.ndarray:  # [T]
    """On the out rows of the environment held out, at the last step only."""
    steps = candidate.run.steps
    return np.where(steps == steps.max(), candidate.values(candidate.held_out, "out"), np.nan)


def oracle_early(candidate: Candidate) -> np.ndarray:  # [T]
    """On the out rows of the environment held out."""
    return candidate.values(candidate.held_out, "out")


def guarded_oracle(candidate: Candidate) -> np.ndarray:  # [T]
    """As `oracle_early`, where the constant predictor is beaten in every training environment."""
    splits = candidate.run.measures[candidate.measure]
    beaten = [
        beats_constant(splits, k, candidate.data, candidate.measure) for k in candidate.others
    ]  # [E − 1, T]
    return np.where(np.all(beaten, axis=0), oracle_early(candidate), np.nan)


def invariance(candidate: Candidate) -> np.ndarray:  # [T]
    """Worst training environment, on held-back rows that are balanced (`balance`)."""
    return np.min([candidate.values(k, "balanced") for k in candidate.others], axis=0)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A way to choose."""

    description: str
    values: Callable[[Candidate], np.ndarray]
    needs_pairs: bool = False
    needs_balance: bool = False
    refusal: str = "no checkpoint has all the values that the selection needs"


SELECTIONS = {
    "training-domain": Selection(
        description="best checkpoint on held-back rows of the training environments",
        values=training_domain,
    ),
    "leave-one-out": Selection(
        description="best checkpoint on training environments that are left out in turn",
        values=leave_one_out,
        needs_pairs=True,
    ),
    "invariance": Selection(
        description="best checkpoint in the worst training environment, on held-back rows that are "
        "balanced so that what goes with the label here or there no longer tells it",
        values=invariance,
        needs_balance=True,
    ),
    "oracle": Selection(
        description="last checkpoint, draw chosen on held-back rows of the test environment",
        values=oracle,
    ),
    "oracle-early": Selection(
        description="best checkpoint on held-back rows of the test environment", values=oracle_early
    ),
    "guarded-oracle": Selection(
        description="as oracle-early, if it beats the constant predictor in every training "
        "environment",
        values=guarded_oracle,
        refusal="no checkpoint beats the constant predictor in every training environment",
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
    ties: Literal["first", "last"] = "first",
) -> SelectedCheckpoint | str:
    """Choose the checkpoint that counts for one trial of an algorithm.

    Parameters
    ----------
    selection : str
        A name in `SELECTIONS`.
    outcomes : iterable of Outcome
        Finished runs; those of other data sets, algorithms and trials are passed over.
    data : DatasetInfo
        The data set.
    algorithm : str
    held_out : int
        Index of the test environment.
    trial_seed : int
    measure : str
        A name in `wri.measures`, by which the choice is made and shown.
    ties : str
        Which of equally good draws counts: the "first", or DomainBed's choice, the "last".

    Returns
    -------
    Choice or str
        The choice, or the reason why there is none.
    """
    found = candidates(
        selection,
        outcomes,
        data,
        algorithm=algorithm,
        held_out=held_out,
        trial_seed=trial_seed,
        measure=measure,
    )
    if isinstance(found, str):
        return found
    best: SelectedCheckpoint | None = None
    sign = MEASURES[measure].sign
    for _, candidate in sorted(found.items()):
        values = selected_values(selection, candidate)  # [T]
        at = int(values.argmax())
        least = -np.inf if best is None else sign * best.value
        if values[at] > least or (ties == "last" and values[at] == least > -np.inf):
            best = _make_choice(candidate, at, float(sign * values[at]))
    return SELECTIONS[selection].refusal if best is None else best


def _make_choice(candidate: Candidate, at: int, value: float) -> SelectedCheckpoint:
    run, measure = candidate.run, candidate.measure
    splits = {name: float(v[at]) for name, v in run.measures[measure].items()}
    return SelectedCheckpoint(
        hparams_seed=run.hparams_seed,
        step=int(run.steps[at]),
        value=value,
        score=splits[f"env{candidate.held_out}_in"],
        splits=splits,
        model=run.model,
    )


def selected_values(selection: str, candidate: Candidate) -> np.ndarray:  # [T]
    """What a selection says of every checkpoint; −∞ where it may not be chosen."""
    score = candidate.values(candidate.held_out, "in")
    values = SELECTIONS[selection].values(candidate)
    admitted = np.isfinite(values) & np.isfinite(score)
    model, steps = candidate.run.model, candidate.run.steps
    if model is not None and PRESETS[model.preset].waits_for_penalty:
        # before a penalty has its full weight, what is trained is something else
        admitted &= (steps >= model.full_penalty_at) | (steps == steps.max())
    return np.where(admitted, values, -np.inf)


def candidates(
    selection: str,
    outcomes: Iterable[Outcome],
    data: DatasetInfo,
    *,
    algorithm: str,
    held_out: int,
    trial_seed: int,
    measure: str = "accuracy",
) -> dict[int, Candidate] | str:
    """The draws of a trial that did not diverge, or why nothing can be chosen among them."""
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
        if any(absent.values()):
            return _missing(selection, absent, len(draws))
    needed = {(held_out,), *pairs}
    waiting = {n for envs in needed for n, run in runs[envs].items() if len(run.steps) == 0}
    if waiting:
        return f"{len(waiting)} of {len(draws)} draws are not finished"
    if SELECTIONS[selection].needs_balance:
        wanted = {f"env{k}_balanced" for k in _others(held_out, data)}
        if not all(wanted <= run.measures[measure].keys() for run in draws.values()):
            return f"runs lack balanced rows; name {selection} among the sweep's selections"
    found = {
        draw: Candidate(
            run=run,
            held_out=held_out,
            data=data,
            pairs=[runs[pair][draw] for pair in pairs],
            measure=measure,
        )
        for draw, run in draws.items()
        if not any(_diverged(member) for member in (run, *(runs[pair][draw] for pair in pairs)))
    }
    if found:
        return found
    if all(_diverged(run) for run in draws.values()):
        return "all runs diverged"
    return f"in every draw a run that {selection} needs diverged"


def beats_constant(
    splits: Mapping[str, np.ndarray] | Mapping[str, float],
    environment: int,
    data: DatasetInfo,
    measure: str = "accuracy",
) -> np.ndarray:
    """Whether a measure, of one checkpoint or all, beats the constant predictor's on all rows."""
    inside, outside = (np.asarray(splits[f"env{environment}_{k}"], float) for k in ("in", "out"))
    share = data.held_back[environment]
    whole = (1 - share) * inside + share * outside
    sign = MEASURES[measure].sign
    return sign * whole > sign * data.constant[measure][environment] + ROUNDING


def _others(held_out: int, data: DatasetInfo) -> list[int]:
    return [k for k in range(len(data.environments)) if k != held_out]


def _diverged(run: Outcome) -> bool:
    """Whether it is known to have diverged, or has nothing finite to show."""
    columns = [column for splits in run.measures.values() for column in splits.values()]
    return run.diverged_at is not None or not any(np.isfinite(c).any() for c in columns)


def _missing(selection: str, absent: Mapping[tuple[int, ...], set[int]], n_draws: int) -> str:
    """For every pair of environments the draws without a run."""
    pairs = ", ".join(f"{{{a}, {b}}}" for (a, b), draws in absent.items() if draws)
    n_absent = len(set().union(*absent.values()))
    where = "" if n_absent == n_draws else f" in {n_absent} of {n_draws} draws"
    return f"pairs {pairs} are missing for {selection}{where}"
