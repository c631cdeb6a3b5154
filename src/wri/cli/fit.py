"""The command `wri fit`."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from wri.cli import fit_options as given
from wri.cli.console import (
    WIDTH,
    describe,
    echo,
    ending_cleanly,
    make_progress,
    say,
    show_plain_table,
    update,
)
from wri.cli.sweep import read_hidden
from wri.errors import InputError

if TYPE_CHECKING:
    from wri.tables.candidates import FitOptions
    from wri.tables.fitting import TableFit
    from wri.tables.reading import TableRows

MOST_COLUMNS = 30  # listed
MOST_FILES = 12
MOST_DIAGNOSED = 8_000  # rows that the report's diagnosis sees

HELP = """Fit a model, and answer whether it will hold at a new site.

Each site is held out in turn. WRI, ERM and simpler models are trained on the others and scored on
it: as it is, and as if the columns whose relation to the target changes between sites told nothing
or the opposite. The model with the least worst regret is kept, trained on all rows, and saved with
a report. A folder of Parquet files may exceed the memory: with `--fast` it is summed in chunks.

Examples:

`wri fit rows.csv --target sick --env hospital -o model/`

`wri fit site_*.csv --env-from-file --target sick --drop id,date --keep 'wri 3' -o model/`

`wri fit parts/ --target y --env site --fast -o model/`

