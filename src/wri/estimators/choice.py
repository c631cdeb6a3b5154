"""Candidates of an estimator, and the choice of one by its losses at environments left out.

    l_cfe     loss of candidate c at environment e in future f, trained without e
    L_cf      mean of l_cfe over e; for f other than "like", over those e without which some column
              is flagged: the others say nothing about that future
    average   argmin_c L_c,like                               smallest mean loss at such sites
    regret    argmin_c max_f (L_cf / min_k L_kf − 1)

Futures: "like", the left-out environment as it is; "unrelated", the columns whose relation to the
target changes between the other environments tell nothing there; "reversed", they tell the
opposite (`wri.futures`). "regret" insures against a future as far as it does not cost
more in another. With the first two futures alone it stops where the marker still decides
(`docs/results/insurance.md`), so all three are the default. Where no column is flagged, there is
nothing to insure against by measurement, and it takes the preset's λ, which costs little there.

Every candidate is trained without each environment in turn. The columns whose relation to the
target changes are flagged without the environment that judges, and their cells at its rows are
taken from other rows of it. Rows are drawn in the order of their contents, so that the order of the
table does not matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from wri.diagnosis.changing_features import flagged_columns
from wri.errors import InputError, warn_caller
from wri.estimators.problem import Problem
from wri.futures import FUTURES, LIKE, SENTENCES, Future, future_rows
from wri.number_text import write_number
from wri.objectives import OBJECTIVES
from wri.objectives.hyperparameters import HyperParameter
from wri.progress import Progress
from wri.rows import hash_rows
from wri.training import ModelSpec

if TYPE_CHECKING:
    from wri.estimators.base import EnvironmentEstimator

PRESET = "table"
AUTO: Literal["auto"] = "auto"
PenaltyWeight = float | Literal["auto"] | None
Rule = Literal["average", "regret"]
RULES: tuple[Rule, ...] = get_args(Rule)
DEFAULT_RULE: Rule = "regret"
FEWEST_FOR_ERRORS = 4  # environments; with fewer a cost or saving is not stated
CHECKPOINTS = 20  # evaluations for early stopping


def make_specs(model: "EnvironmentEstimator") -> list[ModelSpec]:
    """Make one specification per candidate; with "auto" one per candidate and λ.

    A candidate that names its own penalty weight keeps it.
    """
    if model.candidates is not None and not len(model.candidates):
        raise InputError("candidates is empty; leave it out for the defaults")
    given = [dict(candidate) for candidate in model.candidates or [{}]]
    if chooses_penalty(model):
        rungs = [{"penalty_weight": weight} for weight in penalty_ladder(model)]
        given = [{**rung, **candidate} for candidate in given for rung in rungs]
        given = [each for place, each in enumerate(given) if each not in given[:place]]
    specs = [model._spec(candidate) for candidate in given]
    if model.early_stopping and len({spec.steps for spec in specs}) > 1:
        raise InputError("early_stopping chooses the rounds; leave rounds out of candidates")
    return specs


def chooses_penalty(model: "EnvironmentEstimator") -> bool:
    """Whether λ is to be chosen: "auto" asks for it, `hyper` has none, and there is a penalty."""
    given = "penalty_weight" in (model.hyper or {})
    return model.penalty_weight == AUTO and not given and has_penalty_weight(model._objective)


def penalty_ladder(model: "EnvironmentEstimator") -> list[float]:
    """Return the λ that "auto" chooses from: 0, which is ERM, and multiples of the default."""
    centre = model._default_penalty_weight() or 0.0
    return [centre * factor for factor in model._ladder]


def has_penalty_weight(objective: str) -> bool:
    """Return whether an objective adds a weighted penalty to the risk."""
    return preset_penalty_weight(objective, PRESET) is not None


def preset_penalty_weight(objective: str, preset: str) -> float | None:
    """Return a preset's λ; None if the objective has no penalty."""
    for each in OBJECTIVES[objective].hyperparameters():
        if each.name == "penalty_weight":
            return each.setting(preset).resolve(None)
    return None


