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

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter

from matplotlib.figure import Figure

from wri import sweep
from wri.paper.experiments import ExperimentTask, coloured
from wri.paper.experiments.coloured import (
    ALGORITHMS,
    NAMES,
    ON_DIGITS,
    PRESETS,
    PROBE,
    TEST,
    TRAINING,
    UNEQUAL,
    SelectedRuns,
    choose_each,
)
from wri.paper.experiments.panels import draw_points
from wri.paper.result import Result, ResultCell, read_printed
from wri.paper.simulations import ideal_accuracy
from wri.progress import part, silent
from wri.report import style
from wri.training import ModelSpec

SHOWN = ("oracle", "oracle-early", "guarded-oracle", "training-domain", "invariance")
DEFAULTS = "defaults"
DRAWN = {DEFAULTS: "default numbers", "invariance": "chosen without the test"}
WITHOUT_TEST = (DEFAULTS, "training-domain", "invariance")
MARKERS = dict(zip(ALGORITHMS, "osD^", strict=True))
FULL, QUICK = (10, 10, 500), (2, 2, 250)
"""Draws of everything, draws of hyper-parameters, steps."""

Draws = Mapping[int, coloured.ColouredData]
"""The draws of one data set by their numbers."""
Found = dict[tuple[str, str], dict[str, SelectedRuns]]
"""What was chosen, by selection and data set, then by the name of a line."""


def run(task: ExperimentTask) -> list[Result]:
    start = perf_counter()
    preset: str = task.options["preset"]
    repetitions, count, steps = FULL if task.full else QUICK
    numbers = range(task.seed, task.seed + repetitions)
    extractor = coloured.choose_extractor(task, "cnn" if preset == "coloured" else "ae")
    datasets: dict[str, dict[int, coloured.ColouredData]] = {name: {} for name in UNEQUAL}
    for n, name in enumerate(UNEQUAL):
        for k, draw in enumerate(numbers):
            progress = part(task.progress, n * repetitions + k, 2 * len(UNEQUAL) * repetitions)
            made = coloured.load_features(name, task.full, extractor, progress, draw)
            datasets[name][draw] = made
    prepared = perf_counter()
    sweeps = [
        sweep.Sweep(
            sweep.SweepSpec(
                tuple(ALGORITHMS),
                draws=count,
                trials=1,  # whose number is that of the draw of everything
                steps=steps,
                selections=SHOWN,
                test_envs=(TEST,),
                preset=PRESETS[preset],
                first_trial=draw,
                measures=("accuracy",),
            ),
            [draws[draw] for draws in datasets.values()],
        )
        for draw in numbers
    ]
    kind, size = type(extractor).__name__.lower(), "full" if task.full else "quick"
    name = f"table2-{preset}-{kind}{extractor.width}-{size}"
    path = task.folder / f"{name}-{sweep_key(sweeps)}.db"
    with (
        sweep.Store(path, write=True) as store,
        sweep.open_backend(task.options["backend"]) as backend,
    ):
        for n, each in enumerate(sweeps, len(sweeps)):
            sweep.run_sweep(each, store, part(task.progress, n, 2 * len(sweeps)), backend)
        outcomes = store.outcomes()
    spec = ModelSpec.of("erm", preset=PRESETS[preset], steps=steps)
    outcomes += train_on_digits(spec, datasets)
    trained = perf_counter()
    rows, shown, notes = tables(datasets, outcomes)
    runs = sum(len(each.planned) for each in sweeps)
    notes = [
        f"Preset {preset}, features {extractor!r}, draws {task.seed} to {numbers[-1]}, "
        f"{runs} runs in {path}.",
        *notes,
        f"Features {prepared - start:.0f} s (less if they were kept); sweep "
        f"{trained - prepared:.0f} s (less if runs were finished).",
    ]
    return [task.make_result(rows, notes, draw_figure(shown), repetitions="draws", file=name)]


