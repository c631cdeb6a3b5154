"""The command `wri diagnose`."""

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from wri.cli import fit_options as given
from wri.cli.console import console, echo, ending_cleanly, make_progress, say, update
from wri.cli.fit import check_columns, given_kinds
from wri.errors import InputError, shorten

if TYPE_CHECKING:
    from wri.report.blocks import PageTable
    from wri.tables.diagnosing import Answer
    from wri.tables.reading import TableRows

MOST_SHOWN = 12  # lines of a table in the terminal
HELP = """Show what the sites have in common, and what changes between them.

Do the sites overlap? Which columns' relation to the target changes? Do the sites differ enough
to rule out such columns? With `--model`: does a prediction mean the same at all sites, and what
would it cost if a relation broke? Give rows that the model was not trained on.

Examples:

`wri diagnose rows.csv --target sick --env hospital -o diagnosis/`

`wri diagnose later.csv --target sick --env hospital --blocks patient --model model/`

Exit codes: 0 done, 2 wrong input, 130 interrupted, 143 terminated.
"""


def diagnose(
    files: given.Files,
    target: given.Target = None,
    env: given.Env = None,
    output: given.PageFolder = None,
    model: given.ModelFolder = None,
    env_from_file: given.EnvFromFile = False,
    number: given.Number = None,
    category: given.Category = None,
    drop: given.Drop = None,
    task: given.TaskName = None,
    blocks: given.Blocks = None,
    delimiter: given.Delimiter = None,
    encoding: given.Encoding = None,
    seed: given.Seed = 0,
    memory: given.Memory = 4.0,
    as_json: given.AsJson = False,
) -> None:
    """Show what the sites have in common and what changes between them."""
    from wri.tables.diagnosing import diagnose_columns
    from wri.tables.reading import read_rows

    check_columns(target, env, env_from_file)
    rows = read_rows(
        files,
        str(target),
        env,
        task=task,
        blocks=blocks,
        leave_out=drop or (),
        delimiter=delimiter,
        encoding=encoding,
        memory=memory,
    )
    kinds = given_kinds(number, category)
    with ending_cleanly(), make_progress() as bar:
        report = partial(update, bar, bar.add_task("diagnosis", total=None))
        columns, models = _prepare(rows, kinds, model)
        answers = diagnose_columns(
            columns,
            classes=rows.task == "classes",
            models=models,
            seen=False,
            seed=seed,
            progress=report,
        )
    written = None if output is None else _write(rows, answers, output)
    _show(answers, written, as_json)


def _prepare(rows: "TableRows", kinds: dict[str, str], model: Path | None) -> tuple[Any, Any]:
    """Return columns as numbers, by a model's own preprocessing if there is one."""
    import numpy as np
    from sklearn.pipeline import Pipeline

    from wri.estimators import load
    from wri.estimators.folders import SavedInFolders
    from wri.tables.column_names import readable_names
    from wri.tables.diagnosing import NamedColumns
    from wri.tables.fitting import find_schema, last_step, prepared_columns

    if model is None:
        schema = find_schema(rows, kinds)
        for note in schema.notes:
            say(note)
        head = Pipeline([(str(k), step) for k, step in enumerate(schema.make_preprocessing())])
        x = np.asarray(head.fit_transform(rows.frame))
        encoded = [str(name) for name in head.get_feature_names_out()]
        names, models = readable_names(encoded, list(map(str, rows.frame.columns))), None
    else:
        fitted: Any = load(model, SavedInFolders)
        kind = "classes" if hasattr(fitted, "classes_") else "numbers"
        if kind != rows.task:
            raise InputError(
                f"{shorten(model)} predicts {kind}, but the target {rows.target!r} holds "
                f"{rows.task}; name another target, or give --task {kind}"
            )
        x, names = prepared_columns(fitted, rows.frame)
        models = {type(last_step(fitted)).__name__: last_step(fitted)}
    columns = NamedColumns(x=x, names=names, y=rows.y, groups=rows.groups, blocks=rows.blocks)
    return columns, models


def _write(rows: "TableRows", answers: "dict[str, Answer]", folder: Path) -> Path:
    from wri.report import style
    from wri.report.page import write_page
    from wri.tables.diagnosis_report import build_diagnosis_page

    facts = [
        ("Rows", f"{len(rows.y):,}"),
        ("Sites", str(len(rows.environments))),
        ("Target", rows.target),
        ("Files", "; ".join(each.described for each in rows.files)),
    ]
    page = build_diagnosis_page(
        f"Diagnosis of {rows.target}", facts, answers, shlex.join(["wri", *sys.argv[1:]])
    )
    for name, answer in answers.items():
        figure = answer.plot()
        if figure is not None:
            style.save(figure, folder, name)
    return write_page(page, folder / "diagnosis.html")


def _show(answers: "dict[str, Answer]", page: Path | None, as_json: bool) -> None:
    from wri.tables.diagnosis_report import answer_table

    if as_json:
        found = {
            name: {
                "question": answer.question,
                "answered": answer.answered,
                "meaning": answer.meaning,
                "table": _plain(answer_table(answer)),
            }
            for name, answer in answers.items()
        }
        echo(json.dumps({"answers": found, "page": None if page is None else str(page)}))
        return
    for answer in answers.values():
        console.print(f"[bold]{answer.question}[/]")
        echo(answer.meaning)
        table = answer_table(answer)
        if table is not None:
            show_table(table)
    if page is not None:
        echo(f"page: {page}")


def _plain(table: "PageTable | None") -> list[dict[str, str]] | None:
    if table is None:
        return None
    return [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]


def show_table(table: "PageTable") -> None:
    """Print a table of a page in the terminal."""
    shown = Table(title=table.caption, title_justify="left")
    for place, column in enumerate(table.columns):
        shown.add_column(column, justify="right" if place else "left")
    for row in table.rows[:MOST_SHOWN]:
        shown.add_row(*(str(getattr(cell, "text", cell)) for cell in row))
    console.print(shown)
    if len(table.rows) > MOST_SHOWN:
        echo(f"{len(table.rows) - MOST_SHOWN} more lines; -o FOLDER writes a page with them")
