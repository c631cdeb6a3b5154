"""The command `wri results`: tables of a sweep, chosen runs, and the best model."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from wri.cli import options as given
from wri.cli.console import console, echo, make_progress
from wri.cli.names import NEED_PAIRS, SELECTIONS
from wri.errors import InputError, check_option
from wri.number_text import write_number

if TYPE_CHECKING:
    from wri.sweep import BestModel, DatasetInfo, Outcome


class StoreContents(NamedTuple):
    """Contents of a store."""

    outcomes: "list[Outcome]"
    infos: "dict[str, DatasetInfo]"  # by fingerprint


def results(
    store: given.OldStore,
    selection: given.Selections = None,
    measure: given.MeasureName = None,
    form: given.Form = "text",
    best: given.Best = False,
    fit: given.FitFolder = None,
    algorithm: given.Algorithm = None,
    dataset: given.Dataset = None,
    data: given.MovedFile = None,
    seed: given.Seed = 0,
    as_json: given.AsJson = False,
) -> None:
    """Show a sweep: tables by selection method, chosen runs, and the best model.

    `--best` shows for each algorithm, held-out environment and trial the chosen draw, step and
    hyper-parameters, then the model that is best on average and the line of Python that makes it.
    `--best --fit model/` trains that model on all environments and saves it.

    `wri results export STORE --domainbed DIR` writes the runs for DomainBed, and
    `wri results import DIR` shows the tables of a DomainBed sweep; each has its own `--help`. For a
    store named export or import give its path, ./export.

    Examples:

    `wri results sweep.db --selection leave-one-out --format latex`

    `wri results sweep.db --best --algorithm wri --fit model/`

    Exit codes: 0 done, 2 wrong input.
    """
    from wri.sweep import Store

    with Store(store) as opened:
        kept, done = StoreContents(opened.outcomes(), opened.infos()), opened.finished()
    if not done:
        raise InputError(f"{store} holds no finished run yet; `wri sweep` continues it")
    for name in selection or ():
        check_option("--selection", name, SELECTIONS)
    if not (best or fit):
        _show_tables(kept, tuple(selection or SELECTIONS), measure, form, as_json)
        return
    chosen = _one_selection(kept, selection)
    models = _best_models(kept, chosen, measure, algorithm, dataset)
    folder = None if fit is None else _fit(kept, models, fit, data, seed, as_json)
    if as_json:
        _print_best_json(kept, models, folder)
    else:
        _show_best(kept, models, folder)


def _show_tables(
    kept: StoreContents, selections: tuple[str, ...], measure: str | None, form: str, as_json: bool
) -> None:
    from wri.sweep.tables import as_csv, as_latex, as_rows, as_text, build, comparison_rows

    tables = build(kept.outcomes, kept.infos.values(), selections, measure)
    if as_json:
        echo(json.dumps({"rows": as_rows(tables), "comparisons": comparison_rows(tables)}))
    else:
        echo({"text": as_text, "latex": as_latex, "csv": as_csv}[form](tables))


def _one_selection(kept: StoreContents, wanted: Sequence[str] | None) -> str:
    """Return the selection asked for; else one with pairs held out if the store has them."""
    if wanted:
        if len(wanted) > 1:
            raise InputError("--best takes one --selection")
        return wanted[0]
    pairs = any(len(run.test_envs) == 2 for run in kept.outcomes)
    return NEED_PAIRS[0] if pairs else SELECTIONS[0]


def _best_models(
    kept: StoreContents,
    selection: str,
    measure: str | None,
    algorithm: str | None,
    dataset: str | None,
) -> "list[BestModel]":
    from wri.sweep.best import best_model
    from wri.sweep.tables import choose_measure

    found = []
    for info in kept.infos.values():
        runs = [run for run in kept.outcomes if run.dataset == info.name]
        if not runs or (dataset or info.name) != info.name:
            continue
        known = list(dict.fromkeys(run.algorithm for run in runs))
        if algorithm is not None:
            check_option("--algorithm", algorithm.lower(), known)
            known = [algorithm.lower()]
        shown = choose_measure(runs, measure)
        found += [best_model(runs, info, name, selection, shown) for name in known]
    if not found:
        names = ", ".join(info.name for info in kept.infos.values())
        raise InputError(f"the store has no data set {dataset!r}; it has {names}")
    return found


def _kind(model: "BestModel") -> str:
    from wri.measures import MEASURES

    return "Regressor" if MEASURES[model.measure].task == "numbers" else "Classifier"


def _fit(
    kept: StoreContents,
    models: "Sequence[BestModel]",
    folder: Path,
    data: Path | None,
    seed: int,
    quiet: bool,
) -> Path:
    """Train the best model on all environments and save it."""
    if len(models) > 1:
        names = ", ".join(f"{model.algorithm} on {model.dataset}" for model in models)
        raise InputError(f"--fit saves one model; name --algorithm and --dataset: {names}")
    from wri.estimators import ESTIMATORS
    from wri.registry import OBJECTIVES
    from wri.sweep import reload

    (model,) = models
    fingerprint, info = next((f, i) for f, i in kept.infos.items() if i.name == model.dataset)
    rows = reload(info, fingerprint, data)
    estimator = ESTIMATORS[f"{OBJECTIVES[model.algorithm].label}{_kind(model)}"]
    with make_progress() as bar:
        bar.add_task("training on all environments", total=None)
        fitted = estimator.from_spec(model.model, random_state=seed).fit(*rows)
    fitted.save(folder)
    return folder


def _print_best_json(
    kept: StoreContents, models: "Sequence[BestModel]", folder: Path | None
) -> None:
    from wri.estimators.specs import python_line

    best = [
        {
            "dataset": model.dataset,
            "algorithm": model.algorithm,
            "selection": model.selection,
            "measure": model.measure,
            "draw": model.draw,
            "step": model.step,
            "value": model.value,
            "model": model.model.differences(),
            "python": python_line(model.model, _kind(model)),
        }
        for model in models
    ]
    rows = [row for model in models for row in _choice_rows(kept, model)]
    document = {"best": best, "choices": rows, "saved": None if folder is None else str(folder)}
    echo(json.dumps(document))


def _choice_rows(kept: StoreContents, model: "BestModel") -> list[dict[str, Any]]:
    """Return the choice of each held-out environment and trial, or the reason for none."""
    from wri.sweep.tables import as_rows, build

    runs = [
        run
        for run in kept.outcomes
        if (run.dataset, run.algorithm) == (model.dataset, model.algorithm)
    ]
    rows = as_rows(build(runs, kept.infos.values(), (model.selection,), model.measure))
    return [row for row in rows if row["choices"] or row.get("reason")]


def _show_best(kept: StoreContents, models: "Sequence[BestModel]", folder: Path | None) -> None:
    from wri.estimators.specs import python_line

    for model in models:
        label = f"{model.algorithm} on {model.dataset}, {model.selection}, {model.measure}"
        shown = Table(title=label, title_justify="left")
        for column in ("held out", "trial", "draw", "step", "chosen by", "held-out value"):
            shown.add_column(column, justify="right" if column != "held out" else "left")
        shown.add_column("differs from the preset")
        for row in _choice_rows(kept, model):
            for choice in row["choices"]:
                shown.add_row(row["environment"], *_choice_cells(choice))
        console.print(shown)
        echo(
            f"best on average: draw {model.draw}, step {model.step}, {model.measure} "
            f"{write_number(model.value, 4)}\n{python_line(model.model, _kind(model))}"
        )
    if folder is not None:
        echo(f"trained on all environments and saved in {folder}")


def _choice_cells(choice: dict[str, Any]) -> list[str]:
    hyper = (choice["model"] or {}).get("hyper", {})
    numbers = ", ".join(f"{name} = {write_number(value, 4)}" for name, value in hyper.items())
    place = [str(choice[name]) for name in ("trial", "draw", "step")]
    return [
        *place,
        write_number(choice["value"], 4),
        write_number(choice["score"], 4),
        numbers,
    ]
