"""Measures of a model on rows with known outcomes, collected chunk by chunk.

    loss    mean of −log p(y), or of (y − ŷ)²
    score   accuracy, or R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²
    AUROC   of two classes

They are shown beside those of a constant, the shares of the classes or the mean in training, and
beside the interval of the loss that the model expected without the outcomes. Two alarms do not
depend on the interval; each has a one-sided level of 2.5 %, so together at most 5 %:

    loss    mean of (loss − the constant's loss) over rows above zero, Student's t with Johnson's
            correction for skewness (1978)
    AUROC   below 0.5, Mann and Whitney's test

`benchmarks/site_answers.py alarms` counts false alarms.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu, t
from sklearn.metrics import roc_auc_score

from wri.datasets.columns import DistinctCells, as_category, as_number
from wri.diagnosis.new_site import SiteLoss, expect_loss
from wri.errors import InputError, shorten
from wri.estimators.pipeline import last_step
from wri.estimators.problem import Assessment
from wri.evaluation.changes import SiteWord
from wri.evaluation.summary import FitSummary, read_summary
from wri.number_text import write_number, write_percent, write_share

LEVEL = 0.025  # of each alarm
FEWEST = 30  # rows that an alarm needs
MOST_ROWS = 1_000_000  # from which the expected interval is computed
TINY = float(np.finfo(float).tiny)


HoldsAnswer = Literal["yes", "care", "unclear", "no", "unknown"]


class OutcomeVerdict(NamedTuple):
    """Whether the model holds at the site of the rows."""

    answer: HoldsAnswer
    question: str
    sentence: str
    alarms: tuple[str, ...]


def loss_p(excess: np.ndarray) -> float:  # [n]
    """Return the P-value of a mean loss above the constant's, from the differences by row."""
    n = len(excess)
    if n < FEWEST or np.ptp(excess) == 0:
        return 1.0
    mean, variance = float(excess.mean()), float(excess.var(ddof=1))
    skew = float(np.power(excess - mean, 3).mean())  # losses are skewed, most of all in few rows
    adjusted = mean + skew / (6 * variance * n) + skew * mean**2 / (3 * variance**2)
    return float(t.sf(adjusted * (n / variance) ** 0.5, n - 1))


def ranking_p(y: np.ndarray, probability: np.ndarray) -> float:  # [n], [n]
    """Return the P-value of an AUROC below 0.5."""
    if len(y) < FEWEST or y.min() == y.max():
        return 1.0
    positive, negative = probability[y == 1], probability[y == 0]
    return float(mannwhitneyu(positive, negative, alternative="less").pvalue)


