"""Hyper-parameters of the preset `table` that depend on the size of a fit.

They were chosen on simulated hospitals (`studies/estimator_defaults.py`), not on real data. Adam
uses small environments completely, with a step size along half a cosine. Penalties start after a
quarter of the steps and grow over another quarter. Weight decay acts like k pseudo-rows with target
zero, so small tables are regularised more than large ones. The step size of linear predictors is
large enough to converge. Losses are not divided by λ, because then weight decay would be λ times as
strong beside the risk.

WRI takes overlap weights from a classifier of environments. For a linear predictor it is a logistic
regression that sees the label, and only the part of the shift that does not depend on the label
enters the weights (`studies/table_weights.py`). With hidden layers the classifier sees only Φ(x)
and is fitted again as Φ changes: Φ of an invariant predictor holds nothing spurious, so neither do
the weights. Both are fitted for few steps or with strong weight decay, because sharper weights
leave fewer effective rows.
Pairs of environments count by the square of their overlap, so that pairs without overlap, whose gap
is noise, do not count (`docs/results/insurance.md`).
IRM and WRI square the mean over a whole batch. The product of two half-batches is an unbiased
estimate: the square minus its variance. When the same rows return at every step, a predictor learns
to make that variance large (R² below 0 on simulated sites of 100 rows). WRI's squared gap is
divided by the loss, not by its square, and so has the unit of the risk to which it is added,
however small.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wri.densities import FittedClassifier, LabelLogistic

WHOLE = 2048  # rows up to which environments are used completely
BATCH = 1024  # otherwise, rows per environment and step
MOST_DECAY = 0.1
WRI_DENSITY = LabelLogistic()
WRI_WITH_HIDDEN: Mapping[str, Any] = {
    "density": FittedClassifier(steps=50, weight_decay=1e-2),
    "density_on": "phi",
}


class FitSize(NamedTuple):
    """Size of a fit, on which the rules of a preset may depend."""

    weight: float  # training rows of all environments, as many as they weigh
    largest: int  # training rows of the largest environment
    hidden: tuple[int, ...]
    steps: int


def learning_rate(size: FitSize) -> float:
    return 0.01 if size.hidden else 0.1


def weight_decay(size: FitSize) -> float:
    pseudo_rows = 30.0 if size.hidden else 3.0
    return min(pseudo_rows / size.weight, MOST_DECAY)


def batch_size(size: FitSize) -> float:
    return WHOLE if size.largest <= WHOLE else BATCH


def quarter_of_steps(size: FitSize) -> float:
    return size.steps // 4
