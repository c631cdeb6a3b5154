"""Reproduce a table or figure of the paper, with the paper's numbers beside ours.

Examples:

`wri reproduce figure1 --full -o results/`

`wri reproduce all`

Exit codes: 0 done (`all` lists what it has no data for), 2 wrong input or missing data, 3 Ray was
lost, 130 interrupted, 143 terminated.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from wri.cli.console import ProgressBar, console, echo, print_error, print_note
from wri.errors import InputError, MissingDataError
from wri.paper.experiments import (
    BACKEND,
    EXPERIMENTS,
    ExperimentTask,
    Option,
    run_experiment,
)

if TYPE_CHECKING:
    from wri.paper.result import Result, ResultCell

ALL = "all"


def make_app() -> typer.Typer:
    """Make the group with one command per table and figure, and one for all."""
    app = typer.Typer(help=__doc__, no_args_is_help=True, rich_markup_mode="markdown")
    for experiment, (outputs, options) in EXPERIMENTS.items():
        for output, about in outputs.items():
            app.command(output, help=about)(make_command(output, experiment, options))
    everything = "all of these, with their defaults"
    app.command(ALL, help=everything)(make_command(ALL, options=[BACKEND]))
    return app


def make_command(
    name: str, experiment: str | None = None, options: Iterable[Option] = ()
) -> Callable[..., None]:
    """Make a function whose parameters are the declared options and the common ones.

    It gives one output of an experiment; without an experiment, everything.
    """
    parameters = [*(_as_parameter(option) for option in options), *COMMON]

    def command(
        full: bool, seed: int, output: Path, markdown: Path | None, as_json: bool, **given: Any
    ) -> None:
        common: dict[str, Any] = {"folder": output, "full": full, "seed": seed}
        given = {key: value for key, value in given.items() if value is not None}
        tasks = []
        for each, found in EXPERIMENTS.items():
            if experiment in (None, each):
                known = {option.name for option in found.options}
                own = {key: value for key, value in given.items() if key in known}
                outputs = () if experiment is None else (name,)
                tasks.append(ExperimentTask(name=each, outputs=outputs, options=own, **common))
        reproduce(tasks, as_text(name, full, seed, given, options), as_json, markdown)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _parameter(name: str, kind: Any, default: Any, *flags: str, **settings: Any) -> Parameter:
    annotation = Annotated[kind, typer.Option(*flags, **settings)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _as_parameter(option: Option) -> Parameter:
    kind = option.kind if option.default is not None else option.kind | None
    settings = {"help": option.help, "min": option.least}
    return _parameter(option.name, kind, option.default, option.flag, **settings)


COMMON = (
    _parameter(
        *("full", bool, False, "--full/--quick"),
        help="The paper's size (minutes; hours for a first autoencoder), or at most a minute.",
    ),
    _parameter("seed", int, 0, min=0, help="First seed; the others are the next integers."),
    _parameter(
        "output", Path, Path("results"), "-o", "--output", help="Folder for figures and index.html."
    ),
    _parameter(
        *("markdown", Path | None, None, "--markdown"),
        help="Folder of Markdown pages, NAME.md: text between the marks of generated text is "
        "replaced, other text stays.",
    ),
    _parameter("as_json", bool, False, "--json", help="Print one JSON document per result."),
)


def as_text(
    name: str, full: bool, seed: int, given: Mapping[str, Any], options: Iterable[Option]
) -> str:
    """Return the command line for the page, without options at their defaults."""
    parts = [f"wri reproduce {name} --{'full' if full else 'quick'} --seed {seed}"]
    for option in options:
        value = given.get(option.name)
        if isinstance(value, bool):
            parts.append(option.flag.split("/")[not value])
        elif value not in (None, option.default):
            parts.append(f"{option.flag} {value}")
    return " ".join(parts)


def reproduce(
    tasks: list[ExperimentTask], command: str, as_json: bool, markdown: Path | None = None
) -> None:
    """Run the tasks, show their results and write them to one page, or to Markdown as well."""
    from wri.paper.pages import check_pages, write_markdown, write_results

    folder = tasks[0].folder
    for each in filter(None, (folder, markdown)):
        each.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=each):  # it can be written to
            pass
    if markdown is not None:
        outputs = [task.outputs or EXPERIMENTS[task.name].outputs for task in tasks]
        check_pages(markdown, [name for each in outputs for name in each])
    about = {name: line for each in EXPERIMENTS.values() for name, line in each.outputs.items()}
    results: list[Result] = []
    missing: dict[str, str] = {}
    page, failed = None, False
    for task in tasks:
        found: list[Result] = []
        try:
            with ProgressBar(", ".join(task.outputs) or task.name) as bar:
                found = run_experiment(replace(task, progress=bar.step))
        except InputError as error:
            if len(tasks) == 1:
                raise
            if isinstance(error, MissingDataError):
                missing[", ".join(EXPERIMENTS[task.name].outputs)] = str(error)
            else:
                failed = True
                print_error(f"{task.name}: {error}")
        for result in found:
            _show(result, as_json)
            if markdown is not None:
                write_markdown(result, about[result.experiment], command, task.seed, markdown)
        results += found
        if results:  # after each of them, to lose none
            page = write_results(results, about, command, folder, missing)
    for names, remedy in missing.items():
        print_note(f"not computed, data are missing: {names}: {remedy}")
    if page is not None and not as_json:
        console.print(f"page: {page}", soft_wrap=True, markup=False, highlight=False)
    if failed:
        raise typer.Exit(2)


def _show(result: "Result", as_json: bool) -> None:
    """Print one JSON document, or the tables and the paths of figures."""
    from wri.paper.result import QUICK

    if as_json:
        echo(json.dumps(result.as_json()))
        return
    for table in result.tables:
        title = f"{result.experiment} {table.title}".strip()
        shown = Table(title=title, title_justify="left")
        shown.add_column("")
        for column in table.columns:
            shown.add_column(column, justify="right")
        for algorithm, cells in table.lines:
            shown.add_row(algorithm, *["" if cell is None else _cell(cell) for cell in cells])
        console.print(shown)
    if result.quick:
        console.print(QUICK, markup=False, highlight=False)
    console.print(f"{result.what_is_shown} {result.seconds:.1f} s.", highlight=False)
    for note in result.notes:
        console.print(note, markup=False, highlight=False)
    for path in result.figures:
        console.print(f"figure: {path}", soft_wrap=True, markup=False, highlight=False)


def _cell(row: "ResultCell") -> str:
    return row.text + ("" if row.paper is None else f" (paper {row.paper:g})")
