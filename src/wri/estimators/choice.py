"""Rules that choose one of several candidates by their losses at environments left out.

    l_cfe     loss of candidate c at environment e in future f, trained without e
    L_cf      mean of l_cfe over e; for f other than "like", over those e without which some column
              is flagged: the others say nothing about that future
    average   argmin_c L_c,like                               smallest mean loss at such sites
    regret    argmin_c max_f (L_cf / min_k L_kf − 1)

Futures: "like", the left-out environment as it is; "unrelated", the columns whose relation to the
target changes between the other environments tell nothing there; "reversed", they tell the
opposite (`wri.futures`). "regret" insures against a future as far as it does not cost
more in another. With the first two futures alone it stops where the marker still decides: on the
simulated hospitals even the λ with the least regret at the new hospitals themselves has 58 % at a
reversed marker (`docs/results/insurance.md`), so all three are the default. Where no column is
flagged, there is nothing to insure against by measurement, and it takes the preset's λ, which costs
little there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from wri.errors import InputError
from wri.futures import LIKE, SENTENCES, Future
from wri.number_text import write_number

Rule = Literal["average", "regret"]
RULES: tuple[Rule, ...] = get_args(Rule)
DEFAULT_RULE: Rule = "regret"
FEWEST_FOR_ERRORS = 4  # environments; with fewer a cost or saving is not stated
FORMER_RULES = ("worst", "insured", "affordable")


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


def check_rule(rule: str) -> None:
    """Refuse unknown rules; name the successor of former ones."""
    if rule in FORMER_RULES:
        raise InputError(
            f"choose={rule!r} no longer exists; choose='regret' insures better at the same cost, "
            "and penalty_weight=None takes a fixed moderate penalty"
        )
    if rule not in RULES:
        raise InputError(f"choose must be one of {', '.join(RULES)}, not {rule!r}")


def pick(found: CandidateLosses, rule: Rule) -> int:
    """Return the number of the candidate that the rule chooses."""
    means = found.means
    if not np.isfinite(means).any():
        raise InputError("training diverged for every candidate; lower learning_rate")
    if rule == "average":
        return int(means[:, 0].argmin())
    if not found.flagged and found.default in found.weights:
        usable = [
            c
            for c, weight in enumerate(found.weights)
            if weight == found.default and np.isfinite(means[c]).all()
        ]
        if usable:
            return min(usable, key=lambda c: means[c, 0])
    return int((means / means.min(0)).max(1).argmin())


def describe(found: CandidateLosses, rule: Rule, best: int) -> str:
    """Describe the choice, its cost and its benefit beside ERM, with errors over environments."""
    count, environments = found.losses.shape[0], found.losses.shape[2]
    because = "the smallest mean loss there"
    if rule == "regret" and found.flagged:
        because = "the least worst regret over the futures"
    elif rule == "regret" and found.weights[best] == found.default is not None:
        because = "the preset's, because no column's relation to the target was seen to change"
    parts = [
        f"{_name(found.weights, best)} of {count} candidates, measured at each of {environments} "
        f"training environments left out in turn: {because}"
    ]
    known = [weight for weight in found.weights if weight is not None]
    if known and found.weights[best] == max(known) and len(set(known)) > 1:
        parts.append("it is the largest that was tried")
    erm = [c for c, weight in enumerate(found.weights) if weight == 0 and c != best]
    if (
        erm
        and environments >= FEWEST_FOR_ERRORS
        and np.isfinite(found.losses[[erm[0], best]]).all()
    ):
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
    if weight is None or len(set(weights)) < len(weights):
        return f"number {number}" + (
            "" if weight is None else f" (penalty_weight {write_number(weight)})"
        )
    return f"penalty_weight {write_number(weight)}"


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
