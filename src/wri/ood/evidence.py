"""Evidence: how common a row is in the training environments, and from where on it is too rare.

    score(z) = log 1/E Σ_e d_e(z)

with a Gaussian mixture d_e for each environment, so the score falls without bound in every
direction away from the training rows. Held-out rows tell what is usual: rarity is the percentage of
them that score at most as high, each environment counted alike. Below the k = 10 lowest of them
it is what these foretell of a further row when scores have exponential tails, as a Gaussian's log
density has:

    share(s) = share(s_k) · (1 + (s_k − s) / Σ_{i<k} (s_k − s_i))^{−(k − 1)}

so thresholds for few in a thousand need no thousands of rows.

One sign: **higher is more common**, for scores and for rarity.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from wri.densities import Mixture
from wri.errors import InputError
from wri.rows import Scaling

VERDICTS = ("supported", "rare", "outside")
LOWEST = 10  # rows that tell how the tail falls
ROUNDING = 1e-12  # of cumulated shares
ROWS_A_NUMBER = 10  # rows of the smallest environment for each number of a component


def equal_shares(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Weights of each environment's rows as shares of all: they sum to one, environments alike."""
    there = sum(len(own) > 0 for own in weights)
    return [own / (own.sum() * there) for own in weights]


@dataclass(frozen=True, eq=False)
class Tail:
    """The distribution of the scores of held-out rows."""

    scores: np.ndarray  # [n], ascending
    shares: np.ndarray  # [n], of the rows that score at most as high
    start: float  # s_k: the tail lies below it
    start_share: float
    spread: float  # Σ (s_k − s_i)
    power: int  # k − 1

    @classmethod
    def of(cls, scores: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> Self:
        """From the scores of each environment's rows, and their weights if they have any."""
        everything = np.concatenate(scores)
        if len(everything) < 2:
            raise InputError(
                "one row cannot set thresholds; give more rows, or validation_fraction=0"
            )
        weight = np.concatenate(equal_shares(weights or [np.ones(len(own)) for own in scores]))
        order = everything.argsort(kind="stable")
        everything, weight = everything[order], weight[order]
        shares = weight.cumsum()
        power = max(1, min(LOWEST, len(everything) // 2) - 1)
        start = float(everything[power])
        below = np.average(start - everything[:power], weights=weight[:power])
        least = 1e-6 * max(1.0, abs(start))  # where all are alike
        spread = power * max(float(below), least)
        return cls(everything, shares, start, float(shares[power]), spread, power)

    def share(self, scores: np.ndarray) -> np.ndarray:
        """Share of the rows that score at most as high, in (0, 1]."""
        place = np.searchsorted(self.scores, scores, "right") - 1
        inside = self.shares[place.clip(0)].clip(max=1.0)
        depth = np.maximum(self.start - scores, 0) / self.spread
        return np.where(scores < self.start, self.start_share * (1 + depth) ** -self.power, inside)

    def threshold(self, share: float) -> float:
        """The score that only this share of the rows does not exceed."""
        if share < self.start_share:
            depth = (self.start_share / share) ** (1 / self.power) - 1
            return self.start - self.spread * depth
        place = int(np.searchsorted(self.shares, share + ROUNDING, "right")) - 1
        return float(self.scores[place])


@dataclass(frozen=True, eq=False)
class Densities:
    """A mixture for each environment, of the representation in units of its own spread."""

    form: Mixture
    parameters: np.ndarray  # [P]
    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    n_environments: int

    @classmethod
    def fit(cls, environments: Sequence[np.ndarray], components: int = 2) -> Self:
        """Fit on rows `[n, F]` of each environment; fewer components where rows are few."""
        rows = np.concatenate(environments)
        mean, scale = Scaling.of(rows)
        fewest = min(len(own) for own in environments)
        possible = fewest // (ROWS_A_NUMBER * (rows.shape[1] + 1))
        form = Mixture(int(np.clip(possible, 1, components)))
        with warnings.catch_warnings():  # EM that has not quite settled is still a density
            warnings.simplefilter("ignore", ConvergenceWarning)
            parameters = form.fit([(own - mean) / scale for own in environments])
        return cls(form, parameters, mean, scale, len(environments))

    def logs(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        rows = torch.as_tensor((z - self.mean) / self.scale, dtype=torch.float64)[None]
        flat = torch.as_tensor(self.parameters, dtype=torch.float64)[None]
        logs = self.form.log_density(flat, rows, self.n_environments, {})[0]  # [E, n]
        return logs.numpy().T - np.log(self.scale).sum()

    def mixed(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        return _mixed(self.logs(z))


def _mixed(logs: np.ndarray) -> np.ndarray:  # [n, E] -> [n]
    """Log density in the mixture of all environments, equal shares."""
    return logsumexp(logs, axis=1) - np.log(logs.shape[1])


class Judged(NamedTuple):
    """Everything that the evidence says of rows, from one look at their densities."""

    environments: np.ndarray  # [n, E], log density in every environment
    scores: np.ndarray  # [n], in their mixture
    rarity: np.ndarray  # [n], percentage of the held-out rows that score at most as high
    verdicts: np.ndarray  # [n], "supported", "rare" or "outside"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Densities of the training environments, and two thresholds for their mixture.

    Rows that score at most `rare` are rare, at most `outside` outside the evidence.
    """

    densities: Densities
    tail: Tail
    rare: float
    outside: float

    @classmethod
    def fit(
        cls,
        fitted: Sequence[np.ndarray],
        held_out: Sequence[np.ndarray],
        rare: float = 0.05,
        outside: float = 0.005,
        weights: Sequence[np.ndarray] | None = None,
    ) -> Self:
        """Fit the densities and set the thresholds.

        Parameters
        ----------
        fitted
            Representations `[n, F]` of each environment that the densities are fitted on.
        held_out
            Others of each environment, which set the thresholds.
        rare, outside
            Shares of the held-out rows that are to be called at least rare, and outside.
        weights
            Of the held-out rows; equal when not given.
        """
        if not 0 < outside <= rare < 1:
            raise InputError(
                f"rare and outside are shares of rows with 0 < outside <= rare < 1, not "
                f"{rare:g} and {outside:g}"
            )
        densities = Densities.fit(fitted)
        tail = Tail.of([densities.mixed(rows) for rows in held_out], weights)
        return cls(densities, tail, tail.threshold(rare), tail.threshold(outside))

    def score_environments(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        """Log density of every row in every environment."""
        return self.densities.logs(z)

    def score(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Log density in the mixture of all environments, equal shares."""
        return self.densities.mixed(z)

    def judge(self, z: np.ndarray) -> Judged:  # [n, F]
        logs = self.score_environments(z)
        scores = _mixed(logs)
        grade = (scores <= self.rare).astype(int) + (scores <= self.outside)
        verdicts = np.array(VERDICTS, dtype=object)[grade]
        return Judged(logs, scores, 100 * self.tail.share(scores), verdicts)

    def rarity(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Percentage of the held-out rows that score at most as high: 100 is the most common."""
        return self.judge(z).rarity

    def verdict(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """ "supported", "rare" or "outside"."""
        return self.judge(z).verdicts

    def nearest(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Number of the environment in which every row is most common."""
        return self.score_environments(z).argmax(1)


class Known(NamedTuple):
    """Rows of the training environments that were held out, and what became of them."""

    predictions: np.ndarray  # [n, C], class probabilities, or [n, 1] numbers
    losses: np.ndarray  # [n]
    environment: np.ndarray  # [n]
    shares: np.ndarray  # [n], sum to one, every environment counted alike

    @classmethod
    def of(cls, predictions: np.ndarray, losses: np.ndarray, weights: Sequence[np.ndarray]) -> Self:
        """Rows in the order of environments, with the weights of each environment's."""
        environment = np.repeat(np.arange(len(weights)), [len(own) for own in weights])
        return cls(predictions, losses, environment, np.concatenate(equal_shares(weights)))
