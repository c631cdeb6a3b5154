"""Models that `wri fit` compares at sites held out, and the options that name them.

WRI at the preset's λ, 0.3 and 3 times of it; ERM      the rule keeps one of these
ERM without the flagged columns                        kept if asked for
ERM as a network, or as boosted trees                  shown: is a linear predictor enough?
logistic or ridge regression; a constant               shown: is anything learned?
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from sklearn.dummy import DummyClassifier, DummyRegressor

from wri.diagnosis.losses import plain_model
from wri.errors import InputError, check_option
from wri.estimators import ESTIMATORS
from wri.estimators.choice import has_penalty_weight
from wri.jobs import RUNNERS
from wri.registry import ALGORITHMS

DEFAULT = ("wri", "erm")
PATH = (0.3, 1.0, 3.0)  # λ of WRI, as multiples of the preset's
PLAIN, PLAIN_TREES, WITHOUT = "erm", "erm-boosting", "without"
NETWORK, TREES, REGRESSION, CONSTANT = "network", "trees", "regression", "constant"
PREDICTORS = ("linear", NETWORK, TREES)
HIDDEN = (32, 16)  # of the network that is tried
SECONDS = {NETWORK: (0.6, 4e-5), TREES: (8.0, 1.2e-3)}  # per fit: fixed, and per row
MOST_SECONDS = 20.0  # that other predictors may take unasked


@dataclass(frozen=True, kw_only=True)
class FitCandidate:
    """One model of the comparison."""

    name: str  # for --keep and JSON, such as "wri 2"
    label: str
    algorithm: str | None = None  # None: a plain model of scikit-learn
    penalty_weight: float | None = None
    hidden: tuple[int, ...] | None = None
    is_asked: bool = False  # whether the rule may keep it

    @property
    def is_plain(self) -> bool:
        """Whether it is ERM with all columns."""
        return self.name in (PLAIN, PLAIN_TREES)

    @property
    def is_keepable(self) -> bool:
        """Whether --keep may name it."""
        return self.is_asked or self.is_plain or self.name == WITHOUT


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of a fit: what is compared, and which model is kept."""

    algorithms: tuple[str, ...] = DEFAULT
    keep: str | None = None  # name of a candidate; None: the one with the least worst regret
    predictors: tuple[str, ...] | None = None  # None: those that take little time
    fast: bool = False  # no site is held out
    hidden: tuple[int, ...] | None = None
    steps: int | None = None
    seed: int = 0
    device: str = "auto"
    backend: str = "local"  # where fits run: "local" or "ray"

    def check(self) -> None:
        """Refuse unknown options."""
        for name in self.algorithms:
            check_option("--algorithms", name, tuple(ALGORITHMS))
        if not self.algorithms or len({*self.algorithms}) < len(self.algorithms):
            raise InputError("--algorithms must name at least one algorithm, and none twice")
        for name in self.predictors or ():
            check_option("--predictors", name, PREDICTORS)
        if self.predictors and TREES in self.predictors and find_spec("lightgbm") is None:
            raise InputError("--predictors trees needs LightGBM; install it, or leave trees out")
        check_option("--backend", self.backend, tuple(RUNNERS))
        self.kept_by_name()

    def kept_by_name(self) -> FitCandidate | None:
        """Return the candidate of --keep."""
        if self.keep is None:
            return None
        keepable = [each for each in self.candidates() if each.is_keepable]
        for each in keepable:
            if self._asked_name() == each.name:
                return each
        names = ", ".join(each.name for each in keepable)
        raise InputError(f"--keep must be one of {names} (or another λ), not {self.keep!r}")

    def shown(self, candidates: Sequence[FitCandidate]) -> list[FitCandidate]:
        """Return the candidates that the report may show in detail: those to be kept, and ERM."""
        kept = self.kept_by_name()
        return [c for c in candidates if c.is_plain or (c == kept if kept else c.is_asked)]

    def compared(self, kept: FitCandidate) -> list[FitCandidate]:
        """Return a model, and the ERM with the same predictor to compare it with."""
        erm = PLAIN_TREES if str(kept.algorithm).endswith("-boosting") else PLAIN
        return [kept, *(each for each in self.candidates() if each.name == erm != kept.name)]

    def _asked_name(self) -> str:
        """Return the name of the candidate that --keep means: "wri" is WRI at the preset's λ."""
        name, _, weight = " ".join((self.keep or "").lower().split()).partition(" ")
        if name not in ALGORITHMS or not has_penalty_weight(ALGORITHMS[name].objective):
            return f"{name} {weight}".strip()
        try:
            value = float(weight) if weight else self._preset_weight(name)
        except ValueError:
            value = -1.0
        if not 0 < value < float("inf"):
            raise InputError(
                f"--keep {self.keep!r}: λ must be a number above 0, as in --keep '{name} 3'; "
                "λ = 0 is --keep erm"
            )
        return f"{name} {value:g}"

    def candidates(self, rows: int = 0, sites: int = 1) -> list[FitCandidate]:
        """Return the models that are compared on so many rows and sites, in the table's order."""
        penalised = [n for n in self.algorithms if has_penalty_weight(ALGORITHMS[n].objective)]
        found = [self._of(name, weight) for name in penalised for weight in self._path(name)]
        families = dict.fromkeys(ALGORITHMS[name].boosted for name in self.algorithms)
        erm = [PLAIN_TREES if boosted else PLAIN for boosted in families]
        others = [name for name in self.algorithms if name not in penalised]
        found += [self._of(name) for name in dict.fromkeys((*others, *erm))]
        plain = PLAIN if PLAIN in erm else PLAIN_TREES
        found += [replace(self._of(plain), name=WITHOUT, label="ERM without", is_asked=False)]
        tried = self.tried(rows, sites)
        if NETWORK in tried and not self.hidden and PLAIN in erm:
            label = f"ERM, network {', '.join(map(str, HIDDEN))}"
            found += [FitCandidate(name=NETWORK, label=label, algorithm=PLAIN, hidden=HIDDEN)]
        if TREES in tried and PLAIN_TREES not in erm:
            found += [FitCandidate(name=TREES, label="ERM, boosted trees", algorithm=PLAIN_TREES)]
        return [
            *found,
            FitCandidate(name=REGRESSION, label="plain regression"),
            FitCandidate(name=CONSTANT, label="constant"),
        ]

    def tried(self, rows: int, sites: int) -> tuple[str, ...]:
        """Return the predictors that are tried: those asked for, or those that take little time."""
        if self.predictors is not None:
            return self.predictors
        left, found = MOST_SECONDS, ["linear"]
        for name, (fixed, per_row) in SECONDS.items():
            left -= sites * (fixed + per_row * rows)
            if left > 0 and (name != TREES or find_spec("lightgbm") is not None):
                found.append(name)
        return tuple(found)

    def _path(self, name: str) -> list[float]:
        """Return the λ of an algorithm that are tried."""
        centre = self._preset_weight(name)
        weights = {centre} if ALGORITHMS[name].boosted else {centre * k for k in PATH}
        if self.keep is not None and self._asked_name().startswith(f"{name} "):
            weights.add(float(self._asked_name().split()[1]))
        return sorted({float(f"{weight:g}") for weight in weights})

    def _preset_weight(self, name: str) -> float:
        """Return λ of an algorithm where nothing is flagged."""
        kind = ESTIMATORS[f"{ALGORITHMS[name].estimator}Classifier"]
        return float(kind()._default_penalty_weight() or 0.0)

    def default_weight(self) -> float | None:
        """Return λ of the model that is kept where nothing is flagged; None: no penalty."""
        for name in self.algorithms:
            if has_penalty_weight(ALGORITHMS[name].objective):
                return float(f"{self._preset_weight(name):g}")
        return None

    def _of(self, name: str, weight: float | None = None) -> FitCandidate:
        label = ALGORITHMS[name].label
        return FitCandidate(
            name=name if weight is None else f"{name} {weight:g}",
            label=label if weight is None else f"{label}, λ = {weight:g}",
            algorithm=name,
            penalty_weight=weight,
            hidden=self.hidden,
            is_asked=name in self.algorithms,
        )

    def make_model(self, candidate: FitCandidate, classes: bool, *, fold: bool = False) -> Any:
        """Make an unfitted model; one of a fold leaves no further site out."""
        if candidate.name == CONSTANT:
            return DummyClassifier(strategy="prior") if classes else DummyRegressor()
        if candidate.algorithm is None:
            return plain_model(classes)
        entry = ALGORITHMS[candidate.algorithm]
        kind = ESTIMATORS[f"{entry.estimator}{'Classifier' if classes else 'Regressor'}"]
        given: dict[str, Any] = {
            "penalty_weight": candidate.penalty_weight,
            "random_state": self.seed,
            "n_jobs": RUNNERS[self.backend].threads_per_job,
            "site_spread": not fold,
        }
        if not entry.boosted:
            given |= {"hidden": candidate.hidden, "steps": self.steps, "device": self.device}
        elif self.steps is not None:
            given["rounds"] = self.steps
        return kind(**given)
