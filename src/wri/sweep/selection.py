"""Which draw of the hyper-parameters, and which checkpoint of its run, counts as the result.

Every method gives each checkpoint a value, NaN where it may not be chosen. The best checkpoint
of a run stands for its draw and the best draw is shown, by the *in* accuracy of the environment
held out (Gulrajani & Lopez-Paz, 2021). Among equals the first counts: the smallest draw, then
the smallest step. A run that diverged is never chosen, however good it was before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wri.errors import check_option
from wri.sweep.outcomes import Described, Outcome

ROUNDING = 1e-6
"""What single precision may add to the accuracy of a constant predictor."""


class Choice(NamedTuple):
    """The checkpoint that counts for one trial, with every accuracy it has."""

    hparams_seed: int
    step: int
    score: float  # in accuracy of the environment held out
    accuracy: Mapping[str, float]  # "env0_in", "env0_out", …


def training_domain(
    run: Outcome, held_out: int, data: Described, pairs: Sequence[Outcome]
) -> np.ndarray:  # [T]
    """Mean out accuracy of the training environments."""
    return np.mean([_accuracy(run, k, "out") for k in _others(held_out, data)], axis=0)


def leave_one_out(
    run: Outcome, held_out: int, data: Described, pairs: Sequence[Outcome]
) -> np.ndarray:  # [T]
    """Mean over v of the in accuracy in environment v when v is held out as well."""
    validation = []
    for v, pair in zip(_others(held_out, data), pairs, strict=True):
        at_step = dict(zip(pair.steps.tolist(), _accuracy(pair, v, "in"), strict=True))
        validation.append([at_step.get(step, np.nan) for step in run.steps.tolist()])
    return np.mean(validation, axis=0)  # [V, T] -> [T]


def oracle(
    run: Outcome, held_out: int, data: Described, pairs: Sequence[Outcome]
) -> np.ndarray:  # [T]
    """Out accuracy of the environment held out, at the last step only."""
    return np.where(run.steps == run.steps.max(), _accuracy(run, held_out, "out"), np.nan)


def oracle_early(
    run: Outcome, held_out: int, data: Described, pairs: Sequence[Outcome]
) -> np.ndarray:  # [T]
    """Out accuracy of the environment held out."""
    return _accuracy(run, held_out, "out")


def guarded_oracle(
    run: Outcome, held_out: int, data: Described, pairs: Sequence[Outcome]
) -> np.ndarray:  # [T]
    """As `oracle_early`, where the constant predictor is beaten in every training environment."""
    beaten = [beats_constant(run.accuracy, k, data) for k in _others(held_out, data)]  # [E − 1, T]
    return np.where(np.all(beaten, axis=0), _accuracy(run, held_out, "out"), np.nan)


class Selection(NamedTuple):
    description: str
    values: Callable[[Outcome, int, Described, Sequence[Outcome]], np.ndarray]
    needs_pairs: bool = False
    refusal: str = "no checkpoint has all the accuracies that the selection needs"


SELECTIONS = {
    "training-domain": Selection(
        "best checkpoint on held-back rows of the training environments", training_domain
    ),
    "leave-one-out": Selection(
        "best checkpoint on training environments that are left out in turn", leave_one_out, True
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
        refusal="no checkpoint beats the constant predictor in every training environment",
    ),
}


def choose(
    selection: str,
    outcomes: Iterable[Outcome],
    data: Described,
    algorithm: str,
    held_out: int,
    trial_seed: int,
) -> Choice | str:
    """Choose the checkpoint that counts for one trial of an algorithm.

    Parameters
    ----------
    selection : str
        A name in `SELECTIONS`.
    outcomes : iterable of Outcome
        Finished runs; those of other data sets, algorithms and trials are passed over.
    data : Described
        The data set.
    algorithm : str
    held_out : int
        Index of the test environment.
    trial_seed : int

    Returns
    -------
    Choice or str
        The choice, or the reason why there is none.
    """
    check_option("selection", selection, tuple(SELECTIONS))
    method = SELECTIONS[selection]
    runs: dict[tuple[int, ...], dict[int, Outcome]] = {}  # by test_envs, then by draw
    for run in outcomes:
        if (run.dataset, run.algorithm, run.trial_seed) == (data.name, algorithm, trial_seed):
            runs.setdefault(run.test_envs, {})[run.hparams_seed] = run
    draws = runs.get((held_out,), {})
    if not draws:
        return f"no run of {algorithm} with {data.environments[held_out]} held out"

    pairs = []
    if method.needs_pairs:
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

    best: tuple[float, Choice] | None = None
    some_finished = False
    for draw, run in sorted(draws.items()):
        companions = [runs[pair][draw] for pair in pairs]
        if any(_diverged(member) for member in (run, *companions)):
            continue
        some_finished = True
        score = _accuracy(run, held_out, "in")  # [T]
        values = method.values(run, held_out, data, companions)  # [T]
        values = np.where(np.isfinite(values) & np.isfinite(score), values, -np.inf)
        at = int(values.argmax())
        if values[at] > (-np.inf if best is None else best[0]):
            accuracy = {name: float(column[at]) for name, column in run.accuracy.items()}
            best = values[at], Choice(draw, int(run.steps[at]), float(score[at]), accuracy)
    if best is not None:
        return best[1]
    if some_finished:
        return method.refusal
    if all(_diverged(run) for run in draws.values()):
        return "all runs diverged"
    return f"in every draw a run that {selection} needs diverged"


def _accuracy(run: Outcome, environment: int, rows: str) -> np.ndarray:  # [T]
    return np.asarray(run.accuracy[f"env{environment}_{rows}"], float)


def beats_constant(
    accuracy: Mapping[str, np.ndarray] | Mapping[str, float], environment: int, data: Described
) -> np.ndarray:
    """Whether accuracies, of one checkpoint or all, exceed the constant predictor's on all rows."""
    inside, outside = (np.asarray(accuracy[f"env{environment}_{k}"], float) for k in ("in", "out"))
    share = data.held_back[environment]
    whole = (1 - share) * inside + share * outside
    return whole > data.constant_accuracy[environment] + ROUNDING


def _others(held_out: int, data: Described) -> list[int]:
    return [k for k in range(len(data.environments)) if k != held_out]


def _diverged(run: Outcome) -> bool:
    """Whether it is known to have diverged, or has nothing finite to show."""
    return run.diverged_at is not None or not any(
        np.isfinite(column).any() for column in run.accuracy.values()
    )


def _missing(selection: str, absent: Mapping[tuple[int, int], set[int]], n_draws: int) -> str:
    """For every pair of environments the draws without a run."""
    pairs = ", ".join(f"{{{a}, {b}}}" for (a, b), draws in absent.items() if draws)
    n_absent = len(set().union(*absent.values()))
    where = "" if n_absent == n_draws else f" in {n_absent} of {n_draws} draws"
    return f"pairs {pairs} are missing for {selection}{where}"