class Outcomes:
    """Outcomes of rows beside their predictions."""

    def __init__(self, model: Any, target: str) -> None:
        last = last_step(model)
        self.summary: FitSummary | None = read_summary(model)
        self.known, self.left_out = last.held_out_, last.left_out_
        self.classes = getattr(last, "classes_", None)
        self.target = target
        self.missing = 0
        self._y: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []

    def add(self, cells: pd.Series, judged: Assessment) -> None:
        """Add the outcomes of some rows; rows without one are counted and left out."""
        distinct = DistinctCells(cells)
        codes = distinct.spread(
            [
                self._read(value, cells, distinct, code)
                for code, value in enumerate(distinct.values)
            ],
            np.nan,
            float,
        )
        there = ~np.isnan(codes)
        self.missing += int((~there).sum())
        found = judged.predictions[:, None] if self.classes is None else judged.probabilities
        assert found is not None
        self._y.append(codes[there])
        self._predicted.append(found[there].astype(float))

    def _read(self, value: Any, cells: pd.Series, distinct: DistinctCells, code: int) -> float:
        if value is None:
            return np.nan
        try:
            if self.classes is None:
                return as_number(value)
            return self._places()[as_category(value)]
        except (ValueError, TypeError, LookupError):
            row = cells.index[int((distinct.codes == code).argmax())]
            what = "a number" if self.classes is None else f"one of {self._named()}"
            raise InputError(
                f"column {self.target!r}, row {row} is {shorten(repr(value))}, not {what}; correct "
                "it, or leave the cell empty"
            ) from None

    def _places(self) -> dict[str, int]:
        return {as_category(label): place for place, label in enumerate(self.classes.tolist())}  # type: ignore[union-attr]

    def _named(self) -> str:
        return ", ".join(shorten(name) for name in list(self._places())[:6])

    @property
    def rows(self) -> int:
        return sum(len(part) for part in self._y)

    @property
    def loss_name(self) -> str:
        return "squared error" if self.classes is None else "log-loss"

    def rows_of(self) -> tuple[np.ndarray, np.ndarray]:
        """Return outcomes, as codes or numbers, and predictions."""
        y, predicted = np.concatenate(self._y), np.concatenate(self._predicted)
        if not len(y):
            raise InputError(f"column {self.target!r} has no outcome; fill it in, or omit --target")
        return y, predicted

    def _losses(self, y: np.ndarray, predicted: np.ndarray) -> np.ndarray:  # [n], [n, C] -> [n]
        if self.classes is None:
            return np.square(y - predicted[:, 0])
        return -np.log(np.maximum(predicted[np.arange(len(y)), y.astype(int)], TINY))

    def _measure(self, y: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        losses = self._losses(y, predicted)
        found = {"loss": float(losses.mean())}
        if self.classes is not None:
            return found | {"accuracy": float((predicted.argmax(1) == y.astype(int)).mean())}
        spread = float(np.square(y - y.mean()).sum())
        return found | ({"r2": 1 - float(losses.sum()) / spread} if spread else {})

    def measures(self) -> dict[str, float]:
        """Return loss, accuracy or R², and AUROC if both of two classes occur."""
        y, predicted = self.rows_of()
        found = self._measure(y, predicted)
        if self.classes is not None and len(self.classes) == 2 and 0 < y.mean() < 1:
            found["auroc"] = float(roc_auc_score(y.astype(int), predicted[:, 1]))
        return found

    def constant(self) -> dict[str, float] | None:
        """Return loss and accuracy or R² of the constant; None if the model has none."""
        y = self.rows_of()[0]
        return None if self.summary is None else self._measure(y, self._guess(len(y)))

    def _guess(self, n: int) -> np.ndarray:  # [n, C]
        assert self.summary is not None
        return np.tile(self.summary.constant, (n, 1))

    def promised(self) -> SiteLoss | None:
        """Return the interval of the loss expected without the outcomes."""
        predicted = np.concatenate(self._predicted)
        step = -(-len(predicted) // MOST_ROWS)
        return expect_loss(self.known, self.left_out, predicted[::step])

    def alarms(self) -> tuple[str, ...]:
        """Return the alarms as parts of a sentence."""
        y, predicted = self.rows_of()
        said = []
        if self.summary is not None:
            own, guess = self._losses(y, predicted), self._losses(y, self._guess(len(y)))
            p = loss_p(own - guess)
            if p <= LEVEL:
                said.append(
                    f"the model is worse than guessing ({self.loss_name} "
                    f"{write_number(own.mean())} against {write_number(guess.mean())}; "
                    f"{_chance(p)})"
                )
        if self.classes is not None and len(self.classes) == 2:
            p = ranking_p(y, predicted[:, 1])
            if p <= LEVEL:
                area = write_number(roc_auc_score(y.astype(int), predicted[:, 1]))
                said.append(f"it ranks the rows backwards (AUROC {area}; {_chance(p)})")
        return tuple(said)

    def verdict(self) -> OutcomeVerdict:
        """Return whether the model holds here."""
        word = SiteWord.of(None) if self.summary is None else self.summary.word
        answer, sentence, alarms = *self._decide(word), self.alarms()
        if alarms:
            answer, sentence = "no", f"No: {', and '.join(alarms)}. Do not use it here as it is."
        return OutcomeVerdict(answer, f"Does it hold at this {word.one}?", sentence, alarms)

    def _decide(self, word: SiteWord) -> tuple[HoldsAnswer, str]:
        """Decide where there is no alarm."""
        y, predicted = self.rows_of()
        own = self._losses(y, predicted)
        if self.summary is None:
            return "unknown", (
                "Unknown: the folder keeps no constant to compare with; a model of `wri fit` does."
            )
        guess = self._losses(y, self._guess(len(y)))
        beside = f"{self.loss_name} {write_number(own.mean())} against {write_number(guess.mean())}"
        if loss_p(guess - own) > LEVEL:
            return "unclear", (
                f"Not shown: in these {len(y):,} rows it differs from guessing by no more than "
                f"chance ({beside}). Collect more outcomes."
            )
        promised = self.promised()
        if promised is not None and promised.high is not None and own.mean() > promised.high:
            return "care", (
                f"With care: it is better than guessing ({beside}), but worse than expected for a "
                f"{word.one} like the training {word.many}."
            )
        return "yes", f"Yes: it is better than guessing ({beside}), by more than chance."

    def as_dict(self) -> dict[str, Any]:
        """Return the measures for JSON."""
        measures, promised = self.measures(), self.promised()
        low = None if promised is None else promised.low
        high = None if promised is None else promised.high
        kept = None if low is None or high is None else bool(low <= measures["loss"] <= high)
        return {
            "rows": self.rows,
            "missing": self.missing,
            **measures,
            "constant": self.constant(),
            "alarms": list(self.alarms()),
            "expected_loss": None if promised is None else promised.new,
            "low": low,
            "high": high,
            "level": None if promised is None else promised.level,
            "within_interval": kept,
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and lines: measures of the model and of the constant."""
        found = self.as_dict()
        constant = found["constant"] or {}
        lost = f" ({found['missing']:,} without)" if found["missing"] else ""
        lines = []
        for key, name in (
            *(("loss", self.loss_name), ("accuracy", "accuracy")),
            *(("r2", "R²"), ("auroc", "AUROC")),
        ):
            if key in found:
                guess = 0.5 if key == "auroc" else constant.get(key)
                cells = [_write(key, found[key]), "–" if guess is None else _write(key, guess)]
                lines.append([name, *cells])
        return [f"outcomes of {found['rows']:,} rows{lost}", "model", "guessing"], lines

    def describe_guess(self) -> str:
        """Say what guessing is."""
        if self.summary is None:
            return ""
        if self.classes is None:
            return f"Guessing: always {write_number(self.summary.constant[0])}, the training mean."
        each = zip(self._places(), self.summary.constant, strict=True)
        shares = ", ".join(f"{shorten(name)}: {write_percent(share, 2)}" for name, share in each)
        return f"Guessing: always the shares of training ({shares})."

    def describe_expected(self) -> str:
        """Compare the loss with what was expected without outcomes."""
        found = self.as_dict()
        if found["within_interval"] is None:
            return "No interval was expected: it needs at least three training sites held out."
        span = f"{write_number(found['low'])} to {write_number(found['high'])}"
        said = (
            f"Without outcomes, a {self.loss_name} of {span} was to be expected at a site like the "
            f"training sites ({write_percent(found['level'])} interval). "
        )
        if found["loss"] > found["high"]:
            return f"{said}The actual loss is larger: this site is of another kind."
        if found["loss"] < found["low"]:
            return f"{said}The actual loss is smaller."
        constant = found["constant"]
        if constant is not None and constant["loss"] <= found["high"]:
            return f"{said}The actual loss lies in it, but so does guessing: it promised nothing."
        return f"{said}The actual loss lies in it."


def _chance(p: float) -> str:
    share = "less than 0.1 %" if p < 0.001 else write_percent(p, 2)
    return f"chance would do this in {share} of tables"


def _write(key: str, value: float) -> str:
    if key == "accuracy":
        return write_share(value)
    return write_number(value, 4) if key == "loss" else f"{value:.3f}"
