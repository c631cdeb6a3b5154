"""The command `wri`.

What a command works with is imported when it runs, so that help and errors come at once.
"""

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as BarTask
from rich.table import Table
from rich.text import Text

from wri import __version__
from wri.errors import InputError, check_option
from wri.experiments import EXPERIMENTS, Task, check_task, run_experiment

if TYPE_CHECKING:
    from wri.report.result import Result, Row

# what help names; a test holds it to the registries
ALGORITHMS = ("erm", "irm", "vrex", "groupdro", "mixup", "mldg", "coral", "wri")
DATASETS = ("simulation", "gaussian2d", "hospitals")
PRESETS = ("domainbed", "cmnist", "published", "simulation", "wri")
SELECTIONS = ("training-domain", "leave-one-out", "oracle", "oracle-early", "guarded-oracle")

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
        with _progress() as bar:
            update = partial(_update, bar, bar.add_task(task.name, total=None))
            try:
                results.append(run_experiment(task._replace(progress=update)))
            except InputError as error:
                if len(tasks) == 1:
                    raise
                failed = True
                _complain(f"{task.name}: {error}")
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


@app.command()
def sweep(
    store: Annotated[Path, typer.Option(help="File that keeps the runs; made if need be.")],
    datasets: Annotated[
        list[str] | None, typer.Option(help=f"Built-in data sets: {', '.join(DATASETS)}.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A CSV, Parquet or .npz file instead of a built-in.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column of the label in --data.")] = None,
    env: Annotated[str | None, typer.Option(help="Column of the environment in --data.")] = None,
    algorithms: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(ALGORITHMS)}; all by default.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Hyper-parameter draws; the first is defaults.")] = 1,
    trials: Annotated[int, typer.Option(help="Repetitions of everything.")] = 3,
    first_trial: Annotated[int, typer.Option(help="Number of the first repetition.")] = 0,
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = 500,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.")] = 10,
    test_envs: Annotated[
        list[int] | None, typer.Option(help="Environments to hold out, from 0; all by default.")
    ] = None,
    selection: Annotated[
        list[str] | None, typer.Option(help=f"Ways to choose: {', '.join(SELECTIONS)}.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help=f"Of hyper-parameters: {', '.join(PRESETS)}.")
    ] = "domainbed",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="name=value for all runs, not drawn; @file.json for several."),
    ] = None,
    memory: Annotated[float, typer.Option(min=0.01, help="GB that training may take.")] = 2.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Train algorithms × held-out environments × draws × trials, and keep every checkpoint.

    Lists may be given as `--algorithms erm wri`, with commas, or by repeating the option. The same
    command again goes on where it was interrupted, and one with more trials adds to the store.
    """
    from wri.sweep import Question, Store, Sweep, forecast, load_data, run_sweep
    from wri.sweep.tables import as_rows, as_text, build

    chosen = tuple(selection or (name for name in SELECTIONS if name != "leave-one-out"))
    question = Question(
        tuple(name.lower() for name in algorithms or ALGORITHMS),
        draws,
        trials,
        steps,
        checkpoint_every,
        chosen,
        None if test_envs is None else tuple(test_envs),
        preset,
        _numbers(set_ or []),
        first_trial,
    )
    asked = Sweep(question, load_data(datasets or [], data, target, env), 1e9 * memory)
    if dry_run:
        with Store(store) if store.exists() else nullcontext() as held:
            found = forecast(asked, held)
        typer.echo(json.dumps(found._asdict()) if as_json else str(found))
        return
    with Store(store, write=True) as kept, _progress() as bar:
        task = bar.add_task("sweep", total=None)
        try:
            trained = run_sweep(asked, kept, partial(_update, bar, task))
        except KeyboardInterrupt:
            bar.stop()
            messages.print(
                f"stopped; {len(kept.finished())} finished runs are in {store}, and the same "
                "command goes on from there",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
            raise typer.Exit(130) from None
        outcomes, described, done = kept.outcomes(), kept.described(), len(kept.finished())
    tables = build(outcomes, described, chosen)
    if as_json:
        document = {"store": str(store), "trained": trained, "rows": as_rows(tables)}
        typer.echo(json.dumps(document))
    else:
        typer.echo(as_text(tables))
        typer.echo(f"{trained} runs trained, {done} finished ones in {store}")


@app.command()
def results(
    store: Annotated[Path, typer.Argument(help="File that a sweep wrote.")],
    selection: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(SELECTIONS)}; all by default.")
    ] = None,
    form: Annotated[
        Literal["text", "latex", "csv"], typer.Option("--format", help="Form of the tables.")
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Tables of a sweep: accuracy in each held-out environment, by ways of choosing."""
    from wri.sweep import Store
    from wri.sweep.tables import as_csv, as_latex, as_rows, as_text, build, comparison_rows

    with Store(store) as kept:
        outcomes, described, done = kept.outcomes(), kept.described(), kept.finished()
    if not done:
        raise InputError(f"{store} holds no finished run yet; `wri sweep` goes on with it")
    chosen = tuple(selection or SELECTIONS)
    for name in chosen:
        check_option("--selection", name, SELECTIONS)
    tables = build(outcomes, described, chosen)
    if as_json:
        typer.echo(json.dumps({"rows": as_rows(tables), "comparisons": comparison_rows(tables)}))
    else:
        typer.echo({"text": as_text, "latex": as_latex, "csv": as_csv}[form](tables))


