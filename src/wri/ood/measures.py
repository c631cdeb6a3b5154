"""How well a score tells strange rows from common ones, and safe predictions from poor ones.

One sign for the whole package: **a higher score is more common**. A threshold flags the rows that
score at most as high:

    fpr(t) = P(common ≤ t),   tpr(t) = P(strange ≤ t),   auroc = ∫ tpr d fpr

Where scores are tied a threshold takes all or none of them; between the two the curve is straight,
as if the tie were drawn by lot. So the area counts a tied pair half:

    auroc = P(common > strange) + ½·P(common = strange)

A predictor that may abstain keeps the rows that score highest (El-Yaniv and Wiener, 2010):

    coverage(t) = P(score ≥ t),   risk(t) = E[loss | score ≥ t],   aurc = ∫ risk d coverage
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.metrics import auc

from wri.errors import InputError

Scores = Sequence[float] | np.ndarray


def auroc(common: Scores, strange: Scores) -> float:
    """Probability that a common row scores higher than a strange one, ties counted half.

    Parameters
    ----------
    common, strange
        Scores of the two kinds of rows, higher = more common; infinite ones are fine.
    """
    return float(auc(*_curve(common, strange)))


def detection_rates(common: Scores, strange: Scores, false_rates: Scores) -> np.ndarray:
    """Share of the strange rows that is flagged when a given share of the common rows is.

    Parameters
    ----------
    common, strange
        Scores of the two kinds of rows, higher = more common.
    false_rates
        Shares of the common rows, in [0, 1]. Where several thresholds flag the same share, the
        highest of them counts.
    """
    wanted = np.asarray(false_rates, float)
    outside = wanted[~((wanted >= 0) & (wanted <= 1))]
    if outside.size:
        raise InputError(f"false_rates must be shares from 0 to 1, not {outside[0]:g}")
    return np.interp(wanted, *_curve(common, strange))


class RiskCoverage(NamedTuple):
    """Mean loss of the rows that are kept, by how many are."""

    coverage: np.ndarray  # [T], ascending to 1
    risk: np.ndarray  # [T]
    area: float


def risk_coverage(scores: Scores, losses: Scores) -> RiskCoverage:
    """The risk of predicting only for the rows that score highest.

    Parameters
    ----------
    scores
        One a row, higher = more common.
    losses
        What predicting the row costs, such as 1 for an error.

    Returns
    -------
    curve
        Coverage and risk at every threshold, and the area: the mean risk over all coverages. Tied
        rows are kept together; between two thresholds they come in by lot, so each counts with
        their mean loss. Random scores have about the mean loss as their area.
    """
    common, costs = _checked("scores", scores), _checked("losses", losses)
    if len(common) != len(costs):
        raise InputError(f"there are {len(common)} scores and {len(costs)} losses; give one a row")
    values, group, counts = np.unique(-common, return_inverse=True, return_counts=True)
    sums = np.bincount(group, costs, len(values))
    each = np.repeat(sums / counts, counts)  # row by row, from the highest score
    risks = each.cumsum() / np.arange(1, len(each) + 1)
    ends = counts.cumsum()
    return RiskCoverage(ends / len(each), risks[ends - 1], float(risks.mean()))


def _curve(common: Scores, strange: Scores) -> tuple[np.ndarray, np.ndarray]:
    """fpr and tpr at every threshold from below the lowest score to the highest."""
    kinds = [_checked("common scores", common), _checked("strange scores", strange)]
    thresholds = np.unique(np.concatenate(kinds))
    fpr, tpr = (
        np.concatenate([[0.0], np.searchsorted(np.sort(scores), thresholds, "right") / len(scores)])
        for scores in kinds
    )
    return fpr, tpr


def _checked(name: str, scores: Scores) -> np.ndarray:
    values = np.asarray(scores, float)
    if values.ndim != 1:
        raise InputError(f"{name} must be a list, not of the shape {values.shape}")
    if not len(values):
        raise InputError(f"there are no {name}; give at least one of each kind")
    lost = np.flatnonzero(np.isnan(values))
    if len(lost):
        raise InputError(
            f"{name} hold NaN: row {lost[0]}, {len(lost)} in all; drop such rows, or look "
            "for what made them"
        )
    return values
