"""The command `wri sweep`."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wri.cli import options
from wri.cli.console import ProgressBar, echo, print_note
from wri.cli.options import ON_REQUEST, SELECTIONS
from wri.errors import InputError, shorten
from wri.number_text import write_number
from wri.presets import FALLBACK
from wri.registry import PAPER

if TYPE_CHECKING:
    from wri.features import FeatureLayer
    from wri.jobs import Runner
    from wri.sweep import Sweep, SweepData

DEFAULT_SELECTIONS = tuple(name for name in SELECTIONS if name not in ON_REQUEST)


def sweep(
    store: options.StoreFile,
    datasets: options.Datasets = None,
    data: options.DataFile = None,
    images: options.PictureFolder = None,
    backbone: options.BackboneName = None,
    feature_layer: options.FeatureWidths = None,
    target: options.Target = None,
    env: options.Env = None,
    task: options.TaskName = None,
    drop: options.Drop = None,
    category: options.Category = None,
    algorithms: options.SweepAlgorithms = None,
    plugin: options.Plugins = None,
    draws: options.Draws = 1,
    trials: options.Trials = 3,
    first_trial: options.FirstTrial = 0,
    steps: options.RunSteps = None,
    checkpoint_every: options.CheckpointEvery = 10,
    test_envs: options.TestEnvs = None,
    selection: options.Selections = None,
    preset: options.PresetName = None,
    hidden: options.Hidden = None,
    standardise: options.Standardise = None,
    set_: options.Set = None,
    measure: options.MeasureName = None,
    record: options.Recorded = None,
    memory: options.Memory = options.MEMORY,
    backend: options.Backend = "local",
    dry_run: options.DryRun = False,
    repair: options.Repair = False,
    as_json: options.AsJson = False,
) -> None:
    """Train algorithms × held-out environments × draws × trials, and keep every checkpoint.

    Give a list as `--algorithms erm wri`, with commas, or by repeating the option. After an
    interruption, run the same command again to continue. With more trials it adds to the store.
    With `--repair` it also trains damaged runs again.

    Examples:

    `wri sweep --datasets hospitals --algorithms erm wri --trials 3 --store sweep.db`

    `wri sweep --data rows.csv --target y --env site --draws 10 --store sweep.db --dry-run`

    `wri sweep --images photos/ --draws 10 --trials 5 --store sweep.db`

    Exit codes: 0 done, 2 wrong input, 3 Ray was lost, 130 interrupted, 143 terminated (the last
    three keep finished runs).
    """
    from wri.sweep import Sweep, SweepSpec, open_backend

    _load_plugins(plugin or [])
    used = open_backend(backend)
    chosen = tuple(selection or DEFAULT_SELECTIONS)
    columns = {"target": target, "environment": env, "task": task}
    lists = {"leave_out": drop or (), "categories": category or ()}
    rows = _load_tables(datasets, data, images, {**columns, **lists}, feature_layer, memory)
    trained: dict[str, Any] = {"draws": draws, "trials": trials, "first_trial": first_trial}
    trained |= {"steps": steps, "hidden": options.read_hidden(hidden), "standardise": standardise}
    spec = SweepSpec(
        tuple(name.lower() for name in algorithms or PAPER),
        **trained,
        checkpoint_every=checkpoint_every,
        selections=chosen,
        test_envs=None if test_envs is None else tuple(test_envs),
        preset=preset or (rows[0].preset if rows else FALLBACK),
        overrides=_numbers(set_ or []),
        measures=None if record is None else tuple(record),
    )
    rows += _load_images(images, backbone, feature_layer)
    overhead = used.overhead(sum(data.bank.features.nbytes for data in rows))
    planned = Sweep(spec, rows, _memory_left(memory, overhead))
    if dry_run:
        _forecast(planned, store, as_json)
    else:
        _train(planned, store, used, chosen, measure, repair, as_json)


def _load_plugins(names: list[str]) -> None:
    from wri.objectives.plugins import load_plugin

    for each in names:
        load_plugin(each)


def _forecast(planned: "Sweep", store: Path, as_json: bool) -> None:
    from wri.sweep import Store, forecast

    with Store(store) if store.exists() else nullcontext() as held:
        found = forecast(planned, held)
    echo(json.dumps(asdict(found)) if as_json else str(found))


def _load_tables(
    names: list[str] | None,
    path: Path | None,
    images: Path | None,
    columns: Mapping[str, Any],
    widths: str | None,
    memory: float,
) -> "list[SweepData]":
    """Return built-in tables and one from a file, whose columns are given as for `load_data`."""
    from wri.datasets.table_files import check_memory
    from wri.sweep import load_data
    from wri.sweep.data import with_layer

    listed = columns["leave_out"] or columns["categories"]
    if images is not None and not (names or path or listed):
        return []
    if path is not None:
        check_memory([path], memory)
    tables = load_data(names or [], path, **columns)
    return [with_layer(each, _read_layer(widths)) for each in tables]


def _load_images(
    folder: Path | None, backbone: str | None, widths: str | None
) -> "list[SweepData]":
    """Return the features of a folder's pictures, with a bar while they are made; none without."""
    from wri.datasets import ImageFolder
    from wri.sweep import SweepData

    if folder is None:
        if backbone is not None:
            raise InputError("--backbone is for pictures; name their folder with --images")
        return []
    pictures, layer = ImageFolder(folder), _read_layer("64,32" if widths is None else widths)
    with ProgressBar("features of pictures") as bar:
        return [SweepData.from_images(pictures, backbone, layer=layer, progress=bar.step)]