Exit codes: 0 done, 2 wrong input (one sentence names the problem), 3 Ray was lost, 130 interrupted,
143 terminated (the last three leave nothing half-written).
"""


def fit(
    files: given.Files,
    output: given.Output,
    target: given.Target = None,
    env: given.Env = None,
    env_from_file: given.EnvFromFile = False,
    number: given.Number = None,
    category: given.Category = None,
    drop: given.Drop = None,
    task: given.TaskName = None,
    blocks: given.Blocks = None,
    images: given.Images = False,
    algorithms: given.Algorithms = None,
    keep: given.Keep = None,
    former: given.Former = None,
    predictors: given.Predictors = None,
    fast: given.Fast = False,
    hidden: given.Hidden = None,
    steps: given.Steps = None,
    delimiter: given.Delimiter = None,
    encoding: given.Encoding = None,
    seed: given.Seed = 0,
    device: given.Device = "auto",
    memory: given.Memory = 4.0,
    backend: given.Backend = "local",
    as_json: given.AsJson = False,
) -> None:
    """Fit a model, and answer whether it will hold at a new site."""
    from wri.tables.candidates import DEFAULT, FitOptions

    options = FitOptions(
        algorithms=tuple(name.lower() for name in algorithms or DEFAULT),
        keep=keep,
        predictors=None if predictors is None else tuple(predictors),
        fast=fast,
        hidden=read_hidden(hidden),
        steps=steps,
        seed=seed,
        device=device,
        backend=backend,
    )
    options.check()
    _check_folder(output)
    with ending_cleanly():
        if images:
            _fit_pictures(files, output, options, as_json)
            return
        kinds = given_kinds(number, category)
        _fit_files(
            files,
            partial(_fit_rows, output=output, options=options, kinds=kinds, as_json=as_json),
            options,
            target=check_columns(target, env, env_from_file),
            environment=env,
            task=task,
            blocks=blocks,
            leave_out=drop or (),
            delimiter=delimiter,
            encoding=encoding,
            memory=memory,
        )


def _fit_files(
    files: list[Path], fit_rows: Callable[..., None], options: "FitOptions", **read: Any
) -> None:
    """Read the rows of files or of a folder, in chunks with --fast, and fit them."""
    from wri.tables.fitting import fit_table
    from wri.tables.folders import files_in_memory
    from wri.tables.reading import read_rows

    folder = files[0] if len(files) == 1 and files[0].is_dir() else None
    if folder is None or not options.fast:
        paths = files if folder is None else files_in_memory(folder, read["memory"])
        fit_rows(read_rows(paths, **read), fit=fit_table)
        return
    if read["environment"] is None or read["blocks"] is not None:
        raise InputError("a folder with --fast needs --env, and allows no --blocks")
    used = {name: read[name] for name in ("target", "environment", "task", "leave_out")}
    _fit_folder(folder, fit_rows, options, **used)


def _fit_folder(
    path: Path, fit_rows: Callable[..., None], options: "FitOptions", **columns: Any
) -> None:
    """Fit a folder of Parquet files in chunks."""
    from wri.tables.fit_jobs import open_runner
    from wri.tables.folder_fit import check_folder_options, fit_folder
    from wri.tables.folders import Folder, find_files, scan_folder

    check_folder_options(options)
    with open_runner(options.backend) as runner:
        folder = Folder(path, find_files(path), runner, say)
        say(f"--fast: no site is held out; {len(folder.files)} files are summed in chunks")
        with make_progress() as bar:
            step = partial(update, bar, bar.add_task("reading", total=None))
            rows = scan_folder(folder, progress=step, **columns)
        fit_rows(rows, fit=partial(fit_folder, folder=folder))


def _check_folder(output: Path) -> None:
    """Refuse a folder with other files; announce that a model in it will be replaced."""
    from wri.tables.model_output import check_output

    check_output(output)
    if output.exists() and any(output.iterdir()):
        say(f"{output} holds a model; it is replaced when this fit is done")


def _command() -> str:
    """Return the command line, for the report."""
    return shlex.join(["wri", *sys.argv[1:]])


def check_columns(target: str | None, env: str | None, env_from_file: bool) -> str:
    """Return the target; refuse commands that do not name it and the sites."""
    if target is None:
        raise InputError("name the column to be predicted with --target")
    if env is None and not env_from_file:
        raise InputError(
            "name the column of sites with --env, or give one file per site and --env-from-file"
        )
    if env is not None and env_from_file:
        raise InputError("--env and --env-from-file both define the sites; give one of them")
    return target


def given_kinds(number: list[str] | None, category: list[str] | None) -> dict[str, str]:
    """Return the kinds of columns given by options."""
    both = sorted({*(number or ())} & {*(category or ())})
    if both:
        raise InputError(f"column {both[0]!r} is in --number and --category; remove it from one")
    return dict.fromkeys(number or (), "number") | dict.fromkeys(category or (), "category")


def _fit_rows(
    rows: "TableRows",
    *,
    output: Path,
    options: "FitOptions",
    kinds: dict[str, str],
    as_json: bool,
    fit: "Callable[..., TableFit]",
) -> None:
    from wri.tables.fit_card import FitSource
    from wri.tables.fit_report import build_fit_page
    from wri.tables.fit_summary import attach_summary
    from wri.tables.fitting import find_schema
    from wri.tables.model_output import diagnose_fit, write_model

    schema = find_schema(rows, kinds)
    if not as_json:
        show_rows(rows, schema)
    with make_progress() as bar:
        task = bar.add_task("fitting", total=None)
        fitted = fit(rows, options, schema=schema, progress=partial(update, bar, task))
        describe(bar, task, "diagnosis")
        answers, sampled = diagnose_fit(fitted, MOST_DIAGNOSED)
        describe(bar, task, "report")
        source = FitSource(
            files=[each.described for each in rows.files],
            digests=[each.sha256 for each in rows.files],
            target=rows.target,
            environment=rows.environment,
            command=_command(),
        )
        page = build_fit_page(fitted, source, answers, sampled=sampled)
        attach_summary(fitted)
        report = write_model(fitted.model, page, output)
    finish(fitted, output, report, as_json, {"files": [asdict(each) for each in rows.files]})


def show_rows(rows: "TableRows", schema: Any) -> None:
    """Print what was read, so that a wrong guess is seen before the training."""
    import numpy as np

    for each in rows.files[:MOST_FILES]:
        echo(each.described)
    if len(rows.files) > MOST_FILES:
        echo(f"and {len(rows.files) - MOST_FILES} more files")
    sizes = rows.environments
    shown = ", ".join(f"{name} {n:,}" for name, n in list(sizes.items())[:12])
    more = f" and {len(sizes) - 12} more" if len(sizes) > 12 else ""
    echo(f"{len(sizes)} sites in {rows.environment!r}: {shown}{more}")
    if rows.task == "classes":
        classes = np.unique(rows.y)
        names = ", ".join(map(str, classes[:8])) + (" …" if len(classes) > 8 else "")
        echo(f"target {rows.target!r}: {len(classes)} classes ({names}), so this is classification")
    else:
        echo(f"target {rows.target!r}: a number, so this is regression")
    lines = schema.as_lines()
    echo("columns:" if rows.sizes is None else f"columns of {len(rows.y):,} sampled rows:")
    for line in lines[:MOST_COLUMNS]:
        echo(f"  {line}")
    if len(lines) > MOST_COLUMNS:
        echo(f"  and {len(lines) - MOST_COLUMNS} more; all are in the report")


def finish(
    fitted: "TableFit", output: Path, report: Path, as_json: bool, more: dict[str, Any]
) -> None:
    """Print the results and the paths."""
    from wri.tables.model_output import fit_document

    if as_json:
        echo(
            json.dumps(
                {**fit_document(fitted), "model": str(output), "report": str(report), **more}
            )
        )
        return
    show_verdict(fitted)
    for text in fitted.warnings:
        say(f"warning: {text}")
    folder = shlex.quote(str(output))
    rows = "new-pictures/" if "broken" in more else "new.csv"
    before = "predict" if "broken" in more else "site"
    echo(f"Next: wri {before} {folder} {rows} (before deployment), open {report}")


def show_verdict(fitted: "TableFit") -> None:
    """Print the verdict, the table of models against futures, and the kept model."""
    from wri.tables.fit_report import future_table

    verdict, held = fitted.verdict, fitted.held_out
    echo("")
    echo(fill(f"{verdict.question} {verdict.sentence}", WIDTH))
    if held is not None:
        echo("")
        heads, lines = future_table(fitted)
        show_plain_table(heads, lines, wide=bool(held.columns))
    echo("")
    for text in filter(None, (*verdict.advice, verdict.kept, verdict.untried)):
        echo(fill(text, WIDTH, break_on_hyphens=False))


def _fit_pictures(files: list[Path], output: Path, options: "FitOptions", as_json: bool) -> None:
    from wri.tables.fit_card import FitSource
    from wri.tables.fit_report import build_fit_page
    from wri.tables.model_output import write_model
    from wri.tables.pictures import fit_pictures, picture_sections

    if len(files) != 1:
        raise InputError(f"--images takes one folder ROOT/SITE/CLASS/*.jpg, not {len(files)} paths")
    with make_progress() as bar:
        task = bar.add_task("features", total=None)
        found = fit_pictures(
            files[0],
            options,
            progress=partial(update, bar, task),
            status=partial(describe, bar, task),
        )
        describe(bar, task, "report")
        source = FitSource(
            files=[f"{files[0]}: {len(found.folder):,} pictures"],
            digests=[found.backbone],
            target="class",
            environment="folder",
            command=_command(),
        )
        page = build_fit_page(found.fit, source, {}, more=picture_sections(found))
        report = write_model(found.model, page, output)
    finish(
        found.fit, output, report, as_json, {"broken": {str(k): v for k, v in found.broken.items()}}
    )
