"""Losses and scores of models at sites held out in turn, in every future.

    for each site e:   preprocessing, flagged columns and models are made from all others;
                       models are scored on e as it is (like), with the flagged columns permuted
                       (unrelated), and exchanged between outcomes (reversed)

Nothing of e is seen before the score. Two intervals follow:

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

from wri.diagnosis.changing_features import flagged_columns
from wri.errors import InputError, shorten
from wri.estimators.inputs import hash_rows
from wri.evaluation.futures import FUTURES, LIKE, REVERSED, UNRELATED, Future, future_rows
from wri.jobs import LocalRunner, Runner
from wri.ood.measures import auroc
from wri.progress import Progress, silent
from wri.rows import find_constant_columns
from wri.tables.candidates import CONSTANT, WITHOUT, FitCandidate
from wri.tables.column_names import owners_of
from wri.tables.fit_jobs import FitJob, run_fits

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
    model: str  # name of a candidate
    n: int
    score: float  # accuracy, or R²
    low: float
    high: float
    loss: float  # mean log-loss, or mean squared error
    unrelated: float  # the same if the flagged columns told nothing
    reversed: float  # the same if they told the opposite
    auroc: float | None  # of two classes that both occur

    def as_dict(self) -> dict[str, Any]:
        """Return the score for JSON, which has no infinity."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _finite(value) for name, value in plain.items()}


class ScoredRows(NamedTuple):
    """All rows, each scored by the model that had its site held out."""

    losses: np.ndarray  # [n], log-loss or squared error
    rarity: np.ndarray  # [n], per cent, higher = more common; NaN for plain models
    verdicts: np.ndarray  # [n]
    right: np.ndarray  # [n], whether the class is right; of numbers NaN


LOSSES = {LIKE: "loss", UNRELATED: "unrelated", REVERSED: "reversed"}  # fields of SiteScore


