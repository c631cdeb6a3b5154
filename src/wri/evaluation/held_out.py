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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binomtest

from wri.datasets.schema import owners_of
from wri.datasets.table_rows import TableRows
from wri.errors import InputError, shorten
from wri.estimators.network import Estimator
from wri.estimators.problem import fit_together
from wri.evaluation.candidates import CONSTANT, WITHOUT, FitCandidate
from wri.evaluation.changes import flag_columns, target_codes
from wri.futures import FUTURES, LIKE, REVERSED, UNRELATED, Future, future_rows
from wri.jobs import LocalRunner, Runner, run_calls
from wri.ood.measures import auroc
from wri.progress import Progress, silent
from wri.report.intervals import half_width
from wri.rows import hash_rows

LEVEL = 0.95
DRAWS = 500  # of the bootstrap
MIN_PROBABILITY = 1e-6  # in a log-loss: a class unknown in training costs 14 nats


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
        return {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in vars(self).items()
        }


class ScoredRows(NamedTuple):
    """All rows, each scored by the model that had its site held out."""

    losses: np.ndarray  # [n], log-loss or squared error
    typicality: np.ndarray  # [n], per cent, higher = more common; NaN of models not judged
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

    def mean_losses(self) -> dict[str, dict[Future, float]]:
        """Return the mean loss over sites by model and future."""
        return {
            each.name: {f: float(self.losses(each.name, f).mean()) for f in self.futures}
            for each in self.candidates
        }

    def mean(self, model: str, what: str = "score") -> SiteInterval:
        """Return the mean over sites with a 95 % interval of the mean."""
        return self._interval(model, what, 0.0)

    def new_site(self, model: str, what: str = "score") -> SiteInterval:
        """Return the mean with the 95 % interval of one more site."""
        return self._interval(model, what, 1.0)

    def _interval(self, model: str, what: str, own: float) -> SiteInterval:
        """Return an interval, cut at the bounds of its values."""
        found = _over_sites([getattr(each, what) for each in self.of(model)], own)
        lowest = 0.0 if what == "loss" or self.classes else -np.inf
        highest = np.inf if what == "loss" else 1.0  # accuracy and R²
        return SiteInterval(found.value, max(found.low, lowest), min(found.high, highest))

    def difference(self, first: str, second: str) -> SiteInterval:
        """Return the mean loss of the first minus that of the second, paired by site."""
        return _over_sites(self.losses(first) - self.losses(second), 0.0)


def _over_sites(values: Sequence[float] | np.ndarray, own: float) -> SiteInterval:
    """Return the mean with the interval of the mean (own = 0) or of one more value (own = 1)."""
    mean, count = float(np.mean(values)), len(values)
    error = float(np.std(values, ddof=1) * np.sqrt(own + 1 / count))
    half = half_width(error, count - 1, LEVEL)
    return SiteInterval(mean, mean - half, mean + half)


Columns = slice | np.ndarray
SiteResult = tuple[tuple[str, ...], list[tuple[SiteScore, ScoredRows]]]
"""Columns flagged without a site, and the score and rows of each model there."""


