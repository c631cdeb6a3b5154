"""Scores of models at sites held out in turn.

    for each environment e:   preprocessing and models are fitted on all others, scored on e

A model makes its choices, such as the penalty weight, among the training sites, so nothing of e is
seen before the score. Two intervals follow:

    of a site's score    chance in its rows (or blocks of rows)
    of a new site        mean ± t_{E−1} · s · sqrt(1 + 1/E),   s: spread of the E scores

The second holds if a new site differs from these sites as they differ from each other.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest, t

from wri.errors import InputError, shorten
from wri.ood.measures import auroc
from wri.progress import Progress, silent
from wri.tables.fit_jobs import FitJob, JobRunner, LocalRunner

LEVEL = 0.95
DRAWS = 500  # of the bootstrap
_SURE = 1e-6  # smallest probability in a log-loss: a class unknown in training costs 14 nats


class SiteInterval(NamedTuple):
    """Number with a 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class SiteScore:
    """Score of one model at one site held out."""

    environment: str
    algorithm: str
    n: int
    score: float  # accuracy, or R²
    low: float
    high: float
    loss: float  # mean log-loss, or mean squared error
    auroc: float | None  # of two classes that both occur
    penalty_weight: float | None  # that the model chose

    def as_dict(self) -> dict[str, Any]:
        """Return the score for JSON, which has no infinity."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _finite(value) for name, value in plain.items()}


class ScoredRows(NamedTuple):
    """All rows, each scored by the model that had its site held out."""

    losses: np.ndarray  # [n], log-loss or squared error
    rarity: np.ndarray  # [n], per cent, higher = more common
    verdicts: np.ndarray  # [n]
    right: np.ndarray  # [n], whether the class is right; of numbers NaN


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldOutScores:
    """Scores of all algorithms at all sites held out."""

    environments: tuple[str, ...]
    algorithms: tuple[str, ...]
    classes: bool
    scores: tuple[SiteScore, ...]
    rows: Mapping[str, ScoredRows]  # by algorithm

    @property
    def measure(self) -> str:
        """Name of the score."""
        return "accuracy" if self.classes else "R²"

    @property
    def loss_name(self) -> str:
        return "log-loss" if self.classes else "squared error"

    def of(self, algorithm: str) -> list[SiteScore]:
        """Return the scores of one algorithm, by site."""
        return [each for each in self.scores if each.algorithm == algorithm]

    def losses(self) -> np.ndarray:  # [A, E]
        """Return the mean loss of each algorithm at each site."""
        return np.array([[each.loss for each in self.of(name)] for name in self.algorithms])

    def mean(self, algorithm: str, what: str = "score") -> SiteInterval:
        """Return the mean over sites with a 95 % interval of the mean."""
        return self._within(_over_sites([getattr(e, what) for e in self.of(algorithm)], 0.0), what)

    def new_site(self, algorithm: str, what: str = "score") -> SiteInterval:
        """Return the mean with the 95 % interval of one more site."""
        return self._within(_over_sites([getattr(e, what) for e in self.of(algorithm)], 1.0), what)

    def _within(self, found: SiteInterval, what: str) -> SiteInterval:
        """Cut an interval at the bounds of its values."""
        lowest = 0.0 if what == "loss" or self.classes else -np.inf
        highest = np.inf if what == "loss" else 1.0  # accuracy and R²
        return SiteInterval(found.value, max(found.low, lowest), min(found.high, highest))

    def difference(self, first: str, second: str) -> SiteInterval:
        """Return the mean loss of the first minus that of the second, paired by site."""
        pairs = zip(self.of(first), self.of(second), strict=True)
        return _over_sites([one.loss - other.loss for one, other in pairs], 0.0)


def _over_sites(values: Sequence[float], own: float) -> SiteInterval:
    """Return the mean with the interval of the mean (own = 0) or of one more value (own = 1)."""
    mean, count = float(np.mean(values)), len(values)
    half = t.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) * np.sqrt(own + 1 / count)
    return SiteInterval(mean, mean - float(half), mean + float(half))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


class SiteData(NamedTuple):
    """Rows, targets, sites and blocks."""

    X: Any  # DataFrame or array, [n, …]
    y: np.ndarray  # [n]
    groups: np.ndarray  # [n]
    blocks: np.ndarray | None  # [n]

    def take(self, rows: np.ndarray) -> "SiteData":
        """Return some of the rows."""
        X = self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]
        blocks = None if self.blocks is None else self.blocks[rows]
        return SiteData(X, self.y[rows], self.groups[rows], blocks)


@dataclass(frozen=True, kw_only=True)
class HeldOutWork:
    """What is done with one algorithm and one site held out; it can be sent to a worker.

    Parameters
    ----------
    make_model : callable
        Makes the unfitted estimator of an algorithm.
    make_preprocessing : callable or None
        Makes an unfitted transformer, fitted on the training sites; None for rows of numbers.
    classes : bool
        Whether targets are classes.
    seed : int
        Of the bootstrap of blocks.
    """

    make_model: Callable[[str], Any]
    make_preprocessing: Callable[[], Any] | None
    classes: bool
    seed: int

    def __call__(self, data: SiteData, job: FitJob) -> tuple[ScoredRows, SiteScore]:
        """Fit on all sites but one, and score that one."""
        site_name = str(job.held_out)
        inside = data.groups == site_name
        training, site = data.take(np.flatnonzero(~inside)), data.take(np.flatnonzero(inside))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is said of the models on all rows
            if self.make_preprocessing is not None:
                prepare = self.make_preprocessing()
                training = training._replace(X=prepare.fit_transform(training.X))
                site = site._replace(X=prepare.transform(site.X))
            model = self.make_model(job.algorithm)
            _fit(model, training, site_name)
            return _score(site_name, job.algorithm, model, site, self.classes, self.seed)


def hold_out_sites(
    data: SiteData,
    environments: Sequence[str],
    algorithms: Sequence[str],
    work: HeldOutWork,
    *,
    costs: Mapping[str, int] | None = None,
    progress: Progress = silent,
    runner: JobRunner | None = None,
) -> HeldOutScores:
    """Fit every algorithm on all environments but one and score it there, for each environment.

    Parameters
    ----------
    data : SiteData
        Raw rows.
    environments, algorithms : sequence of str
        Names in the order of the scores.
    work : HeldOutWork
        What is done with each.
    costs : mapping, optional
        Parts of the work that each algorithm is; one each by default.
    progress : callable, optional
        Called with the parts done and in all.
    runner : JobRunner, optional
        Where fits run; in this process by default.

    Returns
    -------
    HeldOutScores
    """
    costs = costs or dict.fromkeys(algorithms, 1)
    jobs = [FitJob(name, site) for site in environments for name in algorithms]
    done, total = 0, sum(costs[job.algorithm] for job in jobs)
    held: dict[str, ScoredRows] = {name: _no_rows(len(data.y)) for name in algorithms}
    scores: dict[FitJob, SiteScore] = {}
    progress(0, total)
    for job, (seen, score) in (runner or LocalRunner()).run(work, data, jobs):
        inside = data.groups == job.held_out
        for every, own in zip(held[job.algorithm], seen, strict=True):
            every[inside] = own
        scores[job] = score
        done += costs[job.algorithm]
        progress(done, total)
    return HeldOutScores(
        environments=tuple(environments),
        algorithms=tuple(algorithms),
        classes=work.classes,
        scores=tuple(scores[job] for job in jobs),
        rows=held,
    )


def _score(
    environment: str, algorithm: str, model: Any, site: SiteData, classes: bool, seed: int
) -> tuple[ScoredRows, SiteScore]:
    """Score a fitted model on a site's rows."""
    found = model.assess(site.X)
    seen = _score_rows(model, found, site.y, classes)
    interval = _interval(seen, site, classes, seed)
    score = SiteScore(
        environment=environment,
        algorithm=algorithm,
        n=len(site.y),
        score=interval.value,
        low=interval.low,
        high=interval.high,
        loss=float(seen.losses.mean()),
        auroc=_two_class_auroc(model, found.probabilities, site.y) if classes else None,
        penalty_weight=_finite(model.hyper_.get("penalty_weight")),
    )
    return seen, score


