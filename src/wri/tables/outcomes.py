"""Measures of a model on rows with known outcomes, collected chunk by chunk.

    loss    mean of −log p(y), or of (y − ŷ)²
    score   accuracy, or R² = 1 − Σ(y − ŷ)² / Σ(y − ȳ)²
    AUROC   of two classes

They are shown beside the interval of the loss that the model expected without the outcomes.
"""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from wri.diagnosis.new_site import SiteLoss, expect_loss
from wri.errors import InputError, shorten
from wri.estimators.columns import DistinctCells, as_category, as_number
from wri.estimators.pipeline import last_step
from wri.estimators.verdicts import Assessment
from wri.number_text import write_number

MOST_ROWS = 1_000_000  # from which the expected interval is computed
TINY = float(np.finfo(float).tiny)


class Outcomes:
    """Outcomes of rows beside their predictions."""

    def __init__(self, model: Any, target: str) -> None:
        last = last_step(model)
        self.known, self.left_out = last.known_, last.left_out_
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

    def measures(self) -> dict[str, float]:
        """Return loss, accuracy or R², and AUROC if both of two classes occur."""
        y, predicted = np.concatenate(self._y), np.concatenate(self._predicted)
        if not len(y):
            raise InputError(f"column {self.target!r} has no outcome; fill it in, or omit --target")
        if self.classes is None:
            squared = np.square(y - predicted[:, 0])
            spread = float(np.square(y - y.mean()).sum())
            r2 = {"r2": 1 - float(squared.sum()) / spread} if spread else {}
            return {"loss": float(squared.mean()), **r2}
        place = y.astype(int)
        own = predicted[np.arange(len(y)), place]
        found = {
            "loss": float(-np.log(np.maximum(own, TINY)).mean()),
            "accuracy": float((predicted.argmax(1) == place).mean()),
        }
        if len(self.classes) == 2 and 0 < place.mean() < 1:
            found["auroc"] = float(roc_auc_score(place, predicted[:, 1]))
        return found

    def promised(self) -> SiteLoss | None:
        """Return the interval of the loss expected without the outcomes."""
        predicted = np.concatenate(self._predicted)
        step = -(-len(predicted) // MOST_ROWS)
        return expect_loss(self.known, self.left_out, predicted[::step])

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
            "expected_loss": None if promised is None else promised.new,
            "low": low,
            "high": high,
            "level": None if promised is None else promised.level,
            "within_interval": kept,
        }

    def as_lines(self) -> list[str]:
        """Return the measures as lines of text."""
        found = self.as_dict()
        what = "squared error" if self.classes is None else "log-loss"
        score = [f"{what} {write_number(found['loss'], 4)}"]
        score += [f"accuracy {found['accuracy']:.1%}"] if "accuracy" in found else []
        score += [f"R² {found['r2']:.3f}"] if "r2" in found else []
        score += [f"AUROC {found['auroc']:.3f}"] if "auroc" in found else []
        lost = f" ({found['missing']:,} without an outcome)" if found["missing"] else ""
        lines = [f"outcomes of {found['rows']:,} rows{lost}: {', '.join(score)}"]
        if found["within_interval"] is None:
            return [*lines, "no interval was expected: it needs at least three training sites"]
        word = "met" if found["within_interval"] else "NOT met"
        span = f"{write_number(found['low'], 4)} to {write_number(found['high'], 4)}"
        lines.append(f"expected {what} {span} ({found['level']:.0%} interval): {word}")
        if not found["within_interval"]:
            lines.append(
                "this site is not like the training sites: look at `wri diagnose` on all rows with "
                "this site added, and fit again with it"
            )
        return lines
