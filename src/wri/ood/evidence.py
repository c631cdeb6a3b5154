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
from typing import Literal, NamedTuple, Self

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
NUMBERS_AT_ONCE = 1_000_000  # of double precision in one step of scoring

Combination = Literal["mean", "maximum"]


def equal_shares(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Weights of each environment's rows as shares of all: they sum to one, environments alike."""
    there = sum(len(own) > 0 for own in weights)
    return [own / (own.sum() * there) for own in weights]


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreTail:
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
        return cls(
            scores=everything,
            shares=shares,
            start=start,
            start_share=float(shares[power]),
            spread=spread,
            power=power,
        )

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


def common_scaling(environments: Sequence[np.ndarray]) -> Scaling:
    """One scale for all columns, the spread within environments; their proportions stay."""
    spread = np.sqrt(np.mean([own.var(0).mean() for own in environments])) or 1
    columns = environments[0][0]
    return Scaling(np.zeros_like(columns), np.full_like(columns, spread))


@dataclass(frozen=True, eq=False, kw_only=True)
class Densities:
    """A mixture for each environment, of the representation in given units."""

    form: Mixture
    parameters: np.ndarray  # [P]
    mean: np.ndarray  # [F]
    scale: np.ndarray  # [F]
    n_environments: int

    @classmethod
    def fit(
        cls,
        environments: Sequence[np.ndarray],
        form: Mixture | None = None,
        units: Scaling | None = None,
    ) -> Self:
        """Fit the densities by likelihood.

        Parameters
        ----------
        environments
            Rows `[n, F]` of each environment.
        form
            The mixture; when not given, two components, or one where rows are few.
        units
            Of the representation; when not given, each column's own mean and spread.
        """
        mean, scale = units or Scaling.of(np.concatenate(environments))
        form = form or _small_mixture(environments)
        with warnings.catch_warnings():  # EM that has not quite settled is still a density
            warnings.simplefilter("ignore", ConvergenceWarning)
            parameters = form.fit([(own - mean) / scale for own in environments])
        return cls(
            form=form,
            parameters=parameters,
            mean=mean.astype(float),
            scale=scale.astype(float),
            n_environments=len(environments),
        )

    def logs(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        """Log densities, in chunks of rows so that memory stays bounded."""
        with np.errstate(over="ignore", invalid="ignore"):  # rows beyond all bounds score −∞
            rows = torch.as_tensor((np.asarray(z, float) - self.mean) / self.scale)[None]
        flat = torch.as_tensor(self.parameters, dtype=torch.float64)[None]
        chunk = max(1, NUMBERS_AT_ONCE // (self.n_environments * self.form.components * z.shape[1]))
        found, volume = np.empty((len(z), self.n_environments)), np.log(self.scale).sum()
        for start, some in zip(range(0, len(z), chunk), rows.split(chunk, dim=1), strict=True):
            logs = self.form.log_density(flat, some, self.n_environments, {})[0]  # [E, chunk]
            found[start : start + chunk] = logs.numpy().T - volume
        found[np.isnan(found)] = -np.inf
        return found

    def mixed(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        return combine(self.logs(z))


def _small_mixture(environments: Sequence[np.ndarray]) -> Mixture:
    """Two components, or one where the smallest environment has few rows for their numbers."""
    fewest, width = min(len(own) for own in environments), environments[0].shape[1]
    return Mixture(int(np.clip(fewest // (ROWS_A_NUMBER * (width + 1)), 1, 2)))


def combine(logs: np.ndarray, by: Combination = "mean") -> np.ndarray:  # [n, E] -> [n]
    """The environments' log densities as one score.

    Parameters
    ----------
    logs
        Log density of each row in each environment.
    by
        "mean": log density in the mixture of all environments, equal shares; "maximum": the
        largest.
    """
    if by == "maximum":
        return logs.max(1)
    with np.errstate(invalid="ignore"):  # −∞ in every environment
        return logsumexp(logs, axis=1) - np.log(logs.shape[1])


class RowEvidence(NamedTuple):
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
    tail: ScoreTail
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
        tail = ScoreTail.of([densities.mixed(rows) for rows in held_out], weights)
        return cls(densities, tail, tail.threshold(rare), tail.threshold(outside))

    def score_environments(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        """Log density of every row in every environment."""
        return self.densities.logs(z)

    def score(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Log density in the mixture of all environments, equal shares."""
        return self.densities.mixed(z)

    def judge(self, z: np.ndarray) -> RowEvidence:  # [n, F]
        logs = self.score_environments(z)
        parts = np.array_split(logs, max(1, logs.size // NUMBERS_AT_ONCE))  # memory stays bounded
        scores = np.concatenate([combine(part) for part in parts])
        grade = (scores <= self.rare).astype(int) + (scores <= self.outside)
        verdicts = np.array(VERDICTS, dtype=object)[grade]
        return RowEvidence(logs, scores, 100 * self.tail.share(scores), verdicts)

    def rarity(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Percentage of the held-out rows that score at most as high: 100 is the most common."""
        return self.judge(z).rarity

    def verdict(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """ "supported", "rare" or "outside"."""
        return self.judge(z).verdicts

    def nearest(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Number of the environment in which every row is most common."""
        return self.score_environments(z).argmax(1)


class HeldOutRows(NamedTuple):
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
