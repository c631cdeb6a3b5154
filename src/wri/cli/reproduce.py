"""The command `wri reproduce`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from wri.cli.console import complain, console, make_progress, update
from wri.errors import InputError
from wri.experiments import EXPERIMENTS, Task, check_task, run_experiment

if TYPE_CHECKING:
    from wri.report.result import Result, Row

ABOUT = (
    "Reproduce a table or figure of the paper, the printed numbers beside ours.\n\n"
    + "\n".join(f"- **{name}**: {experiment.about}" for name, experiment in EXPERIMENTS.items())
)


def reproduce(
    name: Annotated[str, typer.Argument(help="One of the names above, or all.")],
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="The paper's size, minutes (hours for a first autoencoder), or a minute at most.",
        ),
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
    preset: Annotated[
        str | None, typer.Option(help="Tables 2 and 3: paper, published or wri (by default).")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Tables 2 and 3, ablation: ae, cnn or pca.")
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="How many features.")] = None,
    combine: Annotated[
        str | None, typer.Option(help="Table 3, the environments' densities: mean or maximum.")
    ] = None,
    negatives: Annotated[
        str | None, typer.Option(help="Table 3, the common digits: all or same.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document an experiment.")] = (
        False
    ),
) -> None:
    from wri.report.page import write_page

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {output} cannot be made a folder: {error.strerror}") from error
    command = f"wri reproduce {name} --{'full' if full else 'quick'} --seed {seed}"
    choices: dict[str, Any] = {
        "filtered": filtered,
        "preset": preset,
        "features": features,
        "width": width,
        "combine": combine,
        "negatives": negatives,
    }
    for option, value in choices.items():
        if option == "filtered" and value is not None:
            command += " --filtered" if value else " --unfiltered"
        elif value is not None:
            command += f" --{option} {value}"
    about = {each: experiment.about for each, experiment in EXPERIMENTS.items()}
    tasks = []
    for each in EXPERIMENTS if name == "all" else [name]:
        heeded = EXPERIMENTS[each].options if name == "all" else choices
        tasks.append(Task(each, full, seed, output, **{k: choices[k] for k in heeded}))
        check_task(tasks[-1])  # before the first is run
    results: list[Result] = []
    page, failed = None, False
    for task in tasks:
        with make_progress() as bar:
            report = partial(update, bar, bar.add_task(task.name, total=None))
            try:
                results.append(run_experiment(task._replace(progress=report)))
            except InputError as error:
                if len(tasks) == 1:
                    raise
                failed = True
                complain(f"{task.name}: {error}")
                continue
        if as_json:
            typer.echo(json.dumps(results[-1].as_json()))
        else:
            _show(results[-1])
        page = write_page(results, about, command, output)  # after each, so none is lost
    if page is not None and not as_json:
        console.print(f"page: {page}", soft_wrap=True, markup=False, highlight=False)
    if failed:
        raise typer.Exit(2)


def _show(result: "Result") -> None:
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


def _cell(row: "Row") -> str:
    return row.text + ("" if row.paper is None else f" (paper {row.paper:g})")
