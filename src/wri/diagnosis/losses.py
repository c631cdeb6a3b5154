"""What a fitted scikit-learn model says of every row, how wrong it is, and expects to be.

classifier   log p_c − log p_C for all classes but the last, C;   l = −log p_y, nats;
             E[l | x] = −Σ_c p_c log p_c and Var[l | x] = Σ_c p_c (log p_c)² − E[l | x]²,
             by the model's own probabilities
regressor    f(x);   l = (f(x) − y)² / Var y;   nothing is known beforehand
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from wri.diagnosis.inputs import numbers, read_target
from wri.errors import InputError

_SURE = 1e-12  # the least probability in a loss
_SURE_ODDS = 1e-4  # and in log-odds: the 0 and 1 that forests say would stand far from all others


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelLosses:
    """What a model says of n rows, and how wrong it is."""

    outputs: np.ndarray  # [n, C − 1], or [n, 1]
    losses: np.ndarray  # [n]
    expected: np.ndarray  # [n]
    variance: np.ndarray  # [n]
    unit: str


def model_losses(model: Any, X: Any, y: Any) -> ModelLosses:
    """Outputs and losses of a fitted classifier or regressor."""
    if hasattr(model, "predict_proba"):
        return _classified(model, X, y)
    if hasattr(model, "classes_") or not hasattr(model, "predict"):
        raise InputError(
            f"model ({type(model).__name__}) gives no probabilities (predict_proba) and is no "
            "regressor; wrap a classifier in sklearn.calibration.CalibratedClassifierCV"
        )
    predicted = np.asarray(model.predict(X), np.float64)
    target = numbers(read_target(y, len(predicted)), "for a regressor")
    if predicted.shape != target.shape:
        raise InputError(f"model must predict one number a row, not the shape {predicted.shape}")
    squares, unknown = np.square(predicted - target) / target.var(), np.zeros(len(target))
    return ModelLosses(
        outputs=predicted[:, None],
        losses=squares,
        expected=unknown,
        variance=unknown,
        unit="of the variance of y",
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
    each = -np.log(probabilities.clip(_SURE, 1))  # [n, C], the loss if this were the class
    odds = np.log(probabilities.clip(_SURE_ODDS, 1))
    expected = (probabilities * each).sum(1)
    return ModelLosses(
        outputs=odds[:, :-1] - odds[:, -1:],
        losses=each[np.arange(len(place)), place],
        expected=expected,
        variance=(probabilities * np.square(each - expected[:, None])).sum(1),
        unit="nats",
    )
