"""Output of a fit: a folder with the model and its report, and a JSON document."""

import os
import tempfile
from pathlib import Path
from typing import Any

from wri.diagnosis import environment_overlap
from wri.errors import InputError, shorten
from wri.estimators.model_folder import REPORT, check_target
from wri.report.blocks import Page
from wri.report.page import render_page
from wri.tables.diagnosing import Answer, NamedColumns, ask
from wri.tables.fitting import TableFit, prepared_columns
from wri.tables.staging import open_stage
from wri.tables.verdict import verdict_document


def check_output(folder: Path) -> None:
    """Refuse a folder that cannot take a model, before the training.

    Parameters
    ----------
    folder
        A new or empty folder, or one with a saved model and its report and nothing else.
    """
    try:
        target = folder.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        check_target(target)
        with tempfile.TemporaryFile(dir=target if target.exists() else target.parent):
            pass
    except InputError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"-o {shorten(folder)} cannot be written to: {reason}") from error


def write_model(model: Any, page: Page, folder: Path) -> Path:
    """Write a model and its report, completely or not at all.

    Parameters
    ----------
    model
        With a method `save`.
    page
        The report.
    folder
        As `check_output` allows.

    Returns
    -------
    Path
        The report.
    """
    target = folder.resolve()
    data = render_page(page).encode("utf-8", errors="replace")
    with open_stage(target) as aside:
        stage = aside / "model"
        model.save(stage)
        (stage / REPORT).write_bytes(data)
        if target.exists() and any(target.iterdir()):
            # the record is replaced in one step; saving deletes the old report, so none is stale
            model.save(target)
            os.replace(stage / REPORT, target / REPORT)
        else:
            if target.exists():
                target.rmdir()
            os.replace(stage, target)
    return folder / REPORT


def diagnose_fit(fit: TableFit, most: int) -> tuple[dict[str, Answer], int | None]:
    """Diagnose a fit's rows; return the answers and the number of rows if sampled.

    Parameters
    ----------
    fit
        What was fitted.
    most
        Rows that are looked at; more are drawn from.
    """
    x, names = prepared_columns(fit.model, fit.data.X)
    own = fit.data
    columns = NamedColumns(x=x, names=names, owners=names, y=own.y, groups=own.groups)
    seen = columns.sample(most, fit.options.seed).varying()
    answers = {"overlap": ask("overlap", lambda: environment_overlap(seen.frame, seen.groups))}
    return answers, len(seen.y) if len(seen.y) < len(x) else None


def fit_document(fit: TableFit) -> dict[str, Any]:
    """Return a fit for JSON: `verdict`, `futures`, `kept`, `held_out` and more."""
    held, kept = fit.held_out, fit.kept
    new = None if held is None else held.new_site(kept.name)
    return {
        **verdict_document(fit.verdict, held),
        "kept": {
            "model": kept.name,
            "algorithm": kept.algorithm,
            "penalty_weight": fit.estimator.hyper_.get("penalty_weight"),
            "why": fit.verdict.kept,
        },
        "held_out": [] if held is None else [each.as_dict() for each in held.scores],
        "new_site": None
        if new is None
        else {"measure": "accuracy" if fit.classes else "r2", "low": new.low, "high": new.high},
        "task": "classes" if fit.classes else "numbers",
        "environments": dict(fit.environments),
        "columns": [] if fit.schema is None else [c.as_dict() for c in fit.schema.columns],
        "warnings": list(fit.warnings),
        "seed": fit.options.seed,
        "seconds": round(fit.seconds, 2),
    }