@app.command()
def data(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Which data sets are here, where they were found, and how to get the rest."""
    from wri.datasets.whereabouts import as_lines, whereabouts

    found = whereabouts()
    typer.echo(json.dumps(found) if as_json else "\n".join(as_lines(found)))


def _numbers(pairs: list[str]) -> dict[str, float]:
    """Hyper-parameters from name=value, or from a JSON object in a file."""
    numbers: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            if pair.startswith("@"):
                given = json.loads(Path(pair[1:]).read_text(encoding="utf-8"))
                numbers |= {key: float(number) for key, number in given.items()}
            else:
                numbers[name] = float(value)
        except OSError as error:
            raise InputError(f"--set {pair} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError):
            raise InputError(
                f"--set {pair} must be name=number, or @file with a JSON object of numbers"
            ) from None
    return numbers


_LISTS = ("--datasets", "--algorithms", "--test-envs", "--selection", "--set")


def repeat_lists(arguments: list[str]) -> list[str]:
    """`--algorithms erm wri` and `--algorithms erm,wri` as the option repeated."""
    spread: list[str] = []
    option, given = "", False
    for argument in [*arguments, "--"]:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and not argument[1:].isdigit():
            spread += [option] if option and not given else []  # without a value: Click says so
            option, given = (name if name in _LISTS else ""), bool(equals)
            values = value.split(",") if option and equals else []
            spread += [part for each in values for part in (option, each)]
            spread += [] if option else [argument]
        elif option and not (arguments[0] == "results" and argument not in SELECTIONS):
            given = True
            spread += [part for each in argument.split(",") if each for part in (option, each)]
        else:
            spread.append(argument)
    return spread[:-1]


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), _Rate(), TimeRemainingColumn())
    return Progress(*columns, console=messages, transient=True)


class _Rate(ProgressColumn):
    def render(self, task: BarTask) -> Text:
        return Text(f"{task.speed:.3g} steps/s" if task.speed else "")


def _update(bar: Progress, task: TaskID, done: int, of: int) -> None:
    bar.update(task, completed=done, total=of)


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


def main() -> None:
    """Entry point: bad input ends with one clear sentence and exit code 2."""
    try:
        app(repeat_lists(sys.argv[1:]))
    except InputError as error:
        _complain(str(error))
        sys.exit(2)


def _complain(text: str) -> None:
    messages.print(f"[bold red]wri:[/] {escape(text)}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    main()
