"""Choice of the model that is kept, by the losses at sites held out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wri.estimators.choice import Rule, pick
from wri.registry import ALGORITHMS
from wri.tables.held_out import HeldOutScores

PLAIN = "erm"
REASONS = {
    "average": "it has the smallest mean {loss} over the sites held out",
    "worst": "it has the smallest {loss} at the worst site held out",
    "insured": "of those within one standard error of the smallest mean {loss} it relies least on "
    "relations that change between sites",
    "affordable": "of those within one per cent of the smallest mean {loss} it relies least on "
    "relations that change between sites",
}
TOO_DEAR = {
    "insured": "all others cost more than one standard error of the mean {loss}",
    "affordable": "all others cost more than one per cent of the mean {loss}",
}


@dataclass(frozen=True, kw_only=True)
class KeptModel:
    """The kept algorithm, the reason, and warnings for the reader."""

    algorithm: str
    why: str
    warnings: tuple[str, ...]


def label_of(algorithm: str) -> str:
    """Return the label of an algorithm, for instance WRI."""
    return ALGORITHMS[algorithm].label


def is_plain(algorithm: str) -> bool:
    """Return whether an algorithm is ERM, with networks or with trees."""
    return ALGORITHMS[algorithm].objective == PLAIN


def plain_beside(algorithm: str, algorithms: Sequence[str]) -> str | None:
    """Return the ERM to compare an algorithm with: the one with the same predictor if present."""
    same = f"{PLAIN}-boosting" if ALGORITHMS[algorithm].boosted else PLAIN
    if same in algorithms:
        return same
    return next((name for name in algorithms if is_plain(name)), None)


def choose_algorithm(held: HeldOutScores, rule: Rule) -> KeptModel:
    """Choose the algorithm by a rule.

    Parameters
    ----------
    held
        Scores of all algorithms at sites held out.
    rule
        "average", "worst", "insured" or "affordable", as in the estimators' `choose`; for the last
        two every algorithm that compares environments is more insurance than ERM, and WRI the most.
    """
    weights = [_insurance(name) for name in held.algorithms]
    best = held.algorithms[pick(held.losses(), weights, rule)]
    reasons = TOO_DEAR if is_plain(best) and rule in TOO_DEAR else REASONS
    reason = reasons[rule].format(loss=held.loss_name)
    if len(held.algorithms) == 1:
        return KeptModel(algorithm=best, why="It is the only algorithm asked for.", warnings=())
    lines = [f"{label_of(best)} is kept: {reason}."]
    others = [name for name in held.algorithms if not is_plain(name)]
    lines += [_compare(held, name) for name in others]
    warned = [_warn(held, name) for name in others]
    return KeptModel(
        algorithm=best,
        why=" ".join(line for line in lines if line),
        warnings=tuple(line for line in warned if line),
    )


def _insurance(algorithm: str) -> float:
    """Return the rank of an algorithm by how little it relies on changing relations."""
    return {PLAIN: 0.0, "wri": 2.0}.get(ALGORITHMS[algorithm].objective, 1.0)


def _compare(held: HeldOutScores, name: str) -> str:
    """Compare the mean loss of an algorithm with that of ERM."""
    erm = plain_beside(name, held.algorithms)
    if erm is None:
        return ""
    gap, own, plain = held.difference(name, erm), held.mean(name, "loss"), held.mean(erm, "loss")
    return (
        f"Mean {held.loss_name} over {len(held.environments)} sites: {label_of(name)} "
        f"{own.value:.4g}, {label_of(erm)} {plain.value:.4g}; difference "
        f"{gap.value:+.2g} (95 % interval over sites {gap.low:+.2g} to {gap.high:+.2g})."
    )


def _warn(held: HeldOutScores, name: str) -> str:
    """Warn if an algorithm is no better than ERM."""
    erm = plain_beside(name, held.algorithms)
    if erm is None:
        return ""
    gap = held.difference(name, erm)
    if gap.low > 0:
        return (
            f"{label_of(name)} is worse than {label_of(erm)} at the sites held out, by more than "
            f"chance between sites: use {label_of(erm)}, unless the report's section on ERM "
            "against the others shows a change that you want to be insured against."
        )
    if gap.high >= 0:
        return (
            f"At sites like those held out {label_of(name)} is no better than {label_of(erm)}: its "
            f"{held.loss_name} differs by no more than chance between sites. It is insurance: the "
            "report's section on ERM against the others shows the benefit if a relation breaks."
        )
    return ""


def keep_without_comparison(
    algorithms: Sequence[str],
    environments: int,
    models: Mapping[str, Any],
    remedy: str = "Run without --fast to measure it.",
) -> KeptModel:
    """Keep the most insured algorithm when no site was held out, and say what is unknown."""
    best = max(algorithms, key=_insurance)
    chosen = str(models[best].selection_)
    if environments < 3:
        unknown = (
            "There is no estimate for a new site: with two environments none can be held out, "
            "because two are needed for training."
        )
    else:
        unknown = (
            "--fast held no site out: how well this model holds at a new site, and whether it is "
            f"better than ERM there, is unknown. {remedy}"
        )
    why = f"{label_of(best)} is kept without a comparison on sites held out; {chosen}."
    return KeptModel(algorithm=best, why=why, warnings=(unknown,))
