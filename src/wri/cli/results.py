"""The commands `wri results`, `wri results export` and `wri results import`."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from wri.cli import options
from wri.cli.console import ProgressBar, echo, print_note, show_table
from wri.cli.options import DOMAINBED_SELECTIONS, NEED_PAIRS, SELECTIONS
from wri.errors import InputError, check_option
from wri.number_text import write_number

if TYPE_CHECKING:
    from wri.datasets.environments import SiteRows
    from wri.integrations.domainbed import FolderNote
    from wri.sweep import BestModel, DatasetInfo, Outcome
    from wri.sweep.tables import SelectionTable

SHOW = "show"  # hidden: any other first word is a store or an option
SHOWN_FOLDERS = 3
CHOICE_HEADS = (
    *("held out", "trial", "draw", "step", "chosen by", "held-out value"),
    "differs from the preset",
)


class ResultsGroup(TyperGroup):
    """Group that treats any unknown first word as a store."""

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        if args and args[0] in self.commands and args[0] != SHOW:
            return super().make_context(info_name, args, parent, **extra)
        return self.commands[SHOW].make_context(info_name, args, parent, **extra)


def results(
    store: options.OldStore,
    selection: options.Selections = None,
    measure: options.MeasureName = None,
    form: options.Form = "text",
    best: options.Best = False,
    fit: options.FitFolder = None,
    algorithm: options.Algorithm = None,
    dataset: options.Dataset = None,
    data: options.MovedFile = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Show a sweep: tables by selection method, chosen runs, and the best model.

    `--best` shows the chosen draw, step and hyper-parameters of each algorithm, held-out
    environment and trial. Then it shows the model that is best on average, and the line of Python
    that makes it. `--best --fit model/` trains that model on all environments and saves it.

    `wri results export STORE --domainbed DIR` writes the runs for DomainBed, and
    `wri results import DIR` shows the tables of a DomainBed sweep; each has its own `--help`. If a
    store is called export or import, give its path: ./export.

    Examples:

    `wri results sweep.db --selection leave-one-out --format latex`

    `wri results sweep.db --best --algorithm wri --fit model/`

    Exit codes: 0 done, 2 wrong input.
    """
    from wri.sweep import Store
    from wri.sweep.tables import build, comparison_rows

    with Store(store) as opened:
        runs, infos, done = opened.outcomes(), opened.infos(), opened.finished()
    if not done:
        raise InputError(
            f"{store} has no finished run yet; run the same `wri sweep` again to continue it"
        )
    for name in selection or ():
        check_option("--selection", name, SELECTIONS)
    if not (best or fit):
        tables = build(runs, infos.values(), tuple(selection or SELECTIONS), measure)
        _show_tables(tables, form, as_json, comparisons=comparison_rows(tables))
        return
    if selection and len(selection) > 1:
        raise InputError("--best takes one --selection")
    pairs = any(len(run.test_envs) == 2 for run in runs)
    chosen = selection[0] if selection else NEED_PAIRS[0] if pairs else SELECTIONS[0]
    models = _best_models(runs, infos.values(), chosen, measure, algorithm, dataset)
    if fit is not None:
        _fit(infos, models, fit, data, seed)
    choices = [_choice_rows(runs, infos.values(), model) for model in models]
    _show_best(models, choices, fit, as_json)


def _show_tables(tables: "list[SelectionTable]", form: str, as_json: bool, **more: Any) -> None:
    from wri.sweep.tables import as_csv, as_latex, as_rows, as_text

    if as_json:
        echo(json.dumps({"rows": as_rows(tables), **more}))
    else:
        echo({"text": as_text, "latex": as_latex, "csv": as_csv}[form](tables))


def _best_models(
    outcomes: "Sequence[Outcome]",
    infos: "Collection[DatasetInfo]",
    selection: str,
    measure: str | None,
    algorithm: str | None,
    dataset: str | None,
) -> "list[BestModel]":
    from wri.sweep.selection import best_model
    from wri.sweep.tables import choose_measure

    found = []
    for info in infos:
        runs = [run for run in outcomes if run.dataset == info.name]
        if not runs or (dataset or info.name) != info.name:
            continue
        known = list(dict.fromkeys(run.algorithm for run in runs))
        if algorithm is not None:
            check_option("--algorithm", algorithm.lower(), known)
            known = [algorithm.lower()]
        shown = choose_measure(runs, measure)
        found += [best_model(runs, info, name, selection, shown) for name in known]
    if not found:
        names = ", ".join(info.name for info in infos)
        raise InputError(f"the store has no data set {dataset!r}; it has {names}")
    return found


