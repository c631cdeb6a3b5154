"""Rules that choose one of several candidates by the losses at environments left out.

    average      argmin_c mean_e l_ce                 smallest mean loss
    worst        argmin_c max_e l_ce                  smallest loss at the worst environment
    insured      the largest λ_c with mean_e (l_ce − l_be) ≤ s_c,   b = argmin_c mean_e l_ce
    affordable   the largest λ_c with mean_e l_ce ≤ 1.01 · mean_e l_be

where l_ce is the loss of candidate c at environment e, trained without e, and s_c the standard
error of that mean over environments. A larger λ protects more against relations that change.
"insured" takes the largest λ that the left-out environments do not contradict, "affordable" the
largest that costs at most one per cent of the loss. Among candidates with the same λ, or without
one, both take the smallest mean loss.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from wri.errors import InputError
from wri.number_text import write_number

Rule = Literal["average", "worst", "insured", "affordable"]
RULES: tuple[Rule, ...] = get_args(Rule)
DEFAULT_RULE: Rule = "affordable"
PREMIUM = 0.01  # share of the smallest mean loss that "affordable" spends on a larger λ


class CandidateChoice(NamedTuple):
    """The chosen candidate and a sentence that describes the choice."""

    best: int
    sentence: str


def pick(losses: np.ndarray, weights: Sequence[float | None], rule: Rule) -> int:
    """Return the number of the candidate that the rule chooses.

    Parameters
    ----------
    losses : ndarray of shape (C, E)
        Losses; not finite where a candidate diverged.
    weights : sequence of float or None
        λ of each candidate; None if it has none.
    rule : str
        One of `RULES`.
    """
    good = np.isfinite(losses).all(1)
    if not good.any():
        raise InputError("training diverged for every candidate; lower learning_rate")
    mean = np.where(good, losses.mean(1), np.inf)
    if rule == "worst":
        return int(np.where(good, losses.max(1), np.inf).argmin())
    base = int(mean.argmin())
    if rule == "average":
        return base
    allowed = PREMIUM * abs(mean[base])
    near = [
        c
        for c in np.flatnonzero(good).tolist()
        if c == base
        or mean[c] - mean[base]
        <= (allowed if rule == "affordable" else _paired_error(losses, c, base))
    ]
    return max(near, key=lambda c: (weights[c] or 0.0, -mean[c]))


def choose_candidate(
    losses: np.ndarray, weights: Sequence[float | None], rule: Rule
) -> CandidateChoice:
    """Choose a candidate and describe the choice, its cost and its benefit.

    Parameters
    ----------
    losses, weights, rule
        As in `pick`.
    """
    best = pick(losses, weights, rule)
    return CandidateChoice(best, _describe(losses, weights, rule, best))


def _describe(losses: np.ndarray, weights: Sequence[float | None], rule: Rule, best: int) -> str:
    """Describe the choice, its cost and its benefit."""
    (count, environments), mean = losses.shape, losses.mean(1)
    own = _name(weights, best)
    base = pick(losses, weights, "average")
    because = {
        "average": "the smallest mean loss",
        "worst": "the smallest loss at the worst environment",
        "insured": "the largest penalty weight within one standard error of the smallest mean loss",
        "affordable": f"the largest penalty weight within {PREMIUM:.0%} of the smallest mean loss",
    }[rule]
    parts = [
        f"{own} of {count} candidates, chosen by the loss on each of {environments} training "
        f"environments left out in turn: {because}"
    ]
    if rule in ("insured", "affordable") and base != best:
        error = _paired_error(losses, best, base)
        parts.append(
            f"{_name(weights, base)} has the smallest, {write_number(mean[base], 4)}; the chosen "
            f"one is {write_number(mean[best] - mean[base], 2)} above it, standard error "
            f"{write_number(error, 2)}"
        )
    parts.append(
        f"mean loss {write_number(mean[best], 4)}, worst {write_number(losses[best].max(), 4)}"
    )
    without = [c for c, weight in enumerate(weights) if weight == 0 and c != best]
    if without and np.isfinite(losses[without[0]]).all():
        erm = losses[without[0]]
        cost = mean[best] / erm.mean() - 1
        parts.append(
            f"without a penalty (ERM) {write_number(erm.mean(), 4)} and "
            f"{write_number(erm.max(), 4)}, so on average the penalty "
            f"{'costs' if cost > 0 else 'saves'} {abs(cost):.1%} at sites like these"
        )
    if weights[best] and weights[best] == max(weight or 0 for weight in weights) and count > 1:
        parts.append("no larger penalty weight was tried; give penalty_weight a number for that")
    return "; ".join(parts)


def _paired_error(losses: np.ndarray, first: int, second: int) -> float:
    """Return the standard error of the mean difference of two candidates, paired by environment."""
    differences = losses[first] - losses[second]  # [E]
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def _name(weights: Sequence[float | None], number: int) -> str:
    """Name a candidate by its λ, or by its number if several have the same λ."""
    weight = weights[number]
    if weight is None or len(set(weights)) < len(weights):
        return f"number {number}" + ("" if weight is None else f" (penalty_weight {weight:g})")
    return f"penalty_weight {weight:g}"


def describe_without_choice(asked: str | None, environments: int, stopped: bool) -> str:
    """Describe a fit in which no environment was left out.

    Parameters
    ----------
    asked : str or None
        What needed one to be left out, for instance "candidates need".
    environments : int
        Number of environments.
    stopped : bool
        Whether training stopped at the smallest loss on held-out rows.
    """
    end = ", stopped where the loss on held-out rows was smallest" if stopped else ""
    if asked is None:
        return f"given or default hyper-parameters{end}"
    there = "there is one" if environments == 1 else f"there are {environments}"
    return f"{asked} at least three environments, {there}: default hyper-parameters are used{end}"
