"""Measures of scores: detection of strange rows, and risk by coverage.

**A higher score is more common** in the whole package. A threshold flags the rows that score at
most as high:

    fpr(t) = P(common ≤ t),   tpr(t) = P(strange ≤ t),   auroc = ∫ tpr d fpr

A threshold flags all tied scores or none; between the two the curve is straight, as if ties were
broken at random. So the area counts a tied pair half:

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
    """Compute the area under the ROC curve: the probability that common rows score higher.

    Ties count half.

    Parameters
    ----------
    common : array-like of shape (n,)
        Scores of common rows; higher is more common, infinite ones are allowed.
    strange : array-like of shape (m,)
        Scores of strange rows.

    Returns
    -------
    area : float
        Area from 0 to 1.

    Raises
    ------
    InputError
        If a list is empty or holds NaN.

    Examples
    --------
    >>> from wri.ood import auroc
    >>> auroc(common=[3.0, 2.0], strange=[1.0, 2.0])
    0.875
    """
    return float(auc(*_curve(common, strange)))


def detection_rates(common: Scores, strange: Scores, false_rates: Scores) -> np.ndarray:
    """Compute the share of strange rows flagged at given shares of flagged common rows.

    Parameters
    ----------
    common : array-like of shape (n,)
        Scores of common rows; higher is more common.
    strange : array-like of shape (m,)
        Scores of strange rows.
    false_rates : array-like of shape (k,)
        Shares of the common rows, in [0, 1]. If several thresholds flag the same share, the highest
        of them counts.

    Returns
    -------
    rates : ndarray of shape (k,)
        Shares of the strange rows.

    Raises
    ------
    InputError
        If a list is empty or holds NaN, or a share is out of range.

    Examples
    --------
    >>> from wri.ood import detection_rates
    >>> detection_rates(common=[1.0, 2.0, 3.0, 4.0], strange=[0.0, 2.5], false_rates=[0.25, 0.5])
    array([0.5, 1. ])
    """
    wanted = np.asarray(false_rates, float)
    outside = wanted[~((wanted >= 0) & (wanted <= 1))]
    if outside.size:
        raise InputError(f"false_rates must be shares from 0 to 1, not {outside[0]:g}")
    return np.interp(wanted, *_curve(common, strange))


class RiskCoverage(NamedTuple):
    """Risk–coverage curve: mean loss of the rows that are kept, by their share.

    Attributes
    ----------
    coverage : ndarray of shape (T,)
        Share of kept rows, ascending to 1.
    risk : ndarray of shape (T,)
        Mean loss of the kept rows.
    area : float
        Mean risk over all coverages.

    Examples
    --------
    >>> from wri.ood import risk_coverage
    >>> curve = risk_coverage(scores=[2.0, 1.0], losses=[0.0, 1.0])
    >>> curve.coverage, curve.risk, curve.area
    (array([0.5, 1. ]), array([0. , 0.5]), 0.25)
    """

    coverage: np.ndarray  # [T], ascending to 1
    risk: np.ndarray  # [T]
    area: float


def risk_coverage(scores: Scores, losses: Scores) -> RiskCoverage:
    """Compute the risk of predicting only for the rows that score highest.

    Tied rows are kept together; between two thresholds they enter at random, so each counts with
    their mean loss. Random scores have about the mean loss as their area.

    Parameters
    ----------
    scores : array-like of shape (n,)
        One score per row; higher is more common.
    losses : array-like of shape (n,)
        Loss of predicting each row, for instance 1 for an error.

    Returns
    -------
    curve : RiskCoverage
        Coverage and risk at each threshold, and the area.

    Raises
    ------
    InputError
        If lengths differ, or a list is empty or holds NaN.

    References
    ----------
    R. El-Yaniv and Y. Wiener, "On the Foundations of Noise-free Selective Classification", JMLR 11,
    2010.

    Examples
    --------
    >>> from wri.ood import risk_coverage
    >>> risk_coverage(scores=[3.0, 2.0, 1.0], losses=[0.0, 0.0, 3.0]).risk
    array([0., 0., 1.])
    """
    common, costs = _checked("scores", scores), _checked("losses", losses)
    if len(common) != len(costs):
        raise InputError(f"{len(common)} scores and {len(costs)} losses; give one of each per row")
    values, group, counts = np.unique(-common, return_inverse=True, return_counts=True)
    sums = np.bincount(group, costs, len(values))
    each = np.repeat(sums / counts, counts)  # row by row, from the highest score
    risks = each.cumsum() / np.arange(1, len(each) + 1)
    ends = counts.cumsum()
    return RiskCoverage(ends / len(each), risks[ends - 1], float(risks.mean()))


def _curve(common: Scores, strange: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Return fpr and tpr at each threshold from below the lowest score to the highest."""
    kinds = [_checked("common scores", common), _checked("strange scores", strange)]
    thresholds = np.unique(np.concatenate(kinds))
    fpr, tpr = (
        np.concatenate([[0.0], np.searchsorted(np.sort(scores), thresholds, "right") / len(scores)])
        for scores in kinds
    )
    return fpr, tpr


def _checked(name: str, scores: Scores) -> np.ndarray:
    """Return scores as an array; refuse empty lists and NaN."""
    values = np.asarray(scores, float)
    if values.ndim != 1:
        raise InputError(f"{name} must be a list, not of the shape {values.shape}")
    if not len(values):
        raise InputError(f"there are no {name}; give at least one of each kind")
    lost = np.flatnonzero(np.isnan(values))
    if len(lost):
        raise InputError(
            f"{name} hold NaN: row {lost[0]}, {len(lost)} in all; drop these rows or correct them"
        )
    return values
