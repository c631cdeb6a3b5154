"""The command `wri`."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from wri import __version__
from wri.errors import InputError
from wri.experiments import EXPERIMENTS, Task, run_experiment
from wri.report.page import write_page
from wri.report.result import Result, Row

app = typer.Typer(
    help="Weighted risk invariance: predictors that hold in a new environment.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
console = Console(width=None if sys.stdout.isatty() else 200)  # tables in logs stay whole
messages = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wri {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which.")
    ] = False,
) -> None:
    pass


_ABOUT = (
    "Reproduce a table or figure of the paper, the printed numbers beside ours.\n\n"
    + "\n".join(f"- **{name}**: {experiment.about}" for name, experiment in EXPERIMENTS.items())
)


@app.command(help=_ABOUT)
def reproduce(
    name: Annotated[str, typer.Argument(help="One of the names above, or all.")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="Minutes of work, or about a minute at most.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="First seed; the others follow it.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for figures and index.html.")
    ] = Path("results"),
    filtered: Annotated[
        bool | None,
        typer.Option(
            "--filtered/--unfiltered",
            help="Simulation tables: data seeds filtered as published, or all. Both by default.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document an experiment.")] = (
        False
    ),
) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output} cannot be made a folder: {error.strerror}") from error
    results = []
    for each in EXPERIMENTS if name == "all" else [name]:
        with _progress() as bar:
            update = partial(_update, bar, bar.add_task(each, total=None))
            task = Task(each, full, seed, output, update, filtered)
            results.append(run_experiment(task))
        if as_json:
            typer.echo(json.dumps(results[-1].as_json()))
        else:
            _show(results[-1])
        command = f"wri reproduce {name} --{'full' if full else 'quick'} --seed {seed}"
        if filtered is not None:
            command += " --filtered" if filtered else " --unfiltered"
        about = {each: experiment.about for each, experiment in EXPERIMENTS.items()}
        page = write_page(results, about, command, output)  # after each, so none is lost
    if not as_json:
        console.print(f"page: {page}", soft_wrap=True, markup=False, highlight=False)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=messages, transient=True)


def _update(bar: Progress, task: TaskID, done: int, of: int) -> None:
    bar.update(task, completed=done, total=of)


def _show(result: Result) -> None:
    """Tables of algorithms by columns, and where the figures are."""
    for table in result.tables:
        title = f"{result.experiment} {table.title}".strip()
        shown = Table(title=title, title_justify="left")
        shown.add_column("")
        for column in table.columns:
            shown.add_column(column, justify="right")
        for algorithm, cells in table.lines:
            shown.add_row(algorithm, *["" if cell is None else _cell(cell) for cell in cells])
        console.print(shown)
    console.print(f"{result.what_is_shown} {result.seconds:.1f} s.", highlight=False)
    for note in result.notes:
        console.print(note, markup=False, highlight=False)
    for path in result.figures:
        console.print(f"figure: {path}", soft_wrap=True, markup=False, highlight=False)


def _cell(row: Row) -> str:
    return row.text + ("" if row.paper is None else f" (paper {row.paper:g})")


def main() -> None:
    """Entry point: bad input ends with one clear sentence and exit code 2."""
    try:
        app()
    except InputError as error:
        messages.print(f"[bold red]wri:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