def _kind(model: "BestModel") -> str:
    from wri.measures import MEASURES

    return "Regressor" if MEASURES[model.measure].task == "numbers" else "Classifier"


def _fit(
    infos: "Mapping[str, DatasetInfo]",
    models: "Sequence[BestModel]",
    folder: Path,
    data: Path | None,
    seed: int,
) -> None:
    """Train the best model on all environments and save it."""
    if len(models) > 1:
        names = ", ".join(f"{model.algorithm} on {model.dataset}" for model in models)
        raise InputError(f"--fit saves one model; name --algorithm and --dataset: {names}")
    from wri.estimators import ESTIMATORS
    from wri.registry import OBJECTIVES
    from wri.sweep import reload

    (model,) = models
    fingerprint, info = next((f, i) for f, i in infos.items() if i.name == model.dataset)
    rows = reload(info, fingerprint, data)
    kind = ESTIMATORS[f"{OBJECTIVES[model.algorithm].label}{_kind(model)}"]
    estimator = kind.from_spec(model.model, random_state=seed)
    if info.source.get("categories"):
        estimator, rows = _before_encoding(estimator, info.source, data)
    with ProgressBar("training on all environments"):
        fitted = estimator.fit(*rows)
    fitted.save(folder)


def _before_encoding(
    estimator: Any, source: Mapping[str, str], moved: Path | None
) -> "tuple[Any, SiteRows]":
    """Return a pipeline that encodes the categories itself, and the rows as they are in the file.

    The saved model then takes the columns of the file.
    """
    from wri.datasets.environments import SiteRows
    from wri.datasets.table_rows import describe_columns, read_rows
    from wri.estimators.pipeline import make_pipeline
    from wri.sweep.data import listed_columns

    lists = listed_columns(source)
    path, target, env = moved or Path(source["path"]), source["target"], source["environment"]
    rows = read_rows([path], target, env, task=source["task"], leave_out=lists["leave_out"])
    schema = describe_columns([str(name) for name in rows.X.columns], lists["categories"])
    schema = replace(schema, rows=len(rows.y), target=target, environment=env)
    steps = schema.make_preprocessing()
    return make_pipeline(*steps, estimator), SiteRows(rows.X, rows.y, rows.groups)


def _choice_rows(
    outcomes: "Sequence[Outcome]", infos: "Collection[DatasetInfo]", model: "BestModel"
) -> list[dict[str, Any]]:
    """Return the choice of each held-out environment and trial, or the reason for none."""
    from wri.sweep.tables import as_rows, build

    shown = (model.dataset, model.algorithm)
    runs = [run for run in outcomes if (run.dataset, run.algorithm) == shown]
    rows = as_rows(build(runs, infos, (model.selection,), model.measure))
    return [row for row in rows if row["choices"] or row.get("reason")]


def _show_best(
    models: "Sequence[BestModel]",
    choices: Sequence[list[dict[str, Any]]],
    folder: Path | None,
    as_json: bool,
) -> None:
    from wri.estimators.network import python_line
    from wri.report.page import PageTable

    lines = [python_line(each.model, _kind(each)) for each in models]
    if as_json:
        best = [
            {**vars(each), "model": each.model.differences(), "python": line}
            for each, line in zip(models, lines, strict=True)
        ]
        rows = [row for each in choices for row in each]
        echo(json.dumps({"best": best, "choices": rows, "saved": folder and str(folder)}))
        return
    for model, rows, line in zip(models, choices, lines, strict=True):
        echo(f"{model.algorithm} on {model.dataset}, {model.selection}, {model.measure}")
        cells = [
            [row["environment"], *_choice_cells(each)] for row in rows for each in row["choices"]
        ]
        show_table(PageTable(caption="", columns=CHOICE_HEADS, rows=cells))
        echo(
            f"best on average: draw {model.draw}, step {model.step}, {model.measure} "
            f"{write_number(model.value, 4)}\n{line}"
        )
    if folder is not None:
        echo(f"trained on all environments and saved in {folder}")