@dataclass(frozen=True, kw_only=True)
class HeldOutWork:
    """What is done with one site held out; it can be sent to a worker."""

    candidates: tuple[FitCandidate, ...]
    make_model: Callable[[FitCandidate], Any]  # unfitted
    make_preprocessing: Callable[[], Any] | None  # None: rows of numbers, never flagged
    judged: frozenset[str]  # candidates whose rows get verdicts
    seed: int  # of the bootstrap of blocks

    def __call__(self, rows: TableRows, name: str) -> SiteResult:
        """Fit on all sites but one, and score that one."""
        inside = rows.groups == name
        training, site = rows.take(np.flatnonzero(~inside)), rows.take(np.flatnonzero(inside))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is said of the models on all rows
            if self.make_preprocessing is not None:
                prepare, raw = self.make_preprocessing(), [str(c) for c in training.X.columns]
                x = np.asarray(prepare.fit_transform(training.X))
                owners = owners_of([str(c) for c in prepare.get_feature_names_out()], raw)
                training = replace(training, X=x, owners=owners)
                site = replace(site, X=np.asarray(prepare.transform(site.X)))
            flagged = flag_columns(training)
            names = tuple(dict.fromkeys(training.owners[k] for k in flagged))
            models = self._fit(training, flagged, name)
            del training  # as large as the table
            y, drawn = _draw_futures(site, flagged)
            results = [self._score(*each, site, y, drawn) for each in models]
        return names, results

    def _fit(
        self, training: TableRows, flagged: np.ndarray, held_out: str
    ) -> list[tuple[FitCandidate, Any, Columns]]:
        """Fit all models; return each with its candidate and the columns that it uses."""
        every: Columns = slice(None)
        fits = []
        for each in self.candidates:
            model, columns = self.make_model(each), every
            if each.name == WITHOUT and len(flagged) < training.X.shape[1]:
                columns = np.setdiff1d(np.arange(training.X.shape[1]), flagged)
            elif each.name == WITHOUT:  # nothing is left to learn from
                model = self.make_model(FitCandidate(name=CONSTANT, label=""))
            fits.append((each, model, columns))
        joint = [fit for fit in fits if isinstance(fit[1], Estimator)]
        try:
            for without in (False, True):
                own = [fit for fit in joint if (fit[0].name == WITHOUT) is without]
                if own:
                    judges = [model for each, model, _ in own if each.name in self.judged]
                    x = training.X[:, own[0][2]]
                    models = [model for _, model, _ in own]
                    fit_together(models, x, training.y, training.groups, judges)
            for _, model, columns in fits:
                if not isinstance(model, Estimator):
                    grouped = {"groups": training.groups} if hasattr(model, "assess") else {}
                    model.fit(training.X[:, columns], training.y, **grouped)
        except InputError as error:
            raise InputError(
                f"with site {shorten(held_out)!r} held out: {error}. --fast holds none out"
            ) from error
        return fits

    def _score(
        self,
        candidate: FitCandidate,
        model: Any,
        kept: Columns,
        site: TableRows,
        y: np.ndarray,
        drawn: Mapping[Future, Sequence[np.ndarray]],
    ) -> tuple[SiteScore, ScoredRows]:
        """Score a model at the site held out, in every future."""
        x, classes = site.X[:, kept], site.classes
        seen = _score_rows(model, x, site.y, classes)
        if classes:
            interval = _accuracy(seen.right, site.blocks, self.seed)
        else:
            interval = _r2(site.y.astype(float), seen.losses, site.blocks, self.seed)
        broken = {}
        for future, tables in drawn.items():
            losses = [_losses(model, each[:, kept], y, classes).mean() for each in tables]
            broken[LOSSES[future]] = float(np.mean(losses))
        score = SiteScore(
            environment=str(site.groups[0]),
            model=candidate.name,
            n=len(site.y),
            score=interval.value,
            low=interval.low,
            high=interval.high,
            loss=float(seen.losses.mean()),
            **broken,
            auroc=_two_class_auroc(model, x, site.y) if classes else None,
        )
        return score, seen


def _draw_futures(
    site: TableRows, flagged: np.ndarray
) -> tuple[np.ndarray, dict[Future, list[np.ndarray]]]:
    """Return a site's targets in the order of its rows' contents, and its columns if that broke."""
    codes, order = target_codes(site), np.arange(len(site.y))
    if len(flagged):
        order = hash_rows(site.X, codes, 0).argsort(kind="stable")
    x, y = site.X[order], codes[order]
    drawn = {
        future: [*future_rows(x, y, flagged, future, site.classes)]
        for future in (UNRELATED, REVERSED)
    }
    return site.y[order], drawn


def hold_out_sites(
    rows: TableRows, work: HeldOutWork, *, progress: Progress = silent, runner: Runner | None = None
) -> HeldOutScores:
    """Fit every model on all sites but one and score it there, for each site."""
    sites, n = tuple(rows.environments), len(rows.y)
    held = {
        each.name: ScoredRows(np.zeros(n), np.zeros(n), np.zeros(n, object), np.zeros(n))
        for each in work.candidates
    }
    found: dict[str, SiteResult] = {}
    progress(0, len(sites))
    with warnings.catch_warnings():  # here too: threads restore each other's filters
        warnings.simplefilter("ignore")
        describe = "the fit of the models without site {!r}".format
        for site, result in run_calls(runner or LocalRunner(), work, rows, sites, describe):
            inside = rows.groups == site
            for score, seen in result[1]:
                for every, own in zip(held[score.model], seen, strict=True):
                    every[inside] = own
            found[site] = result
            progress(len(found), len(sites))
    return HeldOutScores(
        environments=sites,
        candidates=work.candidates,
        classes=rows.classes,
        scores=tuple(score for site in sites for score, _ in found[site][1]),
        rows=held,
        flagged={site: found[site][0] for site in sites},
    )


def _score_rows(model: Any, X: np.ndarray, y: np.ndarray, classes: bool) -> ScoredRows:
    """Return loss, typicality and verdict of each row."""
    losses = _losses(model, X, y, classes)
    right = (model.predict(X) == y).astype(float) if classes else np.full(len(y), np.nan)
    if not hasattr(model, "evidence_"):
        return ScoredRows(losses, np.full(len(y), np.nan), np.full(len(y), "", object), right)
    found = model.assess(X)
    return ScoredRows(losses, found.typicality, found.verdicts, right)


def _losses(model: Any, X: np.ndarray, y: np.ndarray, classes: bool) -> np.ndarray:  # [n]
    """Return squared errors, or −log of the class's probability; unknown classes have the least."""
    if not classes:
        return np.asarray(np.square(model.predict(X) - y))
    place = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)
    known = model.classes_[place] == y
    found = np.where(known, model.predict_proba(X)[np.arange(len(y)), place], 0.0)
    return -np.log(found.clip(MIN_PROBABILITY, 1.0))


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
