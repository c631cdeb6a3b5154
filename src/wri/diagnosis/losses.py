"""Outputs, losses and expected losses of a fitted scikit-learn model.

classifier   log p_c − log p_C for all classes but the last, C;   l = −log p_y, nats;
             E[l | x] = −Σ_c p_c log p_c and Var[l | x] = Σ_c p_c (log p_c)² − E[l | x]²,
             by the model's own probabilities
regressor    f(x);   l = (f(x) − y)² / Var y;   no expectation
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import numbers, read_target
from wri.errors import InputError

_SURE = 1e-12  # smallest probability in a loss
_SURE_ODDS = 1e-4  # and in log-odds, or the 0 and 1 of forests would be far from all others


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelLosses:
    """Outputs and losses of a model for n rows."""

    outputs: np.ndarray  # [n, C − 1], or [n, 1]
    losses: np.ndarray  # [n]
    expected: np.ndarray  # [n]
    variance: np.ndarray  # [n]
    unit: str


def model_losses(model: Any, X: Any, y: Any) -> ModelLosses:
    """Return outputs and losses of a fitted classifier or regressor."""
    if hasattr(model, "predict_proba"):
        return _classified(model, X, y)
    if hasattr(model, "classes_") or not hasattr(model, "predict"):
        raise InputError(
            f"model ({type(model).__name__}) has no predict_proba and is not a regressor; wrap a "
            "classifier in sklearn.calibration.CalibratedClassifierCV"
        )
    predicted = np.asarray(model.predict(X), np.float64)
    target = numbers(read_target(y, len(predicted)), "for a regressor")
    if predicted.shape != target.shape:
        raise InputError(f"model must predict one number per row, not the shape {predicted.shape}")
    squares, unknown = np.square(predicted - target) / target.var(), np.zeros(len(target))
    return ModelLosses(
        outputs=predicted[:, None],
        losses=squares,
        expected=unknown,
        variance=unknown,
        unit="of the variance of the target",
    )


def _classified(model: Any, X: Any, y: Any) -> ModelLosses:
    probabilities = np.asarray(model.predict_proba(X), np.float64)  # [n, C]
    target = read_target(y, len(probabilities))
    classes = np.asarray(model.classes_)
    if {classes.dtype.kind, target.dtype.kind} <= set("biuf"):  # True is 1
        classes, target = classes.astype(float), target.astype(float)
    place = pd.Index(classes).get_indexer(pd.Index(target))  # [n]
    if (place < 0).any():
        unknown = target[place < 0]
        raise InputError(
            f"y holds the class {unknown[0]} ({len(unknown)} rows), which the model does not know; "
            f"its classes are {', '.join(map(str, model.classes_))}: leave these rows out"
        )
    each = -np.log(probabilities.clip(_SURE, 1))  # [n, C], the loss if c is the class
    odds = np.log(probabilities.clip(_SURE_ODDS, 1))
    expected = (probabilities * each).sum(1)
    return ModelLosses(
        outputs=odds[:, :-1] - odds[:, -1:],
        losses=each[np.arange(len(place)), place],
        expected=expected,
        variance=(probabilities * np.square(each - expected[:, None])).sum(1),
        unit="nats",
    )
