"""Table 2: coloured digits of unequal difficulty, with and without shift of the digits.

ERM, IRM, VREx and WRI on HCMNIST and HCMNIST-CS, the environment with the misleading colour held
out: 10 draws of everything (rows and colours, extractor, split, initial weights) × 10 draws of
hyper-parameters, 500 steps, a checkpoint every 10. `--seed N` is the number of the first draw of
everything; the settings were chosen on draws 0 to 9, so a report should use others
(`docs/results/table2.md` shows 20 to 29). All runs are kept in one store, which continues after an
interruption (`<output>/table2-….db`; `wri results` reads it too, each draw as a data set).
Presets:

    paper       the objective as printed and the paper's hyper-parameters, on its autoencoder's
                features; weights act on single examples
    published   the same with WRI's weights as in the paper's code
    coloured    ours: the ablation shows the differences; all four algorithms get the same features,
                batches, annealing, ramp and decay, and draws of λ over two decades around the
                default that was chosen for each on draws 0 to 9

The first tables have the default numbers of each algorithm at the last step, where nothing is
chosen; the others have the selections of sweeps. An oracle chooses on rows of the test environment
and may prefer a predictor that reads the colour in the opposite direction, so the guarded one
allows only checkpoints that beat the constant predictor in both training environments. The paper
does not name its selection; its numbers are shown beside each that sees the test environment. Below
them is what the features allow: the same network, and a linear predictor, trained by ERM on the
digit's side, at their last step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.coloured import (
    ALGORITHMS,
    NAMES,
    PRESETS,
    TEST,
    TRAINING,
    UNEQUAL,
    ColouredData,
    Variant,
    as_outcome,
    choose_extractor,
    load_features,
    train_variants,
)
from wri.paper.experiments.coloured_tables import (
    IDEAL,
    ON_DIGITS,
    PROBE,
    SelectedRuns,
    against,
    choose_each,
    ideal_line,
    lines,
    refused,
)
from wri.paper.features import Extractor
from wri.paper.result import Result, ResultCell
from wri.paper.simulations import ideal_accuracy
from wri.progress import Progress, part, silent
from wri.report import style
from wri.sweep import (
    SELECTIONS,
    DatasetInfo,
    Outcome,
    Store,
    Sweep,
    SweepSpec,
    open_backend,
    run_sweep,
    seed_hash,
)
from wri.training import ModelSpec

SHOWN = ("oracle", "oracle-early", "guarded-oracle", "training-domain", "invariance")
DEFAULTS = "defaults"
DRAWN = {DEFAULTS: "default numbers", "invariance": "chosen without the test"}
WITHOUT_TEST = (DEFAULTS, "training-domain", "invariance")
PRINTED = {
    "hcmnist": {"ERM": (53.8, 2.3), "IRM": (67.2, 2.7), "VREx": (67.4, 2.3), "WRI": (75.1, 2.9)},
    "hcmnist-cs": {"ERM": (51.1, 0.9), "IRM": (61.3, 4.7), "VREx": (58.2, 2.3), "WRI": (74.7, 3.8)},
}
MARKERS = {"ERM": "o", "IRM": "s", "VREx": "D", "WRI": "^"}
AT_FULL_SIZE = {"paper": "ae", "published": "ae", "coloured": "cnn"}


class Table2Size(NamedTuple):
    repetitions: int  # draws of everything
    draws: int  # of hyper-parameters
    steps: int


FULL, QUICK = Table2Size(10, 10, 500), Table2Size(2, 2, 250)
Draws = Mapping[int, ColouredData]
"""The draws of one data set by their numbers."""


def run(task: ExperimentTask) -> list[Result]:
    start = perf_counter()
    preset: str = task.options["preset"]
    extractor = choose_extractor(task, AT_FULL_SIZE[preset])
    datasets = load_draws(task, extractor, part(task.progress, 0, 2))
    prepared = perf_counter()
    sweeps = [
        Sweep(sweep_spec(task, preset, draw), [draws[draw] for draws in datasets.values()])
        for draw in numbers(task)
    ]
    name = file_name(task, preset, extractor)
    path = task.folder / f"{name}-{sweep_key(sweeps)}.db"
    with Store(path, write=True) as store, open_backend(task.options["backend"]) as backend:
        for n, sweep in enumerate(sweeps):
            progress = part(task.progress, len(sweeps) + n, 2 * len(sweeps))
            run_sweep(sweep, store, progress, backend)
        outcomes = store.outcomes()
    outcomes += train_on_digits(task, preset, datasets)
    trained = perf_counter()
    count = sum(len(sweep.planned) for sweep in sweeps)
    notes = [
        f"Preset {preset}, features {extractor!r}, draws {task.seed} to {numbers(task)[-1]}, "
        f"{count} runs in {path}."
    ]
    rows, shown, said = tables(datasets, outcomes)
    figures = style.save(draw_figure(shown), task.folder, name)
    notes += said
    notes.append(
        f"Features {prepared - start:.0f} s (less if they were kept); sweep "
        f"{trained - prepared:.0f} s (less if runs were finished)."
    )
    return [
        Result(experiment=task.name, rows=rows, figures=figures, notes=notes, repetitions="draws")
    ]


Found = dict[tuple[str, str], dict[str, SelectedRuns]]
"""What was chosen, by selection and data set, then by the name of a line."""


def tables(
    datasets: Mapping[str, Draws], outcomes: Sequence[Outcome]
) -> tuple[list[ResultCell], Found, list[str]]:
    """Return the lines of each data set and selection, what they show, and notes."""
    rows: list[ResultCell] = []
    shown: Found = {}
    notes: list[str] = []
    for dataset, draws in datasets.items():
        infos = {draw: data.info for draw, data in draws.items()}
        on_digits = {
            name: choose_each("oracle", outcomes, infos, name) for name in (ON_DIGITS, PROBE)
        }
        for selection in (DEFAULTS, *SHOWN):
            found = {
                label: chosen_by(selection, outcomes, infos, algorithm)
                for algorithm, label in ALGORITHMS.items()
            }
            rows += table_rows(dataset, selection, found, on_digits)
            notes += table_notes(dataset, selection, found)
            shown[selection, dataset] = found
    return rows, shown, notes


def chosen_by(
    selection: str,
    outcomes: Sequence[Outcome],
    infos: Mapping[int, DatasetInfo],
    algorithm: str,
) -> SelectedRuns:
    """Choose by a selection, or take the last checkpoint of the default numbers."""
    if selection != DEFAULTS:
        return choose_each(selection, outcomes, infos, algorithm)
    first = [each for each in outcomes if each.hparams_seed == 0]
    return choose_each("oracle", first, infos, algorithm)  # one draw: there is nothing to choose


def load_draws(task: ExperimentTask, extractor: Extractor, progress: Progress) -> dict[str, Draws]:
    """Load each draw of each data set."""
    count = len(UNEQUAL) * len(numbers(task))
    return {
        name: {
            draw: load_features(
                name,
                task.full,
                extractor,
                part(progress, n * len(numbers(task)) + k, count),
                draw,
            )
            for k, draw in enumerate(numbers(task))
        }
        for n, name in enumerate(UNEQUAL)
    }


def train_on_digits(
    task: ExperimentTask, preset: str, datasets: Mapping[str, Draws]
) -> list[Outcome]:
    """Train the preset's network and a linear one by ERM on the digit's side, one run per draw."""
    spec = ModelSpec.of("erm", preset=PRESETS[preset], steps=size_of(task).steps)
    variants = {
        ON_DIGITS: Variant(spec, on_digits=True),
        PROBE: Variant(replace(spec, hidden=()), on_digits=True),
    }
    found = []
    for draws in datasets.values():
        for draw, data in draws.items():
            records = train_variants({None: data}, variants, draw, silent)
            found += [as_outcome(name, data.name, draw, each) for name, each in records.items()]
    return found


def file_name(task: ExperimentTask, preset: str, extractor: Extractor) -> str:
    kind, size = type(extractor).__name__.lower(), "full" if task.full else "quick"
    return f"table2-{preset}-{kind}{extractor.width}-{size}"


def sweep_key(sweeps: Sequence[Sweep]) -> str:
    """Return a key of preset and extractor: other objectives or rows are another store."""
    objectives = {repr(planned.model.objective) for sweep in sweeps for planned in sweep.planned}
    rows = [fingerprint for sweep in sweeps for fingerprint in sweep.infos]
    return f"{seed_hash(*sorted(objectives), *rows):08x}"


def size_of(task: ExperimentTask) -> Table2Size:
    return FULL if task.full else QUICK


def numbers(task: ExperimentTask) -> range:
    """Return the numbers of the draws of everything."""
    return range(task.seed, task.seed + size_of(task).repetitions)


def sweep_spec(task: ExperimentTask, preset: str, draw: int) -> SweepSpec:
    """Return a sweep of one trial, whose number is that of the draw of everything."""
    size = size_of(task)
    return SweepSpec(
        tuple(ALGORITHMS),
        draws=size.draws,
        trials=1,
        steps=size.steps,
        selections=SHOWN,
        test_envs=(TEST,),
        preset=PRESETS[preset],
        first_trial=draw,
        measures=("accuracy",),
    )


def table_rows(
    dataset: str,
    selection: str,
    found: Mapping[str, SelectedRuns],
    on_digits: Mapping[str, SelectedRuns],
) -> list[ResultCell]:
    """Return a data set under a selection: one line per algorithm below what can be reached."""
    described = "last checkpoint of the default numbers, nothing chosen"
    if selection != DEFAULTS:
        described = SELECTIONS[selection].description
    title = f"{NAMES[dataset]}, {selection}: {described}"
    rows = ideal_line(dataset, title)
    for name, chosen in on_digits.items():
        rows += lines(name, chosen, dataset, None, title)
    for label, chosen in found.items():
        printed = PRINTED[dataset][label] if selection not in WITHOUT_TEST else None
        rows += lines(label, chosen, dataset, printed, title)
    return rows


def table_notes(dataset: str, selection: str, found: Mapping[str, SelectedRuns]) -> list[str]:
    """Return which draws had no choice, and WRI against the others."""
    where = f"{NAMES[dataset]}, {selection}"
    notes = [said for label, chosen in found.items() for said in refused(label, chosen, where)]
    others = {label: chosen for label, chosen in found.items() if label != "WRI"}
    return [*notes, against("WRI", found["WRI"], others, where)]


def draw_figure(found: Mapping[tuple[str, str], Mapping[str, SelectedRuns]]) -> Figure:
    """Draw the accuracy in each environment, one row of panels per selection in `DRAWN`."""
    with style.figure(8, 5.6) as drawn:
        grid = drawn.subplots(len(DRAWN), len(UNEQUAL), sharex=True, sharey=True)
        for axes, (selection, label) in zip(grid, DRAWN.items(), strict=True):
            for ax, dataset in zip(axes, UNEQUAL, strict=True):
                draw_panel(ax, dataset, found[selection, dataset])
            axes[0].set_ylabel(f"accuracy (%)\n{label}")
        for ax, dataset in zip(grid[0], UNEQUAL, strict=True):
            ax.set_title(NAMES[dataset])
        handles, labels = grid[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=5)
    return drawn


def draw_panel(ax: Axes, dataset: str, found: Mapping[str, SelectedRuns]) -> None:
    order = (*TRAINING, TEST)
    places = np.arange(len(order))
    for n, ideal in enumerate(100 * ideal_accuracy(dataset)[list(order)]):
        ax.plot(
            [n - 0.35, n + 0.35], [ideal, ideal], color=style.BLACK, label=IDEAL if n == 0 else None
        )
    for n, (label, chosen) in enumerate(found.items()):
        if not len(chosen.accuracy):
            continue
        cells = [ResultCell.of(label, "", chosen.accuracy[:, e]) for e in order]
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
