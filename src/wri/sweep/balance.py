"""Held-back rows in which spurious companions of the label are balanced.

If environments differ in p_e(x_spu | y), a classifier of environments that sees the label learns
the difference b(x, y), the part of its log-odds that depends on y (`densities.label_aware`). The
held-back rows of each training environment get the weights

    w(x, y) ∝ exp(t · b(x, y)),    t = argmin log Σ exp(t · b)

so that the mean of b is zero, as it is if x_spu holds no information about y. It is the environment
of this kind that is nearest to the given one in relative entropy, and it often lies outside the
range of the training environments: colours that agree with the label in 90 and 80 % of the rows
become colours that agree in about half of them. A predictor that relies on them has a larger loss
there, and no row of the test environment is needed. Weights become rows by drawing evenly along
their sum, so every measure applies.

If b is strong or badly estimated, few rows would carry all the weight. Then t is shortened until
the effective sample size is at least `LEAST_SHARE` of the rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from wri.densities import LabelAwareClassifier
from wri.rows import Scaling
from wri.sweep.data import SweepData
from wri.threads import one_thread

LEAST_SHARE = 0.1  # smallest effective sample size, as a share of the rows
RIDGE = 1e-3  # on t², so that it stays finite if b has one sign
DRAWN = 2  # drawn rows per held-back row
SHORTER = 0.9


def balanced_splits(
    data: SweepData, splits: Mapping[str, np.ndarray], held_out: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return balanced rows "env0_balanced", … of each environment; none for held-out ones."""
    environments = [e for e in range(len(data.names)) if e not in held_out]
    features, targets = data.bank.features, data.bank.targets
    train = [splits[f"env{e}_in"] for e in environments]
    scaling = Scaling.of(features[np.concatenate(train)].astype(float))
    with one_thread():
        part = LabelAwareClassifier().fit_label_part(
            [scaling.apply(features[rows]) for rows in train], [targets[rows] for rows in train]
        )
        found = {f"env{e}_balanced": np.empty(0, int) for e in range(len(data.names))}
        for e in environments:
            rows = splits[f"env{e}_out"]
            weights = balancing_weights(part(scaling.apply(features[rows]), targets[rows]))
            found[f"env{e}_balanced"] = rows[draw_evenly(weights, DRAWN * len(rows))]
    return found


def balancing_weights(b: np.ndarray) -> np.ndarray:  # [n, E − 1] -> [n], of mean 1
    """Return weights that bring the mean of b to zero, or as near as the sample size allows."""

    def height(t: np.ndarray) -> tuple[float, np.ndarray]:
        logs = b @ t
        total = logsumexp(logs)
        return total + RIDGE * (t @ t), np.exp(logs - total) @ b + 2 * RIDGE * t

    t = minimize(height, np.zeros(b.shape[1]), jac=True).x
    while True:
        logs = b @ t
        weights = np.exp(logs - logs.max())
        if weights.sum() ** 2 >= LEAST_SHARE * len(b) * (weights @ weights):
            return weights / weights.mean()
        t = SHORTER * t


def draw_evenly(weights: np.ndarray, count: int) -> np.ndarray:  # [n] -> [count], indices
    """Return each index in proportion to its weight, rounded up or down."""
    ends = np.cumsum(weights) / weights.sum()
    return np.searchsorted(ends, (np.arange(count) + 0.5) / count).clip(max=len(weights) - 1)
