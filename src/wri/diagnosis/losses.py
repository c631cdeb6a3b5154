"""Losses of a fitted scikit-learn model, and losses at environments left out in turn.

classifier   log p_c − log p_C for all classes but the last, C;   l = −log p_y, nats;
             E[l | x] = −Σ_c p_c log p_c and Var[l | x] = Σ_c p_c (log p_c)² − E[l | x]²,
             by the model's own probabilities
regressor    f(x);   l = (f(x) − y)² / Var y;   no expectation

Left out in turn: the model is fitted to the other environments without and with a change, and the
mean losses at the environment left out are compared. The interval of the mean change is Student's
over environments, so it includes the spread between them. More than 20 environments are left out in
20 groups. Fits use at most 24,000 rows, drawn at random.
"""

from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wri.diagnosis.inputs import numbers, read_target, take_rows
from wri.errors import InputError
from wri.number_text import write_loss, write_number
from wri.report.intervals import Interval, interval
from wri.rows import Environments

MIN_PROBABILITY = 1e-12  # in a loss
MIN_ODDS_PROBABILITY = 1e-4  # in log-odds, or the 0 and 1 of forests would be far from all others
UNSEEN = 1e-3  # probability of a class that is not in the training environments
FIT_ROWS = 24_000
GROUPS = 20
VARIANCE = "of the variance of the target"  # unit of squared errors


class ModelLosses(NamedTuple):
    """Outputs and losses of a model for n rows."""

    outputs: np.ndarray  # [n, C − 1], or [n, 1]
    losses: np.ndarray  # [n]
    expected: np.ndarray  # [n]
    variance: np.ndarray  # [n]


def loss_unit(model: Any) -> str:
    """Return the unit of a model's losses."""
    return "nats" if hasattr(model, "predict_proba") else VARIANCE


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
    losses, unknown = np.square(predicted - target) / target.var(), np.zeros(len(target))
    return ModelLosses(predicted[:, None], losses, unknown, unknown)


def _classified(model: Any, X: Any, y: Any) -> ModelLosses:
    probabilities = np.asarray(model.predict_proba(X), np.float64)  # [n, C]
    target = read_target(y, len(probabilities))
    classes = np.asarray(model.classes_)
    if {classes.dtype.kind, target.dtype.kind} <= set("biuf"):  # True is 1
        classes, target = classes.astype(float), target.astype(float)
    index = pd.Index(classes).get_indexer(pd.Index(target))  # [n]
    if (index < 0).any():
        unknown = target[index < 0]
        raise InputError(
            f"y holds the class {unknown[0]} ({len(unknown)} rows), which the model does not know; "
            f"its classes are {', '.join(map(str, model.classes_))}: leave these rows out"
        )
    each = -np.log(probabilities.clip(MIN_PROBABILITY, 1))  # [n, C], the loss if c is the class
    odds = np.log(probabilities.clip(MIN_ODDS_PROBABILITY, 1))
    expected = (probabilities * each).sum(1)
    variance = (probabilities * np.square(each - expected[:, None])).sum(1)
    losses = each[np.arange(len(index)), index]
    return ModelLosses(odds[:, :-1] - odds[:, -1:], losses, expected, variance)


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOutLosses:
    """Mean losses at environments left out in turn, before and after a change of the model.

    Attributes
    ----------
    labels : ndarray of shape (E,)
        Labels of the environments.
    before : ndarray of shape (E,)
        Losses before the change.
    after : ndarray of shape (E,)
        Losses after the change.
    model : str
        Name of the model.
    unit : str
        Unit of the losses.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import LeftOutLosses
    >>> losses = LeftOutLosses(
    ...     labels=np.array(["a", "b", "c"]),
    ...     before=np.array([0.50, 0.62, 0.55]),
    ...     after=np.array([0.40, 0.51, 0.46]),
    ...     model="logistic regression",
    ...     unit="nats",
    ... )
    >>> losses.pays, losses.costs
    (True, False)
    """

    labels: np.ndarray  # [E]
    before: np.ndarray  # [E]
    after: np.ndarray  # [E]
    model: str
    unit: str

    @property
    def change(self) -> Interval:
        """Mean change over environments with a 95 % interval; negative is better."""
        return interval([self.after - self.before])

    @property
    def pays(self) -> bool:
        """Whether the loss decreases by more than chance between environments."""
        return self.change.high < 0

    @property
    def costs(self) -> bool:
        """Whether the loss increases by more than chance between environments."""
        return self.change.low > 0

    @property
    def sentence(self) -> str:
        """The change of the loss as part of a sentence."""
        before, after = float(self.before.mean()), float(self.after.mean())
        ends = (self.change.mean, self.change.low, self.change.high)
        mean, low, high = (write_number(each, 2, sign=True) for each in ends)
        return (
            f"the loss at sites left out {'rises' if after > before else 'falls'} from "
            f"{write_loss(before, self.unit)} to {write_loss(after, self.unit)} (change {mean}, "
            f"95 % interval over sites {low} to {high}; lower at "
            f"{(self.after < self.before).sum()} of {len(self.labels)} sites; {self.model})"
        )

    def __repr__(self) -> str:
        return f"{self.sentence[:1].upper()}{self.sentence[1:]}."