@dataclass(frozen=True, eq=False, kw_only=True)
class HeldOutScores:
    """Scores of all models at all sites held out."""

    environments: tuple[str, ...]
    candidates: tuple[FitCandidate, ...]
    classes: bool
    scores: tuple[SiteScore, ...]
    rows: Mapping[str, ScoredRows]  # by model
    flagged: Mapping[str, tuple[str, ...]]  # columns flagged without each site

    @property
    def measure(self) -> str:
        """Name of the score."""
        return "accuracy" if self.classes else "R²"

    @property
    def loss_name(self) -> str:
        return "log-loss" if self.classes else "squared error"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns flagged without some site, the most often flagged first."""
        names = [name for own in self.flagged.values() for name in own]
        return tuple(sorted({*names}, key=lambda name: -names.count(name)))

    @property
    def futures(self) -> tuple[Future, ...]:
        """Futures that differ: all, or only "like" if nothing is flagged."""
        return FUTURES if self.columns else (LIKE,)

    def of(self, model: str) -> list[SiteScore]:
        """Return the scores of one model, by site."""
        return [each for each in self.scores if each.model == model]

    def losses(self, model: str, future: Future = LIKE) -> np.ndarray:  # [E]
        """Return the mean loss of a model at each site in a future."""
        return np.array([getattr(each, LOSSES[future]) for each in self.of(model)])

    def mean(self, model: str, what: str = "score") -> SiteInterval:
        """Return the mean over sites with a 95 % interval of the mean."""
        return self._within(_over_sites([getattr(e, what) for e in self.of(model)], 0.0), what)

    def new_site(self, model: str, what: str = "score") -> SiteInterval:
        """Return the mean with the 95 % interval of one more site."""
        return self._within(_over_sites([getattr(e, what) for e in self.of(model)], 1.0), what)

    def _within(self, found: SiteInterval, what: str) -> SiteInterval:
        """Cut an interval at the bounds of its values."""
        lowest = 0.0 if what == "loss" or self.classes else -np.inf
        highest = np.inf if what == "loss" else 1.0  # accuracy and R²
        return SiteInterval(found.value, max(found.low, lowest), min(found.high, highest))

    def difference(self, first: str, second: str) -> SiteInterval:
        """Return the mean loss of the first minus that of the second, paired by site."""
        return _over_sites(self.losses(first) - self.losses(second), 0.0)


def _over_sites(values: Sequence[float] | np.ndarray, own: float) -> SiteInterval:
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


class SiteResult(NamedTuple):
    """What one site tells when it is held out."""

    flagged: tuple[str, ...]
    scores: list[SiteScore]
    rows: list[ScoredRows]


@dataclass(frozen=True, kw_only=True)
class HeldOutWork:
    """What is done with one site held out; it can be sent to a worker.

    Parameters
    ----------
    candidates : tuple of FitCandidate
        Models that are fitted.
    make_model : callable
        Makes the unfitted model of a candidate.
    make_preprocessing : callable or None
        Makes an unfitted pipeline, fitted on the training sites; None for rows of numbers, whose
        columns are not flagged.
    classes : bool
        Whether targets are classes.
    seed : int
        Of the bootstrap of blocks.
    """

    candidates: tuple[FitCandidate, ...]
    make_model: Callable[[FitCandidate], Any]
    make_preprocessing: Callable[[], Any] | None
    classes: bool
    seed: int

    def __call__(self, data: SiteData, job: FitJob) -> SiteResult:
        """Fit on all sites but one, and score that one."""
        name, inside = str(job.held_out), data.groups == job.held_out
        training, site = data.take(np.flatnonzero(~inside)), data.take(np.flatnonzero(inside))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is said of the models on all rows
            owners: tuple[str, ...] = ()
            if self.make_preprocessing is not None:
                prepare, raw = self.make_preprocessing(), [str(c) for c in training.X.columns]
                training = training._replace(X=np.asarray(prepare.fit_transform(training.X)))
                site = site._replace(X=np.asarray(prepare.transform(site.X)))
                owners = owners_of([str(c) for c in prepare.get_feature_names_out()], raw)
            columns = flag_columns(training, owners, self.classes)
            fold = _Fold(training, site, columns, self._order(site, columns))
            results = [self._score(each, fold, name) for each in self.candidates]
        flagged = tuple(dict.fromkeys(owners[k] for k in columns))
        return SiteResult(flagged, [each[0] for each in results], [each[1] for each in results])

    def _order(self, site: SiteData, flagged: np.ndarray) -> np.ndarray:
        """Return the site's rows in the order of their contents, in which futures are drawn."""
        if not len(flagged):
            return np.arange(len(site.y))
        return hash_rows(site.X, _codes(site.y, self.classes), 0).argsort(kind="stable")

    def _score(
        self, candidate: FitCandidate, fold: "_Fold", name: str
    ) -> tuple[SiteScore, ScoredRows]:
        """Fit one model and score it at the site held out, in every future."""
        training, site, flagged, _ = fold
        kept = np.arange(np.shape(site.X)[1])
        model = self.make_model(candidate)
        if candidate.name == WITHOUT and len(flagged) < len(kept):
            kept = np.setdiff1d(kept, flagged)
        elif candidate.name == WITHOUT:  # nothing is left to learn from
            model = self.make_model(FitCandidate(name=CONSTANT, label=""))
        _fit(model, training._replace(X=training.X[:, kept]), name)
        seen = _score_rows(model, site.X[:, kept], site.y, self.classes)
        interval = _interval(seen, site, self.classes, self.seed)
        futures = {future: fold.loss(model, kept, future, self.classes) for future in FUTURES}
        score = SiteScore(
            environment=name,
            model=candidate.name,
            n=len(site.y),
            score=interval.value,
            low=interval.low,
            high=interval.high,
            loss=futures[LIKE],
            unrelated=futures[UNRELATED],
            reversed=futures[REVERSED],
            auroc=_two_class_auroc(model, site.X[:, kept], site.y) if self.classes else None,
        )
        return score, seen


class _Fold(NamedTuple):
    """Preprocessed rows with one site held out, and the columns flagged without it."""

    training: SiteData
    site: SiteData
    flagged: np.ndarray
    order: np.ndarray  # of the site's rows by contents

    def loss(self, model: Any, kept: np.ndarray, future: Future, classes: bool) -> float:
        """Return a model's mean loss at the site in a future; rows in the order of contents."""
        x, y = self.site.X, self.site.y
        if future != LIKE:
            x, y = x[self.order], y[self.order]
        drawn = future_rows(x, _codes(y, classes), self.flagged, future, classes)
        return float(np.mean([_losses(model, rows[:, kept], y, classes).mean() for rows in drawn]))


def flag_columns(data: SiteData, owners: Sequence[str], classes: bool) -> np.ndarray:
    """Return the encoded columns of the raw columns whose relation to the target changes."""
    if not owners:
        return np.empty(0, int)
    site, y = np.unique(data.groups, return_inverse=True)[1], _codes(data.y, classes)
    compared = comparable_columns(data.X, owners)
    found = flagged_columns(data.X[:, compared], y, site, classes, blocks=data.blocks)
    names = {owners[compared[k]] for k in found}
    return np.flatnonzero([owner in names for owner in owners])


