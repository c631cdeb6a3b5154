"""The command `wri diagnose`."""

import json
import shlex
import sys
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
from wri.cli.predict import load_record
from wri.errors import InputError, shorten

if TYPE_CHECKING:
    from wri.datasets.table_rows import TableRows
    from wri.evaluation.changes import Answer

MOST_SHOWN = 12  # lines of a table in the terminal


def diagnose(
    files: options.Files,
    target: options.Target = None,
    env: options.Env = None,
    output: options.PageFolder = None,
    model: options.ModelFolder = None,
    env_from_file: options.EnvFromFile = False,
    number: options.Number = None,
    category: options.Category = None,
    drop: options.Drop = None,
    task: options.TaskName = None,
    blocks: options.Blocks = None,
    delimiter: options.Delimiter = None,
    encoding: options.Encoding = None,
    seed: options.Seed = 0,
    memory: options.Memory = options.MEMORY,
    as_json: options.AsJson = False,
) -> None:
    """Show what changes between the sites, and what they have in common.

    Which columns' relation to the target changes, and at which sites does the sign flip? Do the
    sites overlap? With `--model`: does a prediction mean the same at all sites, and what is the
    loss if a relation breaks? With `--model`, give rows that the model was not trained on.

    Examples:

    `wri diagnose rows.csv --target sick --env hospital -o diagnosis/`

    `wri diagnose later.csv --target sick --env hospital --blocks patient --model model/`

    Exit codes: 0 done, 2 wrong input, 130 interrupted, 143 terminated.
    """
    from wri.datasets.table_rows import read_rows
    from wri.evaluation.changes import diagnose_rows
    from wri.report.pages.diagnosis_page import next_step

    rows = read_rows(
        files,
        options.check_columns(target, env, env_from_file),
        env,
        task=task,
        blocks=blocks,
        leave_out=drop or (),
        delimiter=delimiter,
        encoding=encoding,
        memory=memory,
    )
    kinds = options.kinds_of(number, category)
    with ending_cleanly(), ProgressBar("diagnosis") as bar:
        encoded, models = _prepare(rows, kinds, model)
        answers = diagnose_rows(encoded, models, seed, bar.step)
    ahead = next_step(answers, _fit_command())
    written = None if output is None else _write(rows, answers, output, ahead)
    _show(answers, written, ahead, as_json)


def _prepare(
    rows: "TableRows", kinds: dict[str, str], folder: Path | None
) -> "tuple[TableRows, dict[str, Any] | None]":
    """Encode columns, by a model's own preprocessing if there is one."""
    from wri.estimators.pipeline import last_step
    from wri.evaluation.fitting import encode, find_schema, make_head, preprocessing_of

    if folder is None:
        schema = find_schema(rows, kinds)
        for note in schema.notes:
            print_note(note)
        return encode(rows, make_head(schema).fit(rows.X)), None
    model: Any = load_record(folder)
    kind = "classes" if hasattr(model, "classes_") else "numbers"
    if kind != rows.task:
        raise InputError(
            f"{shorten(folder)} predicts {kind}, but the target {rows.target!r} holds "
            f"{rows.task}; name another target, or give --task {kind}"
        )
    last = last_step(model)
    return encode(rows, preprocessing_of(model)), {type(last).__name__: last}


def _fit_command() -> str:
    """Return the command of a fit with the options of this diagnosis."""
    words = iter(sys.argv[2:])
    kept: list[str] = []
    for word in words:
        if word.split("=")[0] in ("-o", "--output", "--model"):
            next(words, None) if "=" not in word else None
        elif word != "--json":
            kept.append(word)
    return shlex.join(["wri", "fit", *kept, "-o", "model/"])


def _write(rows: "TableRows", answers: "dict[str, Answer]", folder: Path, ahead: str) -> Path:
    from wri.report import style
    from wri.report.page import write_page
    from wri.report.pages.diagnosis_page import build_diagnosis_page

    page = build_diagnosis_page(rows, answers, options.command_line(), ahead)
    for name, answer in answers.items():
        figure = answer.plot()
        if figure is not None:
            style.save(figure, folder, name)
    return write_page(page, folder / "diagnosis.html")


def _show(answers: "dict[str, Answer]", page: Path | None, ahead: str, as_json: bool) -> None:
    from wri.evaluation.changes import flagged_document
    from wri.report.pages.diagnosis_page import answer_table

    if as_json:
        first = answers["changes"]
        verdict = {
            "answer": "changes" if first.changes else "none" if first.answered else "unknown",
            "question": first.question,
            "sentence": first.meaning,
            "flagged": flagged_document(first.changes),
        }
        found = {name: _document(answer) for name, answer in answers.items()}
        document = {"verdict": verdict, "answers": found, "page": page and str(page), "next": ahead}
        echo(json.dumps(document))
        return
    for place, answer in enumerate(answers.values()):
        if place:
            echo("")
        echo_wrapped(f"{answer.question} {answer.meaning}")
        table = answer_table(answer)
        if table is not None:
            echo("")
            echo(table.caption)
            show_table(table, most=MOST_SHOWN)
            if len(table.rows) > MOST_SHOWN:
                echo(f"{len(table.rows) - MOST_SHOWN} more lines; -o FOLDER writes a page")
    echo("")
    if page is not None:
        echo(f"page: {page}")
    echo(f"Next: {ahead}")


def _document(answer: "Answer") -> dict[str, Any]:
    """Return an answer for JSON."""
    from wri.report.pages.diagnosis_page import answer_table

    table = answer_table(answer)
    rows = table and [dict(zip(table.columns, map(str, row), strict=True)) for row in table.rows]
    own = {name: getattr(answer, name) for name in ("question", "answered", "meaning")}
    return {**own, "table": rows}
