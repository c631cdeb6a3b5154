"""Evidence: how common a row is in the training environments, and thresholds for rare rows.

    score(z) = log 1/E Σ_e d_e(z)

with one Gaussian mixture d_e per environment, so the score falls without bound in every direction
away from the training rows. Typicality is the percentage of held-out rows that score at most as
high, all environments with the same weight. Below the k = 10 lowest of them it is extrapolated as
if scores had exponential tails, as the log density of a Gaussian has:

    share(s) = share(s_k) · (1 + (s_k − s) / Σ_{i<k} (s_k − s_i))^{−(k − 1)}

so thresholds for a few in a thousand do not need thousands of rows.

Extreme outputs of a classifier are its confident ones, which lose less than others. So for
classifiers the evidence has two parts, and a row is as well supported as the weaker one says:

    support = log min(share(confidence), 30 · share(score))

with the log-odds of the predicted class as confidence. A row far from training counts from where it
is 30 times as rare as an equally unsure one. Typicality and the threshold of rare rows are then
those of the support. Only distance makes a row outside. The factor was chosen by how well the
support orders errors (docs/results/verdicts.md).

**Higher is more common**, for scores and for typicality.
"""

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from wri.densities import Mixture
from wri.errors import InputError
from wri.moved import OldName
from wri.rows import Scaling

VERDICTS = ("supported", "rare", "outside")
UNSURE, FAR = "low confidence", "far from training"
"""Reasons of the verdicts rare and outside."""
FAR_FACTOR = 30.0  # how much rarer than an unsure row a far row must be
LOWEST = 10  # rows from which the tail is estimated
ROUNDING = 1e-12  # of cumulated shares
ROWS_A_NUMBER = 10  # rows of the smallest environment per parameter of a component
MOST_ROWS = 8192  # of an environment, for its small mixture
NUMBERS_AT_ONCE = 1_000_000  # doubles per step of scoring

Combination = Literal["mean", "maximum"]