def split_candidate(
    model: "EnvironmentEstimator",
    candidate: Mapping[str, Any],
    own: Mapping[str, Any],
    hyper: Mapping[str, float],
    known: Iterable[HyperParameter],
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return own settings, hyper-parameters and options, changed by a candidate."""
    kind: Any = model._kind
    parts = dict(own), {**hyper, **(model.hyper or {})}, dict(model.options or {})
    place = dict.fromkeys((parameter.name for parameter in known), 1)
    place |= dict.fromkeys((option.name for option in fields(kind)), 2)
    for name, value in candidate.items():
        if name not in own and name not in place:
            possible = ", ".join([*own, *sorted(place)])
            raise InputError(f"unknown setting {name!r} in candidates; choose from {possible}")
        parts[0 if name in own else place[name]][name] = value
    return parts


@dataclass(frozen=True, eq=False, kw_only=True)
class CandidateLosses:
    """Losses of candidates at environments left out, by future."""

    losses: np.ndarray  # [C, F, E]; not finite where a candidate diverged
    futures: tuple[Future, ...]  # [F], "like" first
    weights: Sequence[float | None]  # [C], λ; None if a candidate has none
    default: float | None = None  # λ where nothing is flagged
    flagged: tuple[str, ...] = ()  # columns flagged without some environment
    stressed: np.ndarray | None = None  # [E] bool, where without it some are; None: everywhere

    @property
    def means(self) -> np.ndarray:  # [C, F]
        """Mean losses over environments; infinite where a candidate diverged."""
        good = np.isfinite(self.losses).all((1, 2))
        means = [self.judging(f).mean(1) for f in range(self.losses.shape[1])]
        return np.where(good[:, None], np.transpose(means), np.inf)

    def judging(self, future: int) -> np.ndarray:  # [C, E']
        """Return the losses at the environments that say something about a future."""
        losses = self.losses[:, future]
        if self.futures[future] == LIKE or self.stressed is None or not self.stressed.any():
            return losses
        return losses[:, self.stressed]


def pick(found: CandidateLosses, rule: Rule) -> int:
    """Return the number of the candidate that the rule chooses."""
    means = found.means
    if not np.isfinite(means).any():
        raise InputError("training diverged for every candidate; lower learning_rate")
    if rule == "average":
        return int(means[:, 0].argmin())
    if not found.flagged:
        preset = np.array([weight == found.default for weight in found.weights])
        usable = np.flatnonzero(preset & np.isfinite(means).all(1))
        if len(usable):
            return int(usable[means[usable, 0].argmin()])
    return int((means / means.min(0)).max(1).argmin())


def describe(found: CandidateLosses, rule: Rule, best: int) -> str:
    """Describe the choice, its cost and its benefit beside ERM, with errors over environments."""
    count, environments = found.losses.shape[0], found.losses.shape[2]
    because = "the smallest mean loss at environments left out"
    if rule == "regret" and found.flagged:
        because = "the least worst regret over the futures"
    elif rule == "regret" and found.weights[best] == found.default is not None:
        because = (
            "the preset's value, because no column's relation to the target was found to change"
        )
    known = {weight for weight in found.weights if weight is not None}
    if len(known) > 1 and found.weights[best] == max(known):
        because += "; it is the largest that was tried"
    parts = [
        f"{_name(found.weights, best)}: {because}. {count} candidates were measured at each of "
        f"{environments} training environments left out in turn"
    ]
    erm = [c for c, weight in enumerate(found.weights) if weight == 0 and c != best][:1]
    finite = np.isfinite(found.losses[[*erm, best]]).all()
    if erm and environments >= FEWEST_FOR_ERRORS and finite:
        columns = ", ".join(found.flagged)
        for f, future in enumerate(found.futures if found.flagged else found.futures[:1]):
            where, losses = SENTENCES[future].format(columns=columns), found.judging(f)
            parts.append(f"{where} {_compare(losses[best], losses[erm[0]])}")
    return "; ".join(parts)


def _compare(own: np.ndarray, erm: np.ndarray) -> str:  # [E], [E]
    """Describe the relative difference of two losses with its standard error."""
    change = 100 * (own - erm) / erm.mean()
    verb = "costs" if change.mean() > 0 else "saves"
    said = f"the penalty {verb} {abs(change.mean()):.1f} % of ERM's loss"
    if len(change) < 2:
        return f"{said} (at one environment)"
    return f"{said} (standard error {change.std(ddof=1) / np.sqrt(len(change)):.1f})"


def _name(weights: Sequence[float | None], number: int) -> str:
    """Name a candidate by its λ, or by its number if several have the same λ."""
    weight = weights[number]
    name = "" if weight is None else f"penalty_weight {write_number(weight)}"
    if name and len(set(weights)) == len(weights):
        return name
    return f"number {number}" + (f" ({name})" if name else "")


def choose(
    model: "EnvironmentEstimator", problem: Problem, specs: Sequence[ModelSpec], progress: Progress
) -> tuple[ModelSpec, str, CandidateLosses | None]:
    """Choose a candidate by the rule of the model; say how, with losses at environments left out.

    With fewer than three environments none can be left out: the first candidate is taken. With
    early stopping the mean loss at such environments chooses candidate and step.
    """
    if model.early_stopping:
        return _stop_early(model, problem, specs, progress)
    if len(specs) < 2 or not problem.can_leave_one_out:
        return specs[0], _describe_defaults(model), None
    futures = tuple(dict.fromkeys((LIKE, *(model.futures or FUTURES))))
    losses, flagged = left_out_losses(model, problem, specs, futures, progress)
    named = model._column_names()
    found = CandidateLosses(
        losses=losses,
        futures=futures,
        weights=[spec.hyper.get("penalty_weight") for spec in specs],
        default=model._default_penalty_weight() if problem.trusts_preset else None,
        flagged=tuple(named[d] for d in sorted({int(d) for own in flagged for d in own})),
        stressed=np.array([len(own) > 0 for own in flagged]),
    )
    best = pick(found, model.choose)
    return specs[best], describe(found, model.choose, best), found


def _stop_early(
    model: "EnvironmentEstimator", problem: Problem, specs: Sequence[ModelSpec], progress: Progress
) -> tuple[ModelSpec, str, CandidateLosses | None]:
    """Choose candidate and step by the mean loss at environments, or rows, left out."""
    last = max(spec.last_step for spec in specs)
    every = max(1, last // CHECKPOINTS)
    leave_out = problem.can_leave_one_out
    specs = specs if leave_out else specs[:1]
    losses, steps = problem.losses_in_training(specs, every, progress)
    mean = np.nan_to_num(losses.mean(1), nan=np.inf, posinf=np.inf)  # [C, T]
    for c, spec in enumerate(specs):
        # steps before the penalty has its full weight do not count
        mean[c, (steps < spec.full_penalty_at) & (steps < steps[-1])] = np.inf
    at = mean.argmin(1)  # [C]
    final = losses[np.arange(len(specs)), :, at]  # [C, E]
    weights = [spec.hyper.get("penalty_weight") for spec in specs]
    found = CandidateLosses(losses=final[:, None], futures=(LIKE,), weights=weights)
    best = pick(found, "average")
    stopped = int(steps[at[best]]) + 1
    spec = specs[best] if stopped == last else replace(specs[best], stop_after=stopped)
    if not leave_out:
        return spec, _describe_defaults(model), None
    return spec, describe(found, "average", best), found


def _describe_defaults(model: "EnvironmentEstimator") -> str:
    """Describe a fit in which no environment was left out; warn of unused candidates."""
    end = ", stopped where the loss on held-out rows was smallest" if model.early_stopping else ""
    count, has_candidates = model.n_environments_, len(model.candidates or ()) > 1
    if has_candidates:
        asked = "candidates need"
    elif chooses_penalty(model) and count > 1:
        asked = "penalty_weight='auto' needs"
    else:
        return f"given or default hyper-parameters{end}"
    there = "there is one" if count == 1 else f"there are {count}"
    reason = (
        f"{asked} at least three environments, but {there}. The default hyper-parameters are "
        f"used{end}"
    )
    if has_candidates:
        warn_caller(reason)
    return reason


def left_out_losses(
    model: "EnvironmentEstimator",
    problem: Problem,
    specs: Sequence[ModelSpec],
    futures: Sequence[Future],
    progress: Progress,
) -> tuple[np.ndarray, list[np.ndarray]]:  # [C, F, E], E of column numbers
    """Train every candidate without each environment; return losses there, and flagged columns."""
    count, bank = problem.n_environments, problem.bank
    folds = [[e for e in range(count) if e != left_out] for left_out in range(count)]
    thinned = problem.for_choosing(specs)
    runs = [thinned.run(spec, others) for others in folds for spec in specs]
    records = problem.train(runs, max(spec.last_step for spec in specs), progress)
    trained = zip(runs, records, strict=True)
    losses = np.full((len(specs), len(futures), count), np.nan)
    flagged = []
    for left_out, others in enumerate(folds):
        columns = _flag(model, problem, others) if len(futures) > 1 else np.empty(0, int)
        flagged.append(columns)
        rows = problem.rows.every[left_out]
        total = problem.weights[rows].sum()
        numbers = hash_rows(model._filled(bank.features[rows]), bank.targets[rows], 0)
        rows = rows[numbers.argsort(kind="stable")]
        x, y, shares = bank.features[rows], bank.targets[rows], problem.weights[rows] / total
        classes = bank.n_classes is not None
        moved = [[*future_rows(x, y, columns, future, classes)] for future in futures]
        for c in range(len(specs)):
            run, record = next(trained)
            if record.diverged_at is not None:
                continue
            without = copy(model)
            without._take(run, record)
            for f, tables in enumerate(moved):
                outputs = (without._outputs(without._prepare(each)) for each in tables)
                losses[c, f, left_out] = np.mean(
                    [shares @ without._losses(each, y) for each in outputs]
                )
    return losses, flagged


def _flag(
    model: "EnvironmentEstimator", problem: Problem, environments: Sequence[int]
) -> np.ndarray:
    """Return the columns whose relation to the target changes between some environments."""
    bank, rows = problem.bank, problem.rows.every
    chosen = np.concatenate([rows[e] for e in environments])
    site = np.repeat(environments, [len(rows[e]) for e in environments])
    x = model._filled(bank.features[chosen])
    return flagged_columns(x, bank.targets[chosen], site, bank.n_classes is not None)
