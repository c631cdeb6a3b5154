"""How well a score tells strange rows from common ones.

One sign for the whole room: **a higher score is more common**. A threshold flags the rows that
score at most as high:

    fpr(t) = P(common ≤ t),   tpr(t) = P(strange ≤ t),   auroc = ∫ tpr d fpr

Where scores are tied a threshold takes all or none of them; between the two the curve is straight,
as if the tie were drawn by lot. So the area counts a tied pair half:

    auroc = P(common > strange) + ½·P(common = strange)
"""

from collections.abc import Sequence

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


def _curve(common: Scores, strange: Scores) -> tuple[np.ndarray, np.ndarray]:
    """fpr and tpr at every threshold from below the lowest score to the highest."""
    kinds = [_checked("common", common), _checked("strange", strange)]
    thresholds = np.unique(np.concatenate(kinds))
    fpr, tpr = (
        np.concatenate([[0.0], np.searchsorted(np.sort(scores), thresholds, "right") / len(scores)])
        for scores in kinds
    )
    return fpr, tpr


def _checked(name: str, scores: Scores) -> np.ndarray:
    values = np.asarray(scores, float)
    if values.ndim != 1:
        raise InputError(f"{name} scores must be a list, not of the shape {values.shape}")
    if not len(values):
        raise InputError(f"there are no {name} scores; give at least one of each kind")
    lost = np.flatnonzero(np.isnan(values))
    if len(lost):
        raise InputError(
            f"{name} scores hold NaN: row {lost[0]}, {len(lost)} in all; drop such rows, or look "
            "for what made them"
        )
    return values
