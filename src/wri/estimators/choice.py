"""How one of several candidates is chosen by its losses at environments that were left out.

    average      argmin_c mean_e l_ce                 least loss on average
    worst        argmin_c max_e l_ce                  least loss at the worst environment
    insured      the largest λ_c with mean_e (l_ce − l_be) ≤ s_c,   b = argmin_c mean_e l_ce
    affordable   the largest λ_c with mean_e l_ce ≤ 1.01 · mean_e l_be

where l_ce is candidate c's loss at environment e, trained without e, and s_c the standard error of
that mean over environments. A larger λ is more insurance against relations that change. "insured"
takes as much of it as the left-out environments do not speak against, "affordable" as much as one
per cent of the loss pays for. Of candidates with the same λ, or without one, both take the least
loss on average.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from wri.errors import InputError

Rule = Literal["average", "worst", "insured", "affordable"]
RULES: tuple[Rule, ...] = get_args(Rule)
DEFAULT_RULE: Rule = "affordable"
PREMIUM = 0.01  # share of the least mean loss that "affordable" pays for a larger λ


class CandidateChoice(NamedTuple):
    """The candidate that was chosen, by what."""

    best: int
    sentence: str


def pick(losses: np.ndarray, weights: Sequence[float | None], rule: Rule) -> int:
    """Number of the candidate that the rule takes.

    Parameters
    ----------
    losses
        `[C, E]`, not finite where a candidate diverged.
    weights
        λ of each candidate; None where it has none.
    rule
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
    """The candidate, and a sentence that says how it was found, what it costs and what it buys.

    Parameters
    ----------
    losses, weights, rule
        As in `pick`.
    """
    best = pick(losses, weights, rule)
    return CandidateChoice(best, _describe(losses, weights, rule, best))


def _describe(losses: np.ndarray, weights: Sequence[float | None], rule: Rule, best: int) -> str:
    count, environments = losses.shape
    own = _name(weights, best)
    base = pick(losses, weights, "average")
    because = {
        "average": "the least mean loss",
        "worst": "the least loss at the worst environment",
        "insured": "the largest penalty weight within one standard error of the least mean loss",
        "affordable": f"the largest penalty weight within {PREMIUM:.0%} of the least mean loss",
    }[rule]
    parts = [
        f"{own} of {count} candidates, chosen by the loss on each of {environments} training "
        f"environments left out in turn: {because}"
    ]
    if rule in ("insured", "affordable") and base != best:
        error = _paired_error(losses, best, base)
        parts.append(
            f"the least is that of {_name(weights, base)}, {losses[base].mean():.4g}, and this one "
            f"is {losses[best].mean() - losses[base].mean():.2g} above it, standard error "
            f"{error:.2g}"
        )
    parts.append(f"mean loss {losses[best].mean():.4g}, worst {losses[best].max():.4g}")
    without = [c for c, weight in enumerate(weights) if weight == 0 and c != best]
    if without and np.isfinite(losses[without[0]]).all():
        erm = losses[without[0]]
        cost = losses[best].mean() / erm.mean() - 1
        parts.append(
            f"without a penalty (ERM) {erm.mean():.4g} and {erm.max():.4g}, so on average the "
            f"penalty {'costs' if cost > 0 else 'saves'} {abs(cost):.1%} at sites like these"
        )
    return "; ".join(parts)


def _paired_error(losses: np.ndarray, first: int, second: int) -> float:
    """Standard error of the mean difference of two candidates, paired by environment."""
    differences = losses[first] - losses[second]  # [E]
    return float(differences.std(ddof=1) / np.sqrt(len(differences)))


def _name(weights: Sequence[float | None], number: int) -> str:
    """A candidate by its λ, if that says which one it is."""
    weight = weights[number]
    if weight is None or len(set(weights)) < len(weights):
        return f"number {number}" + ("" if weight is None else f" (penalty_weight {weight:g})")
    return f"penalty_weight {weight:g}"


def describe_without_choice(asked: str | None, environments: int, stopped: bool) -> str:
    """What is said where no environment could be, or had to be, left out.

    Parameters
    ----------
    asked
        What needed one to be left out: "candidates need", say.
    environments
        How many there are.
    stopped
        Whether the loss on held-out rows said when to stop.
    """
    end = ", stopped where the loss on held-out rows was least" if stopped else ""
    if asked is None:
        return f"given or default hyper-parameters{end}"
    there = "there is one" if environments == 1 else f"there are {environments}"
    return (
        f"{asked} three environments or more to choose from, {there}: default hyper-parameters "
        f"are taken{end}"
    )
