"""Predictions for files of any length and folders of pictures: read, judged, written in chunks.

The output has the input's columns and, for each row, the prediction, its probability, how common
the row is, the verdict with its reasons and the nearest training environment. It is written
completely or not at all.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from wri.cli.writing import writer_for
from wri.datasets.image_folder import SUFFIXES
from wri.datasets.schema import TableSchema
from wri.datasets.table_files import TableFile, as_numbers, check_memory
from wri.errors import InputError, listed
from wri.estimators.pictures import UNREADABLE
from wri.estimators.pipeline import last_step
from wri.estimators.table_model import Assessment
from wri.evaluation.outcomes import Outcomes
from wri.ood.held_out import UnseenCount
from wri.report.pages.site_page import count_reasons

if TYPE_CHECKING:
    from wri.estimators.pictures import PictureClassifier

AT_ONCE = 512  # pictures
JUDGED = 10  # columns that take as much memory as the judgement of the rows, measured
Share = Callable[[float], None]


@dataclass(eq=False, kw_only=True)
class PredictionSummary:
    """Summary of the predictions for a file."""

    rows: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    nearest: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    unseen: dict[tuple[str, str], UnseenCount] = field(default_factory=dict)
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("reading", "evaluation", "writing"), 0.0)
    )
    ignored: tuple[str, ...] = ()  # columns that were not in training
    positive: Any = None  # class whose probability is written, if there are two
    outcomes: Outcomes | None = None
    clock: float = field(default_factory=time.perf_counter)

    def add_time(self, what: str) -> None:
        """Add the time since the last call."""
        before, self.clock = self.clock, time.perf_counter()
        self.seconds[what] += self.clock - before

    def count(self, judged: Assessment) -> None:
        """Add some rows."""
        self.rows += len(judged.predictions)
        self.verdicts.update(judged.verdicts.tolist())
        self.reasons.update(dict(count_reasons(judged.reasons)))
        for cells in judged.unseen:
            key, found = (cells.column, cells.kind), cells.counted
            self.unseen[key] = self.unseen[key].add(found) if key in self.unseen else found
        self.nearest.update(str(each) for each in judged.nearest.tolist() if each is not None)

    @property
    def unseen_counts(self) -> list[UnseenCount]:
        """Cells of kinds that training never had, by column."""
        return [replace(found, of=self.rows) for found in self.unseen.values()]

    def as_dict(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        outcomes = self.outcomes
        fit = None if outcomes is None else outcomes.summary
        return {
            "verdict": None if outcomes is None else outcomes.verdict()._asdict(),
            "futures": {} if fit is None else fit.futures,
            "kept": None if fit is None else fit.kept,
            "rows": self.rows,
            "verdicts": {name: self.verdicts[name] for name in ("supported", "rare", "outside")},
            "reasons": dict(self.reasons.most_common()),
            "unseen": [found.as_dict() for found in self.unseen_counts],
            "nearest": dict(self.nearest.most_common()),
            "probability_of": None if self.positive is None else str(self.positive),
            "ignored_columns": list(self.ignored),
            "seconds": {name: round(spent, 3) for name, spent in self.seconds.items()},
            "outcomes": None if outcomes is None else outcomes.as_dict(),
        }


@dataclass(frozen=True, eq=False)
class ModelColumns:
    """Columns of a table that a model takes, and how their cells are read."""

    names: tuple[str, ...]
    numbers: frozenset[str] | None  # None: whatever reads as numbers
    ignored: tuple[str, ...]
    missing: tuple[str, ...] = ()  # names that the table lacks; their cells are missing

    @classmethod
    def of(
        cls, model: Any, table: TableFile, aside: Collection[str] = (), *, fill: bool = False
    ) -> "ModelColumns":
        """Find a model's features in a table; `aside` are columns that are no features.

        Missing columns are an error; with `fill` up to half of them may be missing, if the model
        has a schema.
        """
        schema, numbers = TableSchema.of(model), None
        known = {*aside, last_step(model).environment} - {None}
        if schema is not None:
            names = list(schema.features)
            numbers = frozenset(c.name for c in schema.columns if c.kind == "number")
            known |= {column.name for column in schema.columns} | {schema.target}
        elif hasattr(model, "feature_names_in_"):
            names = [str(name) for name in model.feature_names_in_]
        else:
            names = [name for name in table.names if name not in known]
            if len(names) != model.n_features_in_:
                raise InputError(
                    f"the model was trained on {model.n_features_in_} columns without names, but "
                    f"{table.path} has {len(names)}: {listed(names)}; give a file with only those"
                )
        there = frozenset(table.names)
        missing = [name for name in names if name not in there]
        known |= {*names}
        ignored = [name for name in table.names if name not in known]
        if missing and not (fill and schema is not None and 2 * len(missing) <= len(names)):
            beside = f"; it has columns that were not in training: {listed(ignored)}"
            raise InputError(
                f"{table.path} has no column {listed(missing)}, which the model was trained on"
                f"{beside if ignored else ''}; add or rename columns"
            )
        return cls(tuple(names), numbers, tuple(ignored), tuple(missing))

    def take(self, chunk: pd.DataFrame, decimal: str) -> pd.DataFrame:
        """Return the features of some rows."""
        numeric = self.names if self.numbers is None else self.numbers
        chunk = chunk.assign(**dict.fromkeys(self.missing))
        read = {
            name: as_numbers(chunk[name], decimal) if name in numeric else chunk[name]
            for name in self.names
        }
        return pd.DataFrame(read, index=chunk.index, copy=False)


def predict_file(
    model: Any,
    table: TableFile,
    output: Path,
    *,
    keep: Collection[str] | None = None,
    target: str | None = None,
    prefix: str = "",
    progress: Share = lambda share: None,
) -> PredictionSummary:
    """Write a file's rows with predictions, chunk by chunk; `output` is replaced when complete.

    `keep` are the input's columns that the output has too, all when None. With `target`, a column
    of outcomes, it is measured how well the model holds. `prefix` comes before the names of added
    columns.
    """
    kept, aside = _check_kept(table, keep), [] if target is None else [target]
    features = ModelColumns.of(model, table, aside)
    if target is not None and target not in table.names:
        raise InputError(f"{table.path} has no column {target!r}, which --target names")
    outcomes = None if target is None else Outcomes(model, target)
    positive = positive_class(model)
    done = PredictionSummary(ignored=features.ignored, positive=positive, outcomes=outcomes)
    texts = {*kept, *aside} | {*features.names} - {*(features.numbers or ())}
    with writer_for(output, table) as write:
        for frame, share in table.chunks({*kept, *features.names, *aside}, texts):
            rows = features.take(frame, table.decimal)
            done.add_time("reading")
            judged = model.assess(rows)
            done.count(judged)
            if outcomes is not None:
                outcomes.add(frame[target], judged)
            done.add_time("evaluation")
            added = added_columns(model, judged, prefix).set_axis(frame.index)
            clash = [name for name in added if name in kept]
            if clash:
                raise InputError(
                    f"{table.path} has a column {listed(clash)} already; give --prefix, or --keep "
                    "other columns"
                )
            write(pd.concat([frame[kept], added], axis=1))
            done.add_time("writing")
            progress(share)
    return done


def positive_class(model: Any) -> Any:
    """Return the second of two classes; None for more classes and for numbers."""
    classes = np.asarray(getattr(model, "classes_", ()))
    return classes.tolist()[1] if len(classes) == 2 else None


def added_columns(model: Any, judged: Assessment, prefix: str = "") -> pd.DataFrame:
    """Return the columns that the output adds; the positive class of two is the second."""
    columns: dict[str, Any] = {"prediction": judged.predictions}
    if judged.probabilities is not None:
        shown = judged.probabilities.round(6)
        columns |= {f"probability_{c}": p for c, p in zip(model.classes_, shown.T, strict=True)}
        if shown.shape[1] == 2:
            columns = {"prediction": judged.predictions, "probability": shown[:, 1]}
    columns |= {
        "typicality": judged.typicality.round(4),
        "verdict": judged.verdicts,
        "reason": judged.reasons,
        "nearest": judged.nearest,
    }
    return pd.DataFrame({prefix + name: values for name, values in columns.items()}, copy=False)


def read_features(
    model: Any, table: TableFile, progress: Share = lambda share: None, memory: float = 4.0
) -> tuple[pd.DataFrame, ModelColumns]:
    """Read all features of a file at once, with missing cells for up to half of its columns.

    A file whose features would take more than `memory` GB is refused unread.
    """
    features = ModelColumns.of(model, table, fill=True)
    check_memory([table.path], memory, len(features.names) + JUDGED)
    there = [name for name in features.names if name not in features.missing]
    texts = {name for name in there if name not in (features.numbers or ())}
    pieces = []
    for frame, share in table.chunks(there, texts):
        pieces.append(features.take(frame, table.decimal))
        progress(share)
    return pd.concat(pieces), features


def _check_kept(table: TableFile, keep: Collection[str] | None) -> list[str]:
    if keep is None:
        return list(table.names)
    there = frozenset(table.names)
    unknown = [name for name in keep if name not in there]
    if unknown:
        raise InputError(
            f"{table.path} has no column {listed(unknown)}, which --keep names; it has "
            f"{listed(table.names)}"
        )
    return [name for name in table.names if name in keep]


def predict_pictures(
    model: "PictureClassifier",
    folder: Path,
    output: Path,
    target: str | None = None,
    prefix: str = "",
    progress: Share = lambda share: None,
) -> PredictionSummary:
    """Write a table with one row per picture in a folder and its subfolders, in their order.

    With `target` the outcome of a picture is the name of the folder that it lies in.
    """
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise InputError(f"{folder} holds no pictures ({', '.join(sorted(SUFFIXES))})")
    done = PredictionSummary(positive=positive_class(model))
    if target is not None:
        _check_class_folders(paths, model.classes_.tolist())
        done.outcomes = Outcomes(model.estimator_, target)
    with writer_for(output) as write:
        for start in range(0, len(paths), AT_ONCE):
            some = paths[start : start + AT_ONCE]
            judged = model.assess(some)
            done.count(judged)
            if done.outcomes is not None:
                readable = judged.verdicts != UNREADABLE
                labels = pd.Series([_class_of(path) for path in some], dtype=object)
                done.outcomes.add(labels.where(readable), judged)
            done.add_time("evaluation")
            added = added_columns(model, judged, prefix)
            added.insert(0, "picture", [str(path.relative_to(folder)) for path in some])
            write(added)
            done.add_time("writing")
            progress((start + len(some)) / len(paths))
    return done


def _class_of(path: Path) -> str:
    return normalize("NFC", path.parent.name)  # as `ImageFolder` names classes


def _check_class_folders(paths: Collection[Path], classes: Collection[Any]) -> None:
    """Refuse pictures outside of folders of the model's classes, before the first is read."""
    for path in paths:
        if _class_of(path) not in classes:
            raise InputError(
                f"--target class: {path} lies in no folder of a class of the model, "
                f"{listed([str(each) for each in classes])}; rename the folder, or omit --target"
            )