def comparable_columns(x: np.ndarray, owners: Sequence[str]) -> np.ndarray:
    """Return the columns whose slopes can be compared.

    Constant ones are left out, and the most common category of each column: it is the reference,
    without which slopes of categories are not determined.
    """
    kept = ~find_constant_columns(x)
    for owner in {*owners}:
        own = np.flatnonzero([name == owner for name in owners])
        own = own[np.isin(x[:, own], (0.0, 1.0)).all(0)]
        if len(own) > 1 and (x[:, own].sum(1) == 1).all():
            kept[own[x[:, own].mean(0).argmax()]] = False
    return np.flatnonzero(kept)


def _codes(y: np.ndarray, classes: bool) -> np.ndarray:
    return np.unique(y, return_inverse=True)[1] if classes else y.astype(float)


def hold_out_sites(
    data: SiteData,
    environments: Sequence[str],
    work: HeldOutWork,
    *,
    progress: Progress = silent,
    runner: Runner | None = None,
) -> HeldOutScores:
    """Fit every model on all sites but one and score it there, for each site.

    Parameters
    ----------
    data : SiteData
        Raw rows.
    environments : sequence of str
        Names of the sites in the order of the scores.
    work : HeldOutWork
        What is done with each.
    progress : callable, optional
        Called with the sites done and in all.
    runner : Runner, optional
        Where fits run; in this process by default.

    Returns
    -------
    HeldOutScores
    """
    jobs = [FitJob("the models", site) for site in environments]
    names = [each.name for each in work.candidates]
    held = {name: _no_rows(len(data.y)) for name in names}
    found: dict[str, SiteResult] = {}
    progress(0, len(jobs))
    for job, result in run_fits(runner or LocalRunner(), work, data, jobs):
        inside = data.groups == job.held_out
        for name, seen in zip(names, result.rows, strict=True):
            for every, own in zip(held[name], seen, strict=True):
                every[inside] = own
        found[str(job.held_out)] = result
        progress(len(found), len(jobs))
    return HeldOutScores(
        environments=tuple(environments),
        candidates=work.candidates,
        classes=work.classes,
        scores=tuple(score for site in environments for score in found[site].scores),
        rows=held,
        flagged={site: found[site].flagged for site in environments},
    )


def _no_rows(n: int) -> ScoredRows:
    return ScoredRows(np.zeros(n), np.zeros(n), np.zeros(n, object), np.zeros(n))


def _fit(model: Any, training: SiteData, held_out: str) -> None:
    grouped = {"groups": training.groups} if hasattr(model, "assess") else {}
    try:
        model.fit(training.X, training.y, **grouped)
    except InputError as error:
        raise InputError(
            f"with site {shorten(held_out)!r} held out: {error}. --fast holds none out"
        ) from error


def _score_rows(model: Any, X: np.ndarray, y: np.ndarray, classes: bool) -> ScoredRows:
    """Return loss, rarity and verdict of each row."""
    losses = _losses(model, X, y, classes)
    right = (model.predict(X) == y).astype(float) if classes else np.full(len(y), np.nan)
    if not hasattr(model, "assess"):
        return ScoredRows(losses, np.full(len(y), np.nan), np.full(len(y), "", object), right)
    found = model.assess(X)
    return ScoredRows(losses, found.rarity, found.verdicts, right)


def _losses(model: Any, X: np.ndarray, y: np.ndarray, classes: bool) -> np.ndarray:  # [n]
    """Return squared errors, or −log of the class's probability; unknown classes have the least."""
    if not classes:
        return np.asarray(np.square(model.predict(X) - y))
    place = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    known = model.classes_[place] == y
    found = np.where(known, model.predict_proba(X)[np.arange(len(y)), place], 0.0)
    return -np.log(found.clip(_SURE, 1.0))


def _interval(seen: ScoredRows, site: SiteData, classes: bool, seed: int) -> SiteInterval:
    if classes:
        return _accuracy(seen.right, site.blocks, seed)
    return _r2(site.y.astype(float), seen.losses, site.blocks, seed)


def _two_class_auroc(model: Any, X: np.ndarray, y: np.ndarray) -> float | None:
    if len(model.classes_) != 2 or set(np.unique(y)) != set(model.classes_):
        return None
    second = model.predict_proba(X)[:, 1]
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