def _no_rows(n: int) -> ScoredRows:
    return ScoredRows(np.zeros(n), np.zeros(n), np.zeros(n, object), np.zeros(n))


def _fit(model: Any, training: SiteData, held_out: str) -> None:
    try:
        model.fit(training.X, training.y, groups=training.groups)
    except InputError as error:
        raise InputError(
            f"with environment {shorten(held_out)!r} held out: {error}. --fast holds none out"
        ) from error


def _score_rows(model: Any, found: Any, y: np.ndarray, classes: bool) -> ScoredRows:
    """Return loss, rarity and verdict of each row."""
    if not classes:
        losses, right = np.square(found.predictions - y), np.full(len(y), np.nan)
    else:
        losses = _log_losses(model, found.probabilities, y)
        right = (found.predictions == y).astype(float)
    return ScoredRows(losses, found.rarity, found.verdicts, right)


def _log_losses(model: Any, probabilities: np.ndarray, y: np.ndarray) -> np.ndarray:  # [n]
    """Return −log of the probability of the class; unknown classes have the smallest."""
    place = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    known = model.classes_[place] == y
    found = np.where(known, probabilities[np.arange(len(y)), place], 0.0)
    return -np.log(found.clip(_SURE, 1.0))


def _interval(seen: ScoredRows, site: SiteData, classes: bool, seed: int) -> SiteInterval:
    if classes:
        return _accuracy(seen.right, site.blocks, seed)
    return _r2(site.y.astype(float), seen.losses, site.blocks, seed)