def _choice_cells(choice: dict[str, Any]) -> list[str]:
    hyper = (choice["model"] or {}).get("hyper", {})
    numbers = ", ".join(f"{name} = {write_number(value, 4)}" for name, value in hyper.items())
    place = [str(choice[name]) for name in ("trial", "draw", "step")]
    return [*place, *(write_number(choice[name], 4) for name in ("value", "score")), numbers]


def export(
    store: options.OldStore,
    domainbed: options.ExportFolder,
    name: options.DatasetNames = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a sweep as folders that DomainBed's collect_results reads.

    Runs that diverged or are not finished are left out and listed. DomainBed has tables only for
    data sets that are registered there: `--name hospitals=PACS` renames a data set.

    Examples:

    `wri results export sweep.db --domainbed out/`

    `wri results export sweep.db --domainbed out/ --name hospitals=PACS`
    """
    from wri.integrations.domainbed import export_runs
    from wri.sweep import Store

    names = dict(_split_name(each) for each in name or ())
    with Store(store) as opened:
        outcomes = opened.outcomes()
    done = export_runs(outcomes, domainbed, names)
    if as_json:
        left_out = [{"run": run, "reason": reason} for run, reason in done.left_out.items()]
        document = {"folder": str(done.folder), "written": done.written, "left_out": left_out}
        echo(json.dumps({**document, "unregistered": done.unregistered}))
        return
    echo(f"{done.written} runs written to {done.folder}")
    for run, reason in done.left_out.items():
        print_note(f"left out: {run}: {reason}")
    if done.unregistered:
        print_note(
            f"DomainBed shows no tables of {', '.join(done.unregistered)}: register them there, or "
            "rename them with --name"
        )


def _split_name(text: str) -> tuple[str, str]:
    ours, equals, theirs = text.partition("=")
    if not (ours and equals and theirs):
        raise InputError(f"--name {text} must be OURS=THEIRS, such as --name hospitals=PACS")
    return ours, theirs


def import_(
    folder: options.SweepFolder,
    selection: options.DomainBedSelections = None,
    form: options.Form = "text",
    only_done: options.OnlyDone = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the tables of a sweep folder of DomainBed, for any data set.

    Uses DomainBed's three selection methods, and otherwise the rules of `wri results`. Damaged
    lines and missing files are skipped; what could not be used is listed with the reason. A
    checkpoint whose accuracy is not a number is never chosen here; DomainBed chooses it if it is
    the first.

    Examples:

    `wri results import sweep/`

    `wri results import sweep/ --selection oracle --format csv --only-done`
    """
    from wri.integrations.domainbed import build_tables, read_sweep

    for each in selection or ():
        check_option("--selection", each, DOMAINBED_SELECTIONS)
    sweep = read_sweep(folder, only_done)
    tables = build_tables(sweep.outcomes, sweep.infos, tuple(selection or DOMAINBED_SELECTIONS))
    notes = [note._asdict() for note in sweep.notes]
    _show_tables(tables, form, as_json, runs=len(sweep.outcomes), notes=notes)
    if not as_json:
        _print_notes(sweep.notes)


def _print_notes(notes: "Iterable[FolderNote]") -> None:
    """Print one line per reason, with its folders."""
    folders: dict[tuple[bool, str], list[str]] = {}
    for note in notes:
        folders.setdefault((note.used, note.reason), []).append(note.folder)
    for (used, reason), names in sorted(folders.items()):
        more = len(names) - SHOWN_FOLDERS
        shown = ", ".join(names[:SHOWN_FOLDERS]) + (f" and {more} more" if more > 0 else "")
        print_note(f"{'used' if used else 'not used'}: {shown}: {reason}")


def make_app() -> typer.Typer:
    """Make the group of `wri results`."""
    app = typer.Typer(
        cls=ResultsGroup,
        help="Show a sweep, export it to DomainBed, or import one from DomainBed.",
        rich_markup_mode="markdown",
    )
    app.command(SHOW, hidden=True)(results)
    app.command("export")(export)
    app.command("import")(import_)
    return app