def sweep_key(sweeps: list[sweep.Sweep]) -> str:
    """Return a key of preset and extractor: other objectives or rows are another store."""
    objectives = {repr(planned.model.objective) for each in sweeps for planned in each.planned}
    rows = [fingerprint for each in sweeps for fingerprint in each.infos]
    return f"{sweep.seed_hash(*sorted(objectives), *rows):08x}"


def train_on_digits(spec: ModelSpec, datasets: Mapping[str, Draws]) -> list[sweep.Outcome]:
    """Train the preset's network and a linear one by ERM on the digit's side, one run per draw."""
    variants = {
        ON_DIGITS: coloured.Variant(spec, on_digits=True),
        PROBE: coloured.Variant(replace(spec, hidden=()), on_digits=True),
    }
    return [
        coloured.as_outcome(name, data.name, draw, record)
        for draws in datasets.values()
        for draw, data in draws.items()
        for name, record in coloured.train_variants({None: data}, variants, draw, silent).items()
    ]


def tables(
    datasets: Mapping[str, Draws], outcomes: list[sweep.Outcome]
) -> tuple[list[ResultCell], Found, list[str]]:
    """Return the lines of each data set and selection, what they show, and notes."""
    rows: list[ResultCell] = []
    shown: Found = {}
    notes: list[str] = []
    at_defaults = [each for each in outcomes if each.hparams_seed == 0]
    for dataset, draws in datasets.items():
        infos = {draw: data.info for draw, data in draws.items()}
        reached = {
            name: choose_each("oracle", outcomes, infos, name) for name in (ON_DIGITS, PROBE)
        }
        for selection in (DEFAULTS, *SHOWN):
            described = "last checkpoint of the default numbers, nothing chosen"
            asked, among = "oracle", at_defaults  # one draw: there is nothing to choose
            if selection != DEFAULTS:
                described = sweep.SELECTIONS[selection].description
                asked, among = selection, outcomes
            found = {
                label: choose_each(asked, among, infos, algorithm)
                for algorithm, label in ALGORITHMS.items()
            }
            where = f"{NAMES[dataset]}, {selection}"
            rows += coloured.ideal_line(dataset, f"{where}: {described}")
            printed = {} if selection in WITHOUT_TEST else read_printed(f"table2 {dataset}")
            for label, chosen in {**reached, **found}.items():
                rows += coloured.make_lines(
                    label, chosen, dataset, f"{where}: {described}", printed.get(label)
                )
            for label, chosen in found.items():
                notes += coloured.refused(label, chosen, where)
            notes.append(coloured.against("WRI", found, where))
            shown[selection, dataset] = found
    return rows, shown, notes


def draw_figure(found: Found) -> Figure:
    """Draw the accuracy in each environment, one row of panels per selection in `DRAWN`."""
    order = (*TRAINING, TEST)
    looks = {
        label: (style.ALGORITHM_COLOURS[name], MARKERS[name]) for name, label in ALGORITHMS.items()
    }
    with style.figure(8, 5.6) as drawn:
        grid = drawn.subplots(len(DRAWN), len(UNEQUAL), sharex=True, sharey=True)
        for axes, (selection, label) in zip(grid, DRAWN.items(), strict=True):
            for ax, dataset in zip(axes, UNEQUAL, strict=True):
                for n, ideal in enumerate(100 * ideal_accuracy(dataset)[list(order)]):
                    name = coloured.IDEAL if n == 0 else None
                    ax.plot([n - 0.35, n + 0.35], [ideal] * 2, color=style.BLACK, label=name)
                values = {
                    line: [chosen.accuracy[:, e] for e in order if len(chosen.accuracy)]
                    for line, chosen in found[selection, dataset].items()
                }
                draw_points(ax, values, looks, distance=0.15, size=6)
                ax.set_xticks(range(3), ["+90%\n(training)", "+80%\n(training)", "−90%\n(test)"])
                ax.set_xlim(-0.5, len(order) - 0.5)
            axes[0].set_ylabel(f"accuracy (%)\n{label}")
        for ax, dataset in zip(grid[0], UNEQUAL, strict=True):
            ax.set_title(NAMES[dataset])
        drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return drawn
