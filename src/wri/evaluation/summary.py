"""Summary of a fit that is saved with its model: the verdict, the futures and the constant.

`wri site` and `wri predict --target` read it. Models that Python saved, and folders of older
versions, have none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from wri.datasets.schema import TableSchema
from wri.errors import InputError
from wri.estimators.pipeline import last_step
from wri.evaluation.candidates import CONSTANT
from wri.evaluation.changes import SiteWord
from wri.evaluation.verdict import VerdictWord, name_candidate
from wri.futures import FUTURES, LIKE, REVERSED, UNRELATED, Future
from wri.saving.values import as_json

if TYPE_CHECKING:
    from wri.evaluation.fitting import TableFit


@dataclass(frozen=True, kw_only=True)
class FitSummary:
    """What a fit measured, for use at a new site."""

    target: str
    site: str | None  # column of sites
    answer: VerdictWord
    kept: str  # name of the model, a key of futures
    label: str
    constant: tuple[float, ...]  # shares of the classes, or the mean of the target
    futures: Mapping[str, Mapping[Future, float]]  # mean loss by model; empty: not measured
    columns: tuple[str, ...]  # flagged without some site, which the futures change
    reversed_at: Mapping[str, tuple[str, ...]]  # flagged columns, sites with the other sign

    @property
    def word(self) -> SiteWord:
        """The user's word for a site."""
        return SiteWord.of(self.site)

    @property
    def flagged(self) -> tuple[str, ...]:
        """Columns whose relation to the target changes between the training sites."""
        return tuple(self.reversed_at)

    def loss(self, future: Future, model: str | None = None) -> float | None:
        """Return the mean loss of the kept or another model at sites held out, in a future."""
        return self.futures.get(self.kept if model is None else model, {}).get(future)

    @property
    def likely_break(self) -> Future:
        """The future to be ready for: reversed if some training site has shown it."""
        return REVERSED if any(self.reversed_at.values()) else UNRELATED

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {**asdict(self), "futures": {k: dict(v) for k, v in self.futures.items()}}


def summarise_fit(fit: "TableFit") -> FitSummary:
    """Summarise a fit."""
    held, y = fit.held_out, fit.rows.y
    if fit.classes:
        constant = tuple(float(np.mean(y == label)) for label in fit.estimator.classes_)
    else:
        constant = (float(y.mean()),)
    return FitSummary(
        target=fit.rows.target,
        site=fit.rows.environment,
        answer=fit.verdict.answer,
        kept=fit.kept.name,
        label=name_candidate(fit.kept, () if held is None else held.columns, fit.classes),
        constant=constant,
        futures={} if held is None else held.mean_losses(),
        columns=() if held is None else held.columns,
        reversed_at={each.column: each.reversed_at for each in fit.verdict.changes},
    )


def attach_summary(fit: "TableFit") -> None:
    """Put the summary of a fit on its model, to be saved with it."""
    last_step(fit.model).fit_summary_ = as_json(summarise_fit(fit).as_dict())


def read_summary(model: Any) -> FitSummary | None:
    """Return the summary of a loaded model; None if it has none."""
    found = getattr(last_step(model), "fit_summary_", None)
    if found is None:
        return None
    try:
        summary = _decode(found)
        _check(summary, model)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            f"the model's fit_summary is damaged ({error!r:.80}); fit it again"
        ) from error
    return summary


def _decode(found: Mapping[str, Any]) -> FitSummary:
    site = found["site"]
    return FitSummary(
        target=_text(found["target"]),
        site=None if site is None else _text(site),
        answer=found["answer"],
        kept=_text(found["kept"]),
        label=_text(found["label"]),
        constant=tuple(map(float, found["constant"])),
        futures={
            _text(name): {FUTURES[FUTURES.index(f)]: float(loss) for f, loss in losses.items()}
            for name, losses in found["futures"].items()
        },
        columns=tuple(map(_text, found["columns"])),
        reversed_at={_text(k): tuple(map(_text, v)) for k, v in found["reversed_at"].items()},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def _check(summary: FitSummary, model: Any) -> None:
    """Raise a ValueError unless the values are possible for this model."""
    classes = getattr(last_step(model), "classes_", None)
    numbers = [loss for own in summary.futures.values() for loss in own.values()]
    shares = np.array(summary.constant)
    possible = (
        summary.answer in get_args(VerdictWord)
        and all({LIKE} <= {*own} for own in summary.futures.values())
        and (not summary.futures or {summary.kept, CONSTANT} <= {*summary.futures})
        and np.isfinite([*numbers, *shares]).all()
        and min(numbers, default=0.0) >= 0
        and len(shares) == (1 if classes is None else len(classes))
        and (classes is None or (shares.min() > 0 and abs(shares.sum() - 1) < 1e-6))
    )
    if not possible:
        raise ValueError("impossible values")


def used_columns(summary: FitSummary, model: Any) -> tuple[str, ...]:
    """Return the flagged columns that the model uses."""
    schema = TableSchema.of(model)
    return tuple(c for c in summary.flagged if schema is None or c in schema.features)
