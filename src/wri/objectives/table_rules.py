"""Hyper-parameters of the preset `table` that depend on the size of a fit.

Chosen on simulated hospitals (`benchmarks/estimator_defaults.py`), not on anybody's data. Adam
takes whole environments where they are small, its rate along half a cosine; penalties come into
force after a quarter of the steps and grow over another quarter. Weight decay acts like k pseudo-
rows with target zero, so small tables are held tighter than large ones. Linear predictors take
steps that are large enough to arrive. Losses are not divided by λ, or decay would be λ times as
strong beside the risk.

WRI takes overlap weights from a classifier of environments. Before a linear predictor it is a
logistic regression that sees the label, and only the part of the shift that does not depend on the
label is weighted by (`benchmarks/table_weights.py`). With hidden layers the classifier sees Φ(x)
alone, and is fitted anew as Φ moves: an invariant predictor's Φ holds nothing spurious, and so
neither do its weights. Both are fitted briefly or with a strong decay, because sharper weights
leave fewer effective rows.
Pairs of environments count by the square of their overlap, so that pairs with nothing in common,
whose gap is noise, count for nothing (`docs/results/insurance.md`).
IRM and WRI square the mean over a whole batch. The product of two half-batches is an unbiased
guess, the square less its variance, and over rows that come again at every step a predictor learns
to make that variance large (R² below 0 on simulated sites of 100 rows). WRI's squared gap is
divided by the loss, not by its square, and so has the unit of the risk that it is added to,
however small.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from wri.densities import FittedClassifier, LabelAwareClassifier

WHOLE = 2048  # rows up to which environments are taken whole
BATCH = 1024  # rows of an environment in a step otherwise
MOST_DECAY = 0.1
WRI_DENSITY = LabelAwareClassifier(
    hidden=0,
    second_hidden=0,
    steps=100,
    learning_rate=0.03,
    weight_decay=3e-2,
    refit_steps=100,
)
WRI_WITH_HIDDEN: Mapping[str, Any] = {
    "density": FittedClassifier(steps=50, weight_decay=1e-2),
    "density_on": "phi",
}


class FitSize(NamedTuple):
    """What a preset's rules may depend on."""

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
