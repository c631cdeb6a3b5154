"""The command `wri fit`."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wri.cli import options
from wri.cli.console import (
    ProgressBar,
    echo,
    echo_wrapped,
    ending_cleanly,
    print_note,
    show_table,
)
from wri.errors import InputError

if TYPE_CHECKING:
    from wri.datasets.table_rows import TableRows
    from wri.evaluation.candidates import FitOptions
    from wri.evaluation.fitting import TableFit

MOST_COLUMNS = 30  # listed
MOST_FILES = 12
FitToWrite = tuple["TableFit", Any, Any, dict[str, Any]]  # with model, page and JSON


def fit(
    files: options.Files,
    output: options.Output,
    target: options.Target = None,
    env: options.Env = None,
    env_from_file: options.EnvFromFile = False,
    number: options.Number = None,
    category: options.Category = None,
    drop: options.Drop = None,
    task: options.TaskName = None,
    blocks: options.Blocks = None,
    images: options.Images = False,
    algorithms: options.Algorithms = None,
    keep: options.Keep = None,
    predictors: options.Predictors = None,
    fast: options.Fast = False,
    hidden: options.Hidden = None,
    steps: options.Steps = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    memory: options.Memory = options.MEMORY,
    backend: options.Backend = "local",
    as_json: options.AsJson = False,
) -> None:
    """Fit a model, and answer whether it will hold at a new site.

    Each site is held out in turn. WRI, ERM and simpler models are trained on the other sites and
    scored on it: as it is, and with the columns whose relation to the target changes between sites
    shuffled or reversed. Of WRI and ERM, the model with the smallest worst regret is kept, trained
    on all rows, and saved with a report. A folder of Parquet files may be larger than memory: with
    `--fast` it is read in chunks.

    Examples:

    `wri fit rows.csv --target sick --env hospital -o model/`

    `wri fit site_*.csv --env-from-file --target sick --drop id,date --keep 'wri 3' -o model/`

    `wri fit parts/ --target y --env site --fast -o model/`

    Exit codes: 0 done, 2 wrong input (one sentence names the problem), 3 Ray was lost, 130
    interrupted, 143 terminated (the last three leave nothing half-written).
    """
    from wri.cli.writing import check_model_output, write_model
    from wri.evaluation.candidates import DEFAULT, FitOptions

    asked = FitOptions(
        algorithms=tuple(name.lower() for name in algorithms or DEFAULT),
        keep=keep,
        predictors=None if predictors is None else tuple(predictors),
        fast=fast,
        hidden=options.read_hidden(hidden),
        steps=steps,
        seed=seed,
        device=device,
        backend=backend,
    )
    asked.check()
    check_model_output(output)
    with ending_cleanly():
        if images:
            found = _fit_pictures(files, asked)
        else:
            target = options.check_columns(target, env, env_from_file)
            columns = {"target": target, "environment": env, "task": task, "leave_out": drop or ()}
            read = {"delimiter": delimiter, "encoding": encoding, "blocks": blocks}
            kinds = options.kinds_of(number, category)
            with _read_all(files, asked, columns, read | {"memory": memory}) as (rows, fit_all):
                found = _fit_rows(rows, partial(fit_all, rows, asked), kinds, as_json)
        fitted, model, page, more = found
        report = write_model(model, page, output)
    if as_json:
        more |= {"model": str(output), "report": str(report)}
        echo(json.dumps(_fit_document(fitted) | more))
    else:
        _show_verdict(fitted, shlex.quote(str(output)), report)


@contextmanager
def _read_all(
    files: list[Path], asked: "FitOptions", columns: dict[str, Any], read: dict[str, Any]
) -> "Iterator[tuple[TableRows, Callable[..., TableFit]]]":
    """Yield the rows of files or of a folder, and what fits them; in chunks with --fast."""
    from wri.datasets.parquet_folders import Folder, files_in_memory, find_files, scan_folder
    from wri.datasets.table_rows import read_rows
    from wri.evaluation.fitting import fit_table
    from wri.evaluation.folder_fit import check_folder_options, fit_folder
    from wri.jobs import open_runner

    path = files[0] if len(files) == 1 and files[0].is_dir() else None
    if path is None or not asked.fast:
        paths = files if path is None else files_in_memory(path, read["memory"])
        yield read_rows(paths, **columns, **read), fit_table
        return
    if columns["environment"] is None or read["blocks"] is not None:
        raise InputError("a folder with --fast needs --env, and allows no --blocks")
    check_folder_options(asked)
    with open_runner(asked.backend) as runner:
        folder = Folder(path, find_files(path), runner, print_note)
        print_note(f"--fast: no site is held out; {len(folder.files)} files are read in chunks")
        with ProgressBar("reading") as bar:
            rows = scan_folder(folder, progress=bar.step, **columns)
        yield rows, partial(fit_folder, folder=folder)


def _fit_rows(
    rows: "TableRows", fit_all: Callable[..., "TableFit"], kinds: dict[str, str], as_json: bool
) -> FitToWrite:
    from wri.evaluation.fitting import find_schema
    from wri.evaluation.verdict import attach_summary
    from wri.report.pages.fit_page import build_fit_page

    schema = find_schema(rows, kinds)
    if not as_json:
        _show_rows(rows, schema)
    with ProgressBar("fitting") as bar:
        fitted = fit_all(schema=schema, progress=bar.step)
        bar.describe("report")
        files = {each.described: each.sha256 for each in rows.files}
        page = build_fit_page(fitted, files, options.command_line())
    attach_summary(fitted)
    return fitted, fitted.model, page, {"files": [asdict(each) for each in rows.files]}


def _show_rows(rows: "TableRows", schema: Any) -> None:
    """Print what was read, so that a wrong guess is seen before the training."""
    import numpy as np

    from wri.diagnosis.inputs import listed

    for each in rows.files[:MOST_FILES]:
        echo(each.described)
    if len(rows.files) > MOST_FILES:
        echo(f"and {len(rows.files) - MOST_FILES} more files")
    sites = [f"{name} {n:,}" for name, n in rows.environments.items()]
    echo(f"{len(sites)} sites in {rows.environment!r}: {listed(tuple(sites), 12)}")
    if rows.classes:
        classes = tuple(map(str, np.unique(rows.y)))
        names = listed(classes, 8)
        echo(f"target {rows.target!r}: {len(classes)} classes ({names}), so this is classification")
    else:
        echo(f"target {rows.target!r}: a number, so this is regression")
    lines = schema.as_lines()
    echo("columns:" if rows.sizes is None else f"columns of {len(rows.y):,} sampled rows:")
    for line in lines[:MOST_COLUMNS]:
        echo(f"  {line}")
    if len(lines) > MOST_COLUMNS:
        echo(f"  and {len(lines) - MOST_COLUMNS} more; all are in the report")


def _fit_document(fit: "TableFit") -> dict[str, Any]:
    """Return a fit for JSON: `verdict`, `futures`, `kept`, `held_out` and more."""
    from wri.evaluation.changes import flagged_document

    held, kept, verdict = fit.held_out, fit.kept, fit.verdict
    new = None if held is None else held.new_site(kept.name)
    words = ("answer", "question", "sentence", "kept", "advice", "untried")
    return {
        "verdict": {
            **{name: getattr(verdict, name) for name in words},
            "flagged": flagged_document(fit.changes),
        },
        "futures": {} if held is None else held.mean_losses(),
        "kept": {
            "model": kept.name,
            "algorithm": kept.algorithm,
            "penalty_weight": fit.estimator.hyper_.get("penalty_weight"),
            "why": verdict.kept,
        },
        "held_out": [] if held is None else [each.as_dict() for each in held.scores],
        "new_site": None
        if new is None
        else {"measure": "accuracy" if fit.classes else "r2", "low": new.low, "high": new.high},
        "task": fit.rows.task,
        "environments": dict(fit.rows.environments),
        "columns": [] if fit.schema is None else [c.as_dict() for c in fit.schema.columns],
        "warnings": list(fit.warnings),
        "seed": fit.options.seed,
        "seconds": round(fit.seconds, 2),
    }


def _show_verdict(fitted: "TableFit", folder: str, report: Path) -> None:
    """Print the verdict, the table of models against futures, the kept model and warnings."""
    from wri.report.pages.fit_page import future_table

    verdict, held = fitted.verdict, fitted.held_out
    echo("")
    echo_wrapped(f"{verdict.question} {verdict.sentence}")
    if held is not None:
        echo("")
        show_table(future_table(fitted), wide=bool(held.columns))
    echo("")
    for text in filter(None, (*verdict.advice, verdict.kept, verdict.untried)):
        echo_wrapped(text)
    for text in fitted.warnings:
        print_note(f"warning: {text}")
    pictures = fitted.schema is None
    command = f"predict {folder} new-pictures/" if pictures else f"site {folder} new.csv"
    echo(f"Next: wri {command} (before deployment), open {report}")


def _fit_pictures(files: list[Path], asked: "FitOptions") -> FitToWrite:
    from wri.evaluation.folder_fit import fit_pictures
    from wri.report.pages.fit_page import build_fit_page, picture_sections

    if len(files) != 1:
        raise InputError(f"--images takes one folder ROOT/SITE/CLASS/*.jpg, not {len(files)} paths")
    with ProgressBar("features") as bar:
        found = fit_pictures(files[0], asked, progress=bar.step, status=bar.describe)
        bar.describe("report")
        backbone = "{name}, SHA-256 {digest}".format(**found.model.backbone_)
        read = {f"{files[0]}: {len(found.folder):,} pictures": backbone}
        page = build_fit_page(found.fit, read, options.command_line(), picture_sections(found))
    broken = {str(path): str(reason) for path, reason in found.model.broken_.items()}
    return found.fit, found.model, page, {"broken": broken}
