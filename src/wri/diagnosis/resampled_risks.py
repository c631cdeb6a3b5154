"""Gaps of risks with standard errors that hold where weights are estimates and failures are rare.

    R_ij − R_ji = Σ w_ij (l − h) / Σ w_ij  −  Σ w_ji (l − h) / Σ w_ji

for any h of what the weights see: both sides have the same cases, so h has the same mean on both.
With h = E[l | x] by the model's own probabilities, errors of the weights do harm only as far as the
model is miscalibrated; with h = 0 cases that weights fail to match count as a gap.

    SE² = max(Rubin's bootstrap, Σ w_ij² v / (Σ w_ij)² + the same of ji),   v = Var[l | x]

The bootstrap (1981) lets rows within environments count an exponential number of times, so that no
weighted mean is empty; weights stay as they are. It knows nothing of failures that have not been
seen yet; v, what the model's probabilities say of them, does.
"""

from typing import NamedTuple

import numpy as np

from wri.diagnosis.losses import Losses
from wri.rows import Environments

_CHUNK = 2_000_000  # counts drawn at once


Entries = tuple[np.ndarray, np.ndarray]
"""i and j, each `[P]`."""


class Gaps(NamedTuple):
    gaps: np.ndarray  # [P]
    errors: np.ndarray  # [P]
    intervals: np.ndarray  # [P, 2]


class ResampledRisks(NamedTuple):
    """Weighted risks of i towards j, less h; plain risks on the diagonal."""

    found: np.ndarray  # [E, E]
    drawn: np.ndarray  # [B, E, E]
    least: np.ndarray  # [E, E], variances by the model's probabilities

    def gaps(self, first: Entries, second: Entries, quantile: float) -> Gaps:
        """Of P entries of each kind."""
        gaps = self.found[first] - self.found[second]
        drawn = self.drawn[:, *first] - self.drawn[:, *second]
        errors = np.sqrt(np.maximum(drawn.var(0, ddof=1), self.least[first] + self.least[second]))
        return Gaps(gaps, errors, gaps[:, None] + quantile * errors[:, None] * [-1, 1])


def resampled_risks(
    model: Losses,
    same: np.ndarray,  # [n], h
    log_weights: np.ndarray,  # [n, E], log w_ij; all the same where j is the row's own i
    environments: Environments,
    draws: int,
    random: np.random.Generator,
) -> ResampledRisks:
    """All environments' risks towards each other, as found and `draws` times resampled."""
    count = len(environments.labels)
    found, least = np.empty((2, count, count))
    drawn = np.empty((draws, count, count))
    for own, rows in enumerate(environments.rows):
        logs = log_weights[rows]
        weights = np.exp(logs - logs.max(0))  # [n_i, E], in units of the largest: no sum is zero
        losses = np.repeat((model.losses - same)[rows, None], count, 1)  # [n_i, E]
        losses[:, own] = model.losses[rows]
        table = np.concatenate([weights * losses, weights], 1)  # [n_i, 2E]
        found[own] = _ratios(table.sum(0))
        least[own] = model.variance[rows] @ np.square(weights / weights.sum(0))
        step = max(1, _CHUNK // len(rows))
        for start in range(0, draws, step):
            counts = random.standard_exponential((min(step, draws - start), len(rows)))
            drawn[start : start + step, own] = _ratios(counts @ table)
    return ResampledRisks(found, drawn, least)


def _ratios(sums: np.ndarray) -> np.ndarray:  # [..., 2E] -> [..., E]
    above, below = np.split(sums, 2, axis=-1)
    return above / below