def equal_shares(weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return weights of each environment's rows as shares that sum to one, environments equal."""
    there = sum(len(own) > 0 for own in weights)
    return [own / (own.sum() * there) for own in weights]


@dataclass(frozen=True, eq=False)
class ScoreTail:
    """Distribution of the scores of held-out rows."""

    scores: np.ndarray  # [n], ascending
    shares: np.ndarray  # [n], of the rows that score at most as high
    power: int  # k − 1
    spread: float  # Σ (s_k − s_i)

    @classmethod
    def of(cls, scores: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None = None) -> Self:
        """Make the distribution from the scores of each environment's rows and their weights."""
        everything = np.concatenate(scores)
        if len(everything) < 2:
            raise InputError(
                "one row is too few for thresholds; give more rows, or validation_fraction=0"
            )
        weight = np.concatenate(equal_shares(weights or [np.ones(len(own)) for own in scores]))
        order = everything.argsort(kind="stable")
        everything, weight = everything[order], weight[order]
        shares = weight.cumsum()
        power = max(1, min(LOWEST, len(everything) // 2) - 1)
        start = float(everything[power])
        below = np.average(start - everything[:power], weights=weight[:power])
        least = 1e-6 * max(1.0, abs(start))  # if all are equal
        return cls(everything, shares, power, power * max(float(below), least))

    @property
    def _start(self) -> tuple[float, float]:
        """s_k, below which the tail lies, and its share."""
        return float(self.scores[self.power]), float(self.shares[self.power])

    def share(self, scores: np.ndarray) -> np.ndarray:
        """Return the share of rows that score at most as high, in (0, 1]."""
        start, start_share = self._start
        place = np.searchsorted(self.scores, scores, "right") - 1
        inside = self.shares[place.clip(0)].clip(max=1.0)
        depth = np.maximum(start - scores, 0) / self.spread
        return np.where(scores < start, start_share * (1 + depth) ** -self.power, inside)

    def threshold(self, share: float) -> float:
        """Return the score that this share of the rows does not exceed."""
        start, start_share = self._start
        if share < start_share:
            depth = (start_share / share) ** (1 / self.power) - 1
            return start - self.spread * depth
        place = int(np.searchsorted(self.shares, share + ROUNDING, "right")) - 1
        return float(self.scores[place])


def common_scaling(environments: Sequence[np.ndarray]) -> Scaling:
    """Return one scale for all columns: the spread within environments.

    The proportions between columns stay the same.

    Parameters
    ----------
    environments : sequence of ndarray of shape (n_e, F)
        Rows of each environment.

    Returns
    -------
    scaling : Scaling
        Mean 0 and one common scale.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.ood import common_scaling
    >>> common_scaling([np.array([[0.0, 0.0], [2.0, 4.0]])]).scale.round(3)
    array([1.581, 1.581])
    """
    spread = np.sqrt(np.mean([own.var(0).mean() for own in environments])) or 1
    columns = environments[0][0]
    return Scaling(np.zeros_like(columns), np.full_like(columns, spread))


@dataclass(frozen=True, eq=False, kw_only=True)
class Densities:
    """Gaussian mixtures of the representation, one per environment.

    Attributes
    ----------
    form : Mixture
        Kind of density.
    parameters : ndarray of shape (P,)
        Fitted parameters of all mixtures.
    mean : ndarray of shape (F,)
        Mean that is subtracted from rows.
    scale : ndarray of shape (F,)
        Scale by which rows are divided.
    n_environments : int
        Number of environments.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.ood import Densities
    >>> random = np.random.default_rng(0)
    >>> densities = Densities.fit([random.normal(size=(60, 1)), 5 + random.normal(size=(60, 1))])
    >>> densities.logs(np.array([[0.0], [5.0]])).argmax(1)
    array([0, 1])
    """

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
        """Fit the densities by maximum likelihood.

        Parameters
        ----------
        environments : sequence of ndarray of shape (n_e, F)
            Rows of each environment.
        form : Mixture or None, default=None
            The mixture. None: two components, or one if there are few rows, fitted to an even
            sample of the rows if there are more than 8192.
        units : Scaling or None, default=None
            Units of the representation. None: mean and spread of each column.

        Returns
        -------
        densities : Densities
            The fitted densities.
        """
        mean, scale = units or Scaling.of(np.concatenate(environments))
        form, sample = (form, np.asarray) if form else (_small_mixture(environments), _thin)
        with warnings.catch_warnings():  # EM that has not quite converged still gives a density
            warnings.simplefilter("ignore", ConvergenceWarning)
            parameters = form.fit([sample((own - mean) / scale) for own in environments])
        return cls(
            form=form,
            parameters=parameters,
            mean=mean.astype(float),
            scale=scale.astype(float),
            n_environments=len(environments),
        )

    def logs(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        """Return log densities, computed in chunks of rows to bound memory.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.

        Returns
        -------
        logs : ndarray of shape (n_rows, E)
            Log density of each row in each environment.
        """
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
        """Return log densities in the equal mixture of all environments.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
            Log densities.
        """
        return combine(self.logs(z))


def _thin(rows: np.ndarray) -> np.ndarray:  # [n, F] -> [m, F]
    """Return at most `MOST_ROWS` rows, evenly spaced by their distance from the middle."""
    if len(rows) <= MOST_ROWS:
        return rows
    order = np.square(rows).sum(1).argsort(kind="stable")
    return rows[order[((np.arange(MOST_ROWS) + 0.5) * len(rows) / MOST_ROWS).astype(int)]]


def _small_mixture(environments: Sequence[np.ndarray]) -> Mixture:
    """Make a mixture of two components, or one if the smallest environment has few rows."""
    fewest, width = min(len(own) for own in environments), environments[0].shape[1]
    return Mixture(int(np.clip(fewest // (ROWS_A_NUMBER * (width + 1)), 1, 2)))


def combine(logs: np.ndarray, by: Combination = "mean") -> np.ndarray:  # [n, E] -> [n]
    """Combine the log densities of the environments into one score.

    Parameters
    ----------
    logs : ndarray of shape (n_rows, E)
        Log density of each row in each environment.
    by : {"mean", "maximum"}, default="mean"
        "mean": log density in the equal mixture of all environments. "maximum": the largest.

    Returns
    -------
    scores : ndarray of shape (n_rows,)
        Scores; higher is more common.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.ood import combine
    >>> combine(np.log([[0.5, 0.1]])).round(3), combine(np.log([[0.5, 0.1]]), "maximum").round(3)
    (array([-1.204]), array([-0.693]))
    """
    if by == "maximum":
        return logs.max(1)
    with np.errstate(invalid="ignore"):  # −∞ in every environment
        return logsumexp(logs, axis=1) - np.log(logs.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class RowEvidence:
    """Evidence of rows, from one evaluation of their densities.

    Attributes
    ----------
    environments : ndarray of shape (n_rows, E)
        Log density in each environment.
    scores : ndarray of shape (n_rows,)
        Log density in their mixture.
    typicality : ndarray of shape (n_rows,)
        Percentage of the held-out rows that score at most as high.
    verdicts : ndarray of shape (n_rows,)
        "supported", "rare" or "outside".
    reasons : ndarray of shape (n_rows,)
        "low confidence" or "far from training"; empty for supported rows.
    """

    environments: np.ndarray  # [n, E], log density in every environment
    scores: np.ndarray  # [n], in their mixture
    typicality: np.ndarray  # [n], percentage of the held-out rows that score at most as high
    verdicts: np.ndarray  # [n], "supported", "rare" or "outside"
    reasons: np.ndarray  # [n], of the verdict; "" if it is "supported"

    rarity = OldName("typicality")


class ConfidenceTails(NamedTuple):
    """Distributions of the confidence and of the support of a classifier's held-out rows."""

    confidence: ScoreTail
    support: ScoreTail


@dataclass(frozen=True, eq=False)
class Evidence:
    """Densities of the training environments with two thresholds.

    Without confidences, rows that score at most `rare` in the mixture are rare, and rows that score
    at most `outside` are outside. With them the thresholds are of the support (see the module).

    Attributes
    ----------
    densities : Densities
        Densities of the environments.
    tail : ScoreTail
        Distribution of the scores of held-out rows.
    rare : float
        Threshold of rare rows.
    outside : float
        Threshold of rows outside the evidence.
    certainty : ConfidenceTails or None, default=None
        Distributions of the confidence and of the support; None without confidences.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.ood import Evidence
    >>> random = np.random.default_rng(0)
    >>> evidence = Evidence.fit([random.normal(size=(80, 1))], [random.normal(size=(80, 1))])
    >>> evidence.verdict(np.array([[0.0], [50.0]]))
    array(['supported', 'outside'], dtype=object)
    """

    densities: Densities
    tail: ScoreTail
    rare: float
    outside: float
    _: KW_ONLY
    certainty: ConfidenceTails | None = None

    @classmethod
    def fit(
        cls,
        fitted: Sequence[np.ndarray],
        held_out: Sequence[np.ndarray],
        rare: float = 0.05,
        outside: float = 0.005,
        weights: Sequence[np.ndarray] | None = None,
        confidence: Sequence[np.ndarray] | None = None,
    ) -> Self:
        """Fit the densities and set the thresholds.

        Parameters
        ----------
        fitted : sequence of ndarray of shape (n_e, F)
            Representations of each environment for the densities.
        held_out : sequence of ndarray of shape (m_e, F)
            Other rows of each environment for the thresholds.
        rare : float, default=0.05
            Share of the held-out rows called rare or outside.
        outside : float, default=0.005
            Share of the held-out rows called outside.
        weights : sequence of ndarray of shape (m_e,) or None, default=None
            Weights of the held-out rows. None: equal.
        confidence : sequence of ndarray of shape (m_e,) or None, default=None
            Log-odds of the predicted class of the held-out rows. None: distance alone counts.

        Returns
        -------
        evidence : Evidence
            The fitted evidence.

        Raises
        ------
        InputError
            If not 0 < outside <= rare < 1.
        """
        if not 0 < outside <= rare < 1:
            raise InputError(
                f"rare and outside must be shares with 0 < outside <= rare < 1, not "
                f"{rare:g} and {outside:g}"
            )
        densities = Densities.fit(fitted)
        scores = [densities.mixed(rows) for rows in held_out]
        tail = ScoreTail.of(scores, weights)
        if confidence is None:
            return cls(densities, tail, tail.threshold(rare), tail.threshold(outside))
        sure = ScoreTail.of(confidence, weights)
        pairs = zip(scores, confidence, strict=True)
        every = [np.minimum(_log_far(tail, own), np.log(sure.share(sures))) for own, sures in pairs]
        support = ScoreTail.of(every, weights)
        ends = support.threshold(rare), support.threshold(outside)
        return cls(densities, tail, *ends, certainty=ConfidenceTails(sure, support))

    @property
    def usual(self) -> tuple[float, float]:
        """Shares of training rows that are rare, and outside."""
        if self.certainty is None:
            rare, outside = self.tail.share(np.array([self.rare, self.outside]))
        else:
            rare = self.certainty.support.share(np.array([self.rare]))[0]
            outside = min(np.exp(self.outside) / FAR_FACTOR, rare)
        return float(rare - outside), float(outside)

    def score_environments(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, E]
        """Return the log density of each row in each environment.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.

        Returns
        -------
        logs : ndarray of shape (n_rows, E)
            Log densities.
        """
        return self.densities.logs(z)

    def score(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Return the log density of each row in the equal mixture of all environments.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_rows,)
            Log densities.
        """
        return self.densities.mixed(z)

    def judge(self, z: np.ndarray, confidence: np.ndarray | None = None) -> RowEvidence:  # [n, F]
        """Return densities, scores, typicality, verdicts and reasons of rows.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.
        confidence : ndarray of shape (n_rows,) or None, default=None
            Log-odds of their predicted classes, if the evidence was fitted with confidences.

        Returns
        -------
        evidence : RowEvidence
            Arrays with one entry per row.
        """
        logs = self.score_environments(z)
        parts = np.array_split(logs, max(1, logs.size // NUMBERS_AT_ONCE))  # memory stays bounded
        scores = np.concatenate([combine(part) for part in parts])
        if self.certainty is None:
            share, far, rare = self.tail.share(scores), scores, scores <= self.rare
            reasons = np.where(rare, FAR, "").astype(object)
        else:
            if confidence is None:
                raise InputError("the evidence was fitted with confidences; give those of the rows")
            far, sure = _log_far(self.tail, scores), self.certainty.confidence.share(confidence)
            support = np.minimum(far, np.log(sure))
            share, rare = self.certainty.support.share(support), support <= self.rare
            reasons = np.where(rare, np.where(far < np.log(sure), FAR, UNSURE), "").astype(object)
        grade = rare.astype(int) + (far <= self.outside)
        return RowEvidence(
            environments=logs,
            scores=scores,
            typicality=100 * share,
            verdicts=np.array(VERDICTS, dtype=object)[grade],
            reasons=reasons,
        )

    def typicality(self, z: np.ndarray, confidence: np.ndarray | None = None) -> np.ndarray:
        """Return the percentage of held-out rows that score at most as high.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.
        confidence : ndarray of shape (n_rows,) or None, default=None
            As in `judge`.

        Returns
        -------
        typicality : ndarray of shape (n_rows,)
            Percentages; 100 is the most common.
        """
        return self.judge(z, confidence).typicality

    rarity = OldName("typicality")

    def verdict(self, z: np.ndarray, confidence: np.ndarray | None = None) -> np.ndarray:
        """Return the verdict on each row.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.
        confidence : ndarray of shape (n_rows,) or None, default=None
            As in `judge`.

        Returns
        -------
        verdicts : ndarray of shape (n_rows,)
            "supported", "rare" or "outside".
        """
        return self.judge(z, confidence).verdicts

    def nearest(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n]
        """Return the environment in which each row is most common.

        Parameters
        ----------
        z : ndarray of shape (n_rows, F)
            Rows.

        Returns
        -------
        environment : ndarray of shape (n_rows,)
            Numbers of environments.
        """
        return self.score_environments(z).argmax(1)


def _log_far(tail: ScoreTail, scores: np.ndarray) -> np.ndarray:  # [n] -> [n]
    """Return the logarithm of the share of rows that score at most as high, times the factor."""
    with np.errstate(divide="ignore"):  # rows beyond all bounds have no share
        return np.log(FAR_FACTOR * tail.share(scores))
