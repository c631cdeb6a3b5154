"""Predictions for a folder of pictures, in the order of their paths."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wri.datasets.image_folder import SUFFIXES
from wri.errors import InputError
from wri.tables.predicting import PredictionSummary, Share, added_columns, positive_class
from wri.tables.writing import writer_for

if TYPE_CHECKING:
    from wri.estimators.pictures import PictureClassifier

AT_ONCE = 512  # pictures


def predict_pictures(
    model: "PictureClassifier", folder: Path, output: Path, prefix: str = "", progress: Any = None
) -> PredictionSummary:
    """Write a table with one row per picture in a folder and its subfolders.

    Parameters
    ----------
    model
        A fitted classifier of pictures.
    folder
        Pictures, in folders or not.
    output
        A .csv or .parquet.
    prefix
        Before the names of the columns that are added to `picture`.
    progress
        Called with the share that is done.
    """
    report: Share = progress or (lambda share: None)
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise InputError(f"{folder} holds no pictures ({', '.join(sorted(SUFFIXES))})")
    done = PredictionSummary(positive=positive_class(model))
    with writer_for(output) as writer:
        for start in range(0, len(paths), AT_ONCE):
            some, begun = paths[start : start + AT_ONCE], time.perf_counter()
            judged = model.assess(some)
            judged_at = time.perf_counter()
            added = added_columns(model, judged, prefix)
            added.insert(0, "picture", [str(path.relative_to(folder)) for path in some])
            writer.write(added)
            done.count(judged)
            done.seconds["evaluation"] += judged_at - begun
            done.seconds["writing"] += time.perf_counter() - judged_at
            report((start + len(some)) / len(paths))
    return done
