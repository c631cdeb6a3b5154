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
from wri.experiments import EXPERIMENTS, Result, run_experiment

app = typer.Typer(
    help="Weighted risk invariance: predictors that hold in a new environment.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
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


_NAMES = "; ".join(f"{name}: {about}" for name, about in EXPERIMENTS.items())


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"all, or one of — {_NAMES}")],
    full: Annotated[
        bool, typer.Option("--full/--quick", help="The paper's size, or a minute's worth.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="First seed; the others follow it.")] = 0,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for figures.")] = Path(
        "results"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document an experiment.")] = (
        False
    ),
) -> None:
    """Reproduce a table or figure of the paper, the printed numbers beside ours."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output} cannot be made a folder: {error.strerror}") from error
    for each in EXPERIMENTS if name == "all" else [name]:
        with _progress() as bar:
            update = partial(_update, bar, bar.add_task(each, total=None))
            result = run_experiment(each, full, seed, output, update)
        if as_json:
            typer.echo(json.dumps(result.as_json()))
        else:
            _show(result)


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=messages, transient=True)


def _update(bar: Progress, task: TaskID, done: int, of: int) -> None:
    bar.update(task, completed=done, total=of)


def _show(result: Result) -> None:
    """A table of algorithms by columns, and where the figures are."""
    columns = list(dict.fromkeys(row.column for row in result.rows))
    table = Table(title=result.experiment, title_justify="left")
    table.add_column("algorithm")
    for column in columns:
        table.add_column(column, justify="right")
    cells = {(row.algorithm, row.column): row for row in result.rows}
    for algorithm in dict.fromkeys(row.algorithm for row in result.rows):
        line = []
        for column in columns:
            row = cells.get((algorithm, column))
            if row is None:
                line.append("")
                continue
            text = f"{row.ours:.2f}" + ("" if row.spread is None else f" ± {row.spread:.2f}")
            line.append(text + ("" if row.paper is None else f" (paper {row.paper:g})"))
        table.add_row(algorithm, *line)
    console.print(table)
    n = max(row.n for row in result.rows)
    console.print(f"Mean ± standard error over {n} seeds, {result.seconds:.1f} s.")
    for note in result.notes:
        console.print(note, markup=False, highlight=False)
    for path in result.figures:
        console.print(f"figure: {path}", soft_wrap=True, markup=False, highlight=False)


def main() -> None:
    """Entry point: bad input ends with one clear sentence and exit code 2."""
    try:
        app()
    except InputError as error:
        messages.print(f"[bold red]wri:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