def _read_layer(text: str | None) -> "FeatureLayer | None":
    from wri.features import FeatureLayer

    widths = options.read_hidden(text, "--feature-layer")
    return FeatureLayer(widths) if widths else None


def _memory_left(gigabytes: float, overhead: float) -> float:
    """Return the bytes left for training beside this process and the back end."""
    from wri.sweep.sweep import LIBRARIES
    from wri.threads import resident_bytes

    taken = resident_bytes() + LIBRARIES + overhead
    if gigabytes * 1e9 <= taken:
        raise InputError(
            f"--memory {gigabytes:g} is too small: PyTorch and the rows need "
            f"{write_number(taken / 1e9, 2)} GB"
            + (" in all workers; OMP_NUM_THREADS=1 starts only one" if overhead else "")
        )
    return gigabytes * 1e9 - taken


def _train(
    planned: "Sweep",
    store: Path,
    backend: "Runner",
    selections: tuple[str, ...],
    measure: str | None,
    repair: bool,
    as_json: bool,
) -> None:
    from wri.sweep import Store, run_sweep
    from wri.sweep.tables import as_rows, as_text, build

    with Store(store, write=True, repair=repair) as kept, backend, ProgressBar("sweep") as bar:
        for run in kept.dropped:
            print_note(f"dropped a damaged run: {run}")
        backend.status = bar.describe
        try:
            trained = run_sweep(planned, kept, bar.step, backend)
        except KeyboardInterrupt:
            bar.stop()
            print_note(
                f"stopped; {len(kept.finished())} finished runs are in {store}; run the same "
                "command to continue"
            )
            raise
        outcomes, infos, done = kept.outcomes(), kept.infos(), len(kept.finished())
    tables = build(outcomes, infos.values(), selections, measure)
    if as_json:
        echo(json.dumps({"store": str(store), "trained": trained, "rows": as_rows(tables)}))
        return
    for data in planned.datasets:
        echo(_describe(data, planned.spec.preset))
    echo(as_text(tables))
    echo(f"{trained} runs trained; {store} now holds {done} finished runs")


def _describe(data: "SweepData", preset: str) -> str:
    """Describe a data set, so that a wrong guess is seen."""
    classes = data.bank.n_classes
    target = "a number" if classes is None else f"one of {classes} classes"
    n_rows, n_columns = data.bank.features.shape
    widths = " or ".join(map(str, data.layer.widths)) if data.layer else ""
    layer = f"; a feature layer of {widths} in each trial" if widths else ""
    return (
        f"{data.name}: {n_rows} rows, {n_columns} columns, {len(data.names)} environments; the "
        f"target is {target}; preset {preset}{layer}\n"
    )


def _numbers(pairs: list[str]) -> dict[str, float]:
    """Read hyper-parameters from name=value, or from a JSON object in a file."""
    numbers: dict[str, float] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        try:
            if pair.startswith("@"):
                found = json.loads(Path(pair[1:]).read_text(encoding="utf-8"))
                numbers |= {key: float(number) for key, number in found.items()}
            else:
                numbers[name] = float(value)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise InputError(
                f"--set {shorten(pair)} must be name=number, or @file with a JSON object of numbers"
            ) from None
    return numbers