def advise(found: LeftOutLosses, pays: str, costs: str, same: str) -> str:
    """Return the advice that the losses support, with the losses."""
    return f"{pays if found.pays else costs if found.costs else same}, {found.sentence}."


def plain_model(classes: bool) -> Any:
    """Return the model that is fitted if none is given."""
    return make_pipeline(StandardScaler(), LogisticRegression() if classes else Ridge())


def compare_left_out(
    before: tuple[Any, Any],  # a model and its table X
    after: tuple[Any, Any],
    y: Any,
    environments: Environments,
    name: str,
) -> LeftOutLosses:
    """Compare the losses of two models at environments left out in turn."""
    classes = is_classifier(before[0])
    if classes != is_classifier(after[0]):
        raise InputError("model and against must both be classifiers or both be regressors")
    target = np.asarray(y) if classes else numbers(np.asarray(y))
    losses = [_losses_left_out(*own, target, environments) for own in (before, after)]
    scale = 1.0 if classes else float(np.var(target))
    return LeftOutLosses(
        labels=environments.labels,
        before=losses[0] / scale,
        after=losses[1] / scale,
        model=name,
        unit=loss_unit(before[0]),
    )


def _losses_left_out(
    model: Any, X: Any, y: np.ndarray, environments: Environments
) -> np.ndarray:  # [E]
    """Return the mean loss of a clone of the model at each environment left out."""
    labels, number = environments.labels, environments.number
    groups = min(GROUPS, len(labels))
    if groups < 3:
        raise InputError("at least three environments are needed to leave one out in turn")
    random, losses = np.random.default_rng(0), np.empty(len(labels))
    group = np.argsort(np.argsort(random.random(len(labels)))) % groups  # [E]
    takes_groups = "groups" in signature(model.fit).parameters
    for left in range(groups):
        inside = np.flatnonzero(group[number] != left)
        inside = np.sort(random.permutation(inside)[:FIT_ROWS])
        options = {"groups": labels[number[inside]]} if takes_groups else {}
        fitted = clone(model).fit(take_rows(X, inside), y[inside], **options)
        for e in np.flatnonzero(group == left):
            rows = random.permutation(np.flatnonzero(number == e))[:FIT_ROWS]
            losses[e] = _mean_loss(fitted, take_rows(X, rows), y[rows])
    return losses


def _mean_loss(model: Any, X: Any, y: np.ndarray) -> float:
    if not is_classifier(model):
        return float(np.mean(np.square(model.predict(X) - y)))
    probabilities = np.asarray(model.predict_proba(X), float)
    index = pd.Index(model.classes_).get_indexer(pd.Index(y))
    own = np.where(index < 0, UNSEEN, probabilities[np.arange(len(y)), index])
    return float(-np.log(own.clip(MIN_PROBABILITY, 1)).mean())
