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

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu, t
from sklearn.metrics import roc_auc_score

from wri.datasets.columns import DistinctCells, as_category, as_number
from wri.diagnosis.new_site import SiteLoss, expect_loss
from wri.errors import InputError, shorten
from wri.estimators.pipeline import last_step
from wri.estimators.table_model import Assessment
from wri.evaluation.changes import SiteWord
from wri.evaluation.verdict import read_summary
from wri.number_text import write_number, write_percent, write_share
from wri.report.page import PageTable

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
    """Outcomes of rows beside their predictions; what is computed is computed once."""

    def __init__(self, model: Any, target: str) -> None:
        last = last_step(model)
        self.summary = read_summary(model)
        self.known, self.left_out = last.held_out_, last.left_out_
        self.labels: list[Any] | None = None
        if hasattr(last, "classes_"):
            self.labels = [as_category(label) for label in last.classes_.tolist()]
        self.loss_name = "squared error" if self.labels is None else "log-loss"
        self.target = target
        self.missing = 0
        self._y: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []

    def add(self, cells: pd.Series, judged: Assessment) -> None:
        """Add the outcomes of some rows; rows without one are counted and left out."""
        distinct = DistinctCells(cells)
        read = []
        for code, value in enumerate(distinct.values):
            try:
                read.append(np.nan if value is None else self._read(value))
            except (ValueError, TypeError, LookupError):
                row = cells.index[int((distinct.codes == code).argmax())]
                what = "a number"
                if self.labels is not None:
                    what = f"one of {', '.join(map(shorten, self.labels[:6]))}"
                raise InputError(
                    f"column {self.target!r}, row {row} is {shorten(repr(value))}, not {what}; "
                    "correct it, or leave the cell empty"
                ) from None
        codes = distinct.spread(read, np.nan, float)
        there = ~np.isnan(codes)
        self.missing += int((~there).sum())
        found: Any = judged.predictions[:, None] if self.labels is None else judged.probabilities
        self._y.append(codes[there])
        self._predicted.append(found[there].astype(float))

    def _read(self, value: Any) -> float:
        return as_number(value) if self.labels is None else self.labels.index(as_category(value))

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Outcomes, as codes or numbers, and predictions."""
        y, predicted = np.concatenate(self._y), np.concatenate(self._predicted)
        if not len(y):
            raise InputError(f"column {self.target!r} has no outcome; fill it in, or omit --target")
        return y, predicted

    @cached_property
    def _losses(self) -> tuple[np.ndarray, np.ndarray | None]:  # [n] each
        """Losses of the model and of the constant, if there is one."""
        y, predicted = self._rows
        own = self._row_losses(y, predicted)
        return own, None if self.summary is None else self._row_losses(y, self._guess(len(y)))

    def _guess(self, n: int) -> np.ndarray:  # [n, C]
        return np.tile([] if self.summary is None else self.summary.constant, (n, 1))

    def _row_losses(self, y: np.ndarray, predicted: np.ndarray) -> np.ndarray:  # [n, C] -> [n]
        if self.labels is None:
            return np.square(y - predicted[:, 0])
        return -np.log(np.maximum(predicted[np.arange(len(y)), y.astype(int)], TINY))

    def _measure(self, losses: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        y, found = self._rows[0], {"loss": float(losses.mean())}
        if self.labels is not None:
            return found | {"accuracy": float((predicted.argmax(1) == y.astype(int)).mean())}
        spread = float(np.square(y - y.mean()).sum())
        return found | ({"r2": 1 - float(losses.sum()) / spread} if spread else {})

    @cached_property
    def measures(self) -> dict[str, float]:
        """Loss, accuracy or R², and AUROC if both of two classes occur."""
        y, predicted = self._rows
        found = self._measure(self._losses[0], predicted)
        if self.labels is not None and len(self.labels) == 2 and 0 < y.mean() < 1:
            found["auroc"] = float(roc_auc_score(y.astype(int), predicted[:, 1]))
        return found

    @cached_property
    def constant(self) -> dict[str, float] | None:
        """Loss and accuracy or R² of the constant; None if the model has none."""
        losses = self._losses[1]
        return None if losses is None else self._measure(losses, self._guess(len(losses)))

    @cached_property
    def promised(self) -> SiteLoss | None:
        """Interval of the loss expected without the outcomes."""
        predicted = self._rows[1]
        step = -(-len(predicted) // MOST_ROWS)
        return expect_loss(self.known, self.left_out, predicted[::step])

    @property
    def _compared(self) -> str:
        """Losses of the model and of guessing, as part of a sentence."""
        own, guess = (write_number(np.mean(each)) for each in self._losses if each is not None)
        return f"{self.loss_name} {own}, guessing {guess}"

    @cached_property
    def alarms(self) -> tuple[str, ...]:
        """Alarms as parts of a sentence."""
        (y, predicted), (own, guess), said = self._rows, self._losses, []
        if guess is not None and (p := loss_p(own - guess)) <= LEVEL:
            said.append(f"the model is worse than guessing ({self._compared}; {_p_value(p)})")
        if "auroc" in self.measures and (p := ranking_p(y, predicted[:, 1])) <= LEVEL:
            area = write_number(self.measures["auroc"])
            said.append(f"it ranks the rows backwards (AUROC {area}; {_p_value(p)})")
        return tuple(said)

    def verdict(self) -> OutcomeVerdict:
        """Return whether the model holds here."""
        word = SiteWord.of(None) if self.summary is None else self.summary.word
        answer, sentence = self._decide(word)
        return OutcomeVerdict(answer, f"Does it hold at this {word.one}?", sentence, self.alarms)

    def _decide(self, word: SiteWord) -> tuple[HoldsAnswer, str]:
        own, guess = self._losses
        if self.alarms:
            return "no", f"No: {', and '.join(self.alarms)}. Do not use it here as it is."
        if guess is None:
            return "unknown", (
                "Unknown: the model was not saved by `wri fit`, so the loss of guessing is not "
                "known."
            )
        if loss_p(guess - own) > LEVEL:
            return "unclear", (
                f"Not shown: on these {len(own):,} rows, the difference from guessing may be "
                f"chance ({self._compared}). Collect more outcomes."
            )
        promised = self.promised
        if promised is not None and promised.high is not None and own.mean() > promised.high:
            return "care", (
                f"With care: it is better than guessing ({self._compared}), but worse than "
                f"expected for a {word.one} like the training {word.many}."
            )
        return "yes", f"Yes: it is better than guessing by more than chance ({self._compared})."

    def as_dict(self) -> dict[str, Any]:
        """Return the measures for JSON."""
        loss, promised = self.measures["loss"], self.promised
        low = None if promised is None else promised.low
        high = None if promised is None else promised.high
        kept = None if low is None or high is None else bool(low <= loss <= high)
        return {
            "rows": len(self._rows[0]),
            "missing": self.missing,
            **self.measures,
            "constant": self.constant,
            "alarms": list(self.alarms),
            "expected_loss": None if promised is None else promised.new,
            "low": low,
            "high": high,
            "level": None if promised is None else promised.level,
            "within_interval": kept,
        }

    def table(self) -> PageTable:
        """Return measures of the model and of the constant."""
        names = {"loss": self.loss_name, "accuracy": "accuracy", "r2": "R²", "auroc": "AUROC"}
        guesses = {"auroc": 0.5, **(self.constant or {})}
        lines = [
            [names[key], _write(key, value), _write(key, guesses.get(key))]
            for key, value in self.measures.items()
        ]
        lost = f" ({self.missing:,} without)" if self.missing else ""
        head = f"outcomes of {len(self._rows[0]):,} rows{lost}"
        return PageTable(caption="Outcomes", columns=[head, "model", "guessing"], rows=lines)

    def describe_guess(self) -> str:
        """Say what guessing is."""
        if self.summary is None:
            return ""
        if self.labels is None:
            mean = write_number(self.summary.constant[0])
            return f"Guessing always predicts {mean}, the training mean."
        each = zip(self.labels, self.summary.constant, strict=True)
        shares = ", ".join(f"{shorten(name)}: {write_percent(share, 2)}" for name, share in each)
        return f"Guessing always predicts the shares of training ({shares})."

    def describe_expected(self) -> str:
        """Compare the loss with what was expected without outcomes."""
        loss, promised = self.measures["loss"], self.promised
        if promised is None or promised.low is None or promised.high is None:
            return "No loss was predicted: that needs at least three training sites held out."
        said = (
            f"Without outcomes, the predicted {self.loss_name} at a site like the training sites "
            f"was {write_number(promised.low)} to {write_number(promised.high)} "
            f"({write_percent(promised.level)} interval). "
        )
        if loss > promised.high:
            return f"{said}The actual loss is larger: this site is of another kind."
        if loss < promised.low:
            return f"{said}The actual loss is smaller."
        said += "The actual loss lies in this interval"
        if self.constant is None or not promised.low <= self.constant["loss"] <= promised.high:
            return f"{said}."
        return f"{said}, and so does the loss of guessing."


def _p_value(p: float) -> str:
    return "P < 0.001" if p < 0.001 else f"P = {write_number(p, 2)}"


def _write(key: str, value: float | None) -> str:
    if value is None:
        return "–"
    if key == "accuracy":
        return write_share(value)
    return write_number(value, 4) if key == "loss" else f"{value:.3f}"