def _two_class_auroc(model: Any, probabilities: np.ndarray, y: np.ndarray) -> float | None:
    if len(model.classes_) != 2 or set(np.unique(y)) != set(model.classes_):
        return None
    second = probabilities[:, 1]
    return auroc(second[y == model.classes_[1]], second[y == model.classes_[0]])


def _accuracy(right: np.ndarray, blocks: np.ndarray | None, seed: int) -> SiteInterval:
    mean, n = float(right.mean()), len(right)
    if blocks is None:
        low, high = binomtest(int(right.sum()), n).proportion_ci(LEVEL, "wilson")
        return SiteInterval(mean, float(low), float(high))
    sums = np.column_stack([np.ones(n), right])
    drawn = _resample(sums, blocks, seed)
    return SiteInterval(mean, *_ends(drawn[:, 1] / drawn[:, 0]))


def _r2(y: np.ndarray, losses: np.ndarray, blocks: np.ndarray | None, seed: int) -> SiteInterval:
    centred = y - y.mean()
    sums = np.column_stack([np.ones(len(y)), losses, centred, np.square(centred)])

    def of(total: np.ndarray) -> np.ndarray:  # [..., 4] -> [...]
        spread = total[..., 3] - total[..., 2] ** 2 / total[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            return 1 - total[..., 1] / spread

    drawn = _resample(sums, np.arange(len(y)) if blocks is None else blocks, seed)
    return SiteInterval(float(of(sums.sum(0))), *_ends(of(drawn)))


def _resample(sums: np.ndarray, blocks: np.ndarray, seed: int) -> np.ndarray:  # [n, K] -> [D, K]
    """Return totals of blocks drawn with replacement."""
    _, code = np.unique(
        blocks.astype(str) if blocks.dtype == object else blocks, return_inverse=True
    )
    each = np.stack([np.bincount(code, column) for column in sums.T], 1)  # [B, K]
    random = np.random.default_rng(seed)
    even = np.full(len(each), 1 / len(each))
    return np.stack([random.multinomial(len(each), even) @ each for _ in range(DRAWS)])


def _ends(values: np.ndarray) -> tuple[float, float]:
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
