"""Table 2: coloured digits of unequal difficulty, with and without shift of the digits.

ERM, IRM, VREx and WRI on HCMNIST and HCMNIST-CS, the environment with the misleading colour held
out: 10 draws of hyper-parameters × 5 trials, 500 steps, a checkpoint every 10, as one sweep that
goes on where it was interrupted (`<output>/table2-….db`, which `wri results` reads too). Presets:

    paper       the objective as printed and the paper's hyper-parameters, on its autoencoder's
                features; weights act on single examples
    published   the same with WRI's weights as the paper's code ran them
    coloured    ours: the ablation says what differs; all four algorithms get the same features,
                batches, annealing, ramp and decay, and draws of λ over two decades around the
                default that was chosen for each on trials from 100 on

Selections are those of sweeps. An oracle chooses on rows of the test environment and may be won by
reading the colour the wrong way round, so the guarded one admits only checkpoints that beat the
constant predictor in both training environments. The paper does not say which selection it
printed; its numbers stand beside each that sees the test environment.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.datasets import ideal_accuracy
from wri.experiments.coloured import (
    ALGORITHMS,
    NAMES,
    PRESETS,
    TEST,
    TRAINING,
    UNEQUAL,
    choose_extractor,
    load_features,
)
from wri.experiments.coloured_tables import (
    IDEAL,
    SHORT,
    Chosen,
    against,
    choose_each,
    ideal_line,
    lines,
    refused,
)
from wri.experiments.task import Task
from wri.features import Extractor
from wri.progress import part
from wri.report import style
from wri.report.result import Result, Row
from wri.sweep import SELECTIONS, Store, Sweep, SweepSpec, run_sweep, seed_hash

SHOWN = ("oracle", "oracle-early", "guarded-oracle", "training-domain")
PRINTED = {
    "hcmnist": {"ERM": (53.8, 2.3), "IRM": (67.2, 2.7), "VREx": (67.4, 2.3), "WRI": (75.1, 2.9)},
    "hcmnist-cs": {"ERM": (51.1, 0.9), "IRM": (61.3, 4.7), "VREx": (58.2, 2.3), "WRI": (74.7, 3.8)},
}
MARKERS = {"ERM": "o", "IRM": "s", "VREx": "D", "WRI": "^"}
AT_FULL_SIZE = {"paper": "ae", "published": "ae", "coloured": "cnn"}


class Size(NamedTuple):
    draws: int
    trials: int
    steps: int


FULL, QUICK = Size(10, 5, 500), Size(2, 2, 250)


def run(task: Task) -> list[Result]:
    start = perf_counter()
    preset: str = task.options["preset"]
    extractor = choose_extractor(task, AT_FULL_SIZE[preset])
    datasets = [
        load_features(name, task.full, extractor, part(task.progress, n, 2 * len(UNEQUAL)))
        for n, name in enumerate(UNEQUAL)
    ]
    prepared = perf_counter()
    sweep = Sweep(sweep_spec(task, preset), datasets)
    name = file_name(task, preset, extractor)
    path = task.folder / f"{name}-{sweep_key(sweep)}.db"
    with Store(path, write=True) as store:
        run_sweep(sweep, store, part(task.progress, 1, 2))
        outcomes = [run for run in store.outcomes() if run.trial_seed in trials(task)]
    trained = perf_counter()
    notes = [f"Preset {preset}, features {extractor!r}, {len(sweep.planned)} runs in {path}."]
    rows: list[Row] = []
    shown: dict[tuple[str, str], dict[str, Chosen]] = {}
    for data in datasets:
        for selection in SHOWN:
            found = {
                label: choose_each(selection, outcomes, data.info, algorithm, trials(task))
                for algorithm, label in ALGORITHMS.items()
            }
            rows += table_rows(data.name, selection, found)
            notes += table_notes(data.name, selection, found)
            shown[selection, data.name] = found
    figures = style.save(draw(shown), task.folder, name)
    notes.append(
        f"Features {prepared - start:.0f} s, or as long as it takes to read them; sweep "
        f"{trained - prepared:.0f} s, or as long as what was missing of it."
    )
    return [
        Result(
            experiment=task.name,
            rows=rows,
            figures=figures,
            seconds=perf_counter() - start,
            notes=notes,
            repetitions="trials",
        )
    ]


def file_name(task: Task, preset: str, extractor: Extractor) -> str:
    kind, size = type(extractor).__name__.lower(), "full" if task.full else "quick"
    return f"table2-{preset}-{kind}{extractor.width}-{size}"


def sweep_key(sweep: Sweep) -> str:
    """Of what a preset and an extractor stand for: other objectives or rows are another store."""
    objectives = sorted({repr(planned.model.objective) for planned in sweep.planned})
    return f"{seed_hash(*objectives, *sweep.infos):08x}"


def size_of(task: Task) -> Size:
    return FULL if task.full else QUICK


def trials(task: Task) -> range:
    return range(task.seed, task.seed + size_of(task).trials)


def sweep_spec(task: Task, preset: str) -> SweepSpec:
    size = size_of(task)
    return SweepSpec(
        tuple(ALGORITHMS),
        draws=size.draws,
        trials=size.trials,
        steps=size.steps,
        selections=SHOWN,
        test_envs=(TEST,),
        preset=PRESETS[preset],
        first_trial=task.seed,
        measures=("accuracy",),
    )


def table_rows(dataset: str, selection: str, found: Mapping[str, Chosen]) -> list[Row]:
    """A data set under a selection: a line for each algorithm below the ideal one."""
    title = f"{NAMES[dataset]}, {selection}: {SELECTIONS[selection].description}"
    rows = ideal_line(dataset, title)
    for label, chosen in found.items():
        printed = PRINTED[dataset][label] if selection != "training-domain" else None
        rows += lines(label, chosen, dataset, printed, title)
    return rows


def table_notes(dataset: str, selection: str, found: Mapping[str, Chosen]) -> list[str]:
    """Which trials had no choice, and WRI against the others."""
    where = f"{NAMES[dataset]}, {selection}"
    notes = [said for label, chosen in found.items() for said in refused(label, chosen, where)]
    others = {label: chosen for label, chosen in found.items() if label != "WRI"}
    return [*notes, against("WRI", found["WRI"], others, where)]


def draw(found: Mapping[tuple[str, str], Mapping[str, Chosen]]) -> Figure:
    """Accuracy in every environment, a row of panels for each selection in `SHORT`."""
    with style.figure(8, 5.6) as drawn:
        grid = drawn.subplots(len(SHORT), len(UNEQUAL), sharex=True, sharey=True)
        for axes, (selection, label) in zip(grid, SHORT.items(), strict=True):
            for ax, dataset in zip(axes, UNEQUAL, strict=True):
                draw_panel(ax, dataset, found[selection, dataset])
            axes[0].set_ylabel(f"accuracy (%)\n{label}")
        for ax, dataset in zip(grid[0], UNEQUAL, strict=True):
            ax.set_title(NAMES[dataset])
        handles, labels = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=5)
    return drawn


def draw_panel(ax: Axes, dataset: str, found: Mapping[str, Chosen]) -> None:
    order = (*TRAINING, TEST)
    places = np.arange(len(order))
    for n, ideal in enumerate(100 * ideal_accuracy(dataset)[list(order)]):
        ax.plot(
            [n - 0.35, n + 0.35], [ideal, ideal], color=style.BLACK, label=IDEAL if n == 0 else None
        )
    for n, (label, chosen) in enumerate(found.items()):
        if not len(chosen.accuracy):
            continue
        cells = [Row.of(label, "", chosen.accuracy[:, e]) for e in order]
        ax.errorbar(
            places + 0.15 * (n - (len(found) - 1) / 2),
            [cell.ours for cell in cells],
            [cell.spread or 0.0 for cell in cells],
            fmt=MARKERS[label],
            color=style.ALGORITHM_COLOURS[label.lower()],
            ms=6,
            label=label,
        )
    ax.set_xticks(places, ["+90%\n(training)", "+80%\n(training)", "−90%\n(test)"])
    ax.set_xlim(-0.5, len(order) - 0.5)
    ax.grid(axis="y", color="#E5E5E5", lw=0.6)
    ax.set_axisbelow(True)
