"""The commands `wri reproduce NAME`, one per table or figure."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from wri.cli.console import console, echo, make_progress, print_error, print_note, update
from wri.errors import InputError, MissingDataError, shorten
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
HELP = """Reproduce a table or figure of the paper, with the paper's numbers beside ours.

Examples:

`wri reproduce figure1 --full -o results/`

`wri reproduce all`

Exit codes: 0 done (`all` lists what it has no data for), 2 wrong input or missing data, 3 Ray was
lost, 130 interrupted, 143 terminated.
"""


class ExperimentGroup(TyperGroup):
    """Group of the tables and figures; refuses other names with a list."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            raise InputError(
                f"name the experiment before {args[0]}, for example wri reproduce figure1 --quick"
            )
        if any(each.partition("=")[0] == BACKEND.flag for each in args):
            _check_backend(args[0])
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            names = ", ".join(name for each in EXPERIMENTS.values() for name in each.outputs)
            raise InputError(f"there is no experiment {cmd_name!r}; choose one of {names}, or all")
        return found


def _check_backend(name: str) -> None:
    """Refuse a back end for experiments without a sweep."""
    sweeping = [each for each in EXPERIMENTS.values() if BACKEND in each.options]
    names = [output for each in sweeping for output in each.outputs]
    if name not in (*names, ALL):
        raise InputError(
            f"{name} trains no sweep and runs in this process; remove {BACKEND.flag}, which is for "
            f"{', '.join(names)} and {ALL}"
        )


def make_app() -> typer.Typer:
    """Make the group with one command per table and figure, and one for all."""
    app = typer.Typer(
        cls=ExperimentGroup, help=HELP, no_args_is_help=True, rich_markup_mode="markdown"
    )
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
    make_folder("-o", folder)
    if markdown is not None:
        make_folder("--markdown", markdown)
        outputs = [task.outputs or EXPERIMENTS[task.name].outputs for task in tasks]
        check_pages(markdown, [name for each in outputs for name in each])
    about = {name: line for each in EXPERIMENTS.values() for name, line in each.outputs.items()}
    results: list[Result] = []
    missing: dict[str, str] = {}
    page, failed = None, False
    for task in tasks:
        try:
            found = _run(task)
        except MissingDataError as error:
            if len(tasks) == 1:
                raise
            missing[", ".join(EXPERIMENTS[task.name].outputs)] = str(error)
            found = []
        except InputError as error:
            if len(tasks) == 1:
                raise
            failed = True
            print_error(f"{task.name}: {error}")
            continue
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


def make_folder(flag: str, folder: Path) -> None:
    """Make an option's folder, and refuse one that cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise InputError(f"{flag} {shorten(folder)} cannot be made a folder: {reason}") from error
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{flag} {folder} cannot be written to: {error.strerror}; name another folder"
        ) from error


def _run(task: ExperimentTask) -> "list[Result]":
    with make_progress() as bar:
        label = ", ".join(task.outputs) or task.name
        report = partial(update, bar, bar.add_task(label, total=None))
        return run_experiment(replace(task, progress=report))


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
