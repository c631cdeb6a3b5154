"""The commands `wri sweep` and `wri results`."""

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wri.cli.console import make_progress, messages, update
from wri.cli.names import ALGORITHMS, DATASETS, PRESETS, SELECTIONS
from wri.errors import InputError, check_option

if TYPE_CHECKING:
    from wri.sweep import Sweep

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]


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
    as_json: AsJson = False,
) -> None:
    """Train algorithms × held-out environments × draws × trials, and keep every checkpoint.

    Lists may be given as `--algorithms erm wri`, with commas, or by repeating the option. The same
    command again goes on where it was interrupted, and one with more trials adds to the store.
    """
    from wri.sweep import Question, Sweep, load_data

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
        _forecast(asked, store, as_json)
    else:
        _train(asked, store, as_json)


def _forecast(asked: "Sweep", path: Path, as_json: bool) -> None:
    """Show what is left to train."""
    from wri.sweep import Store, forecast

    with Store(path) if path.exists() else nullcontext() as held:
        found = forecast(asked, held)
    typer.echo(json.dumps(found._asdict()) if as_json else str(found))


def _train(asked: "Sweep", path: Path, as_json: bool) -> None:
    """Train what is missing in the store and show the tables."""
    from wri.sweep import Store, run_sweep
    from wri.sweep.tables import as_rows, as_text, build

    with Store(path, write=True) as kept, make_progress() as bar:
        task = bar.add_task("sweep", total=None)
        try:
            trained = run_sweep(asked, kept, partial(update, bar, task))
        except KeyboardInterrupt:
            bar.stop()
            messages.print(
                f"stopped; {len(kept.finished())} finished runs are in {path}, and the same "
                "command goes on from there",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
            raise typer.Exit(130) from None
        outcomes, described, done = kept.outcomes(), kept.described(), len(kept.finished())
    tables = build(outcomes, described, asked.question.selections)
    if as_json:
        document = {"store": str(path), "trained": trained, "rows": as_rows(tables)}
        typer.echo(json.dumps(document))
    else:
        typer.echo(as_text(tables))
        typer.echo(f"{trained} runs trained, {done} finished ones in {path}")


def results(
    store: Annotated[Path, typer.Argument(help="File that a sweep wrote.")],
    selection: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(SELECTIONS)}; all by default.")
    ] = None,
    form: Annotated[
        Literal["text", "latex", "csv"], typer.Option("--format", help="Form of the tables.")
    ] = "text",
    as_json: AsJson = False,
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
