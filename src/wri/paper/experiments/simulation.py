"""Tables E.1 to E.3 and Figure E.5: the multi-dimensional simulation of appendix E.2.

Five environments, the last for testing, 5 classes, 10 invariant and 10 spurious dimensions,
1000 rows per environment; networks 20 → 10 → 5 → 5, 100 steps on full batches, λ = 10 for all
penalties, the densities' numbers as in the paper: preset `simulation`. The lines:

- ERM, IRM (DomainBed's half-batches), VREx and WRI as in the paper, WRI's weights on each example;
- WRI published: the paper's code, in which the weights act through their means only. The
  paper's WRI numbers come from this variant and are shown beside both;
- tuned on other data, the same λ offered to all (`studies/simulation_lambda.py`): WRI with
  λ = 3; WRI overlap, overlap weights from an environment classifier on Φ(x), with λ = 3; VREx
  relative, VREx with gaps relative to the mean loss (WRI with uniform weights), with λ = 30, which
  is better than VREx with any λ. IRM's best λ is the paper's;
- WRI with the true invariant densities, and the oracle, ERM on the true invariant features; the
  paper's numbers for these are comments in its TeX source.

The paper kept only data seeds that pass a filter on ERM's and the oracle's accuracies, without
mentioning it; here both tables are given. A cell is the mean over data sets of means over seeds;
its standard error is taken over the data sets, since runs on one data set are not independent.

Each cell (a column of a table) has its own data sets, drawn from (data seed, setting), and each
training its own weights, drawn from (seed, data seed, setting). So cells are independent, except
the first columns of tables E.1 and E.2, which have the same setting. 80 % of each environment's
rows are used for training; the step is chosen on 20 % of the test environment, as in the paper, and
the rest of it is shown. Rows are independent draws, so the splits are the first rows and the
others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from wri.datasets import Simulation, SimulationSetting
from wri.densities import EnvironmentClassifier, Exact
from wri.errors import InputError
from wri.objectives import Objective
from wri.objectives.erm import ERM
from wri.objectives.irm import IRM
from wri.objectives.vrex import VREx
from wri.objectives.wri import WRI
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.panels import draw_points
from wri.paper.result import NOT_PRINTED, Printed, Result, ResultCell, compare_paired, read_printed
from wri.progress import Progress, part
from wri.report import style
from wri.sweep import gather, seed_hash
from wri.training import ModelSpec, Record, Run, train

ROWS, TRAIN, SELECT = 1000, 800, 200  # per environment; for training; test rows to choose a step
HIDDEN = (10, 5)  # of 20 features, and the same for the oracle's 10
MOST_ROUNDS = 20

ORACLE, TRUE = "Oracle", "WRI true densities"
_PAPER = WRI(scaling="relative", running_mean=True)
_OVERLAP = WRI(
    weighting="overlap", scaling="relative", density=EnvironmentClassifier(), density_on="phi"
)
OBJECTIVES: dict[str, tuple[Objective, dict[str, float]]] = {
    "ERM": (ERM(), {}),
    "IRM": (IRM(), {}),
    "VREx": (VREx(), {}),
    "VREx relative, λ = 30": (
        WRI(weighting="uniform", scaling="relative"),
        {"penalty_weight": 30.0},
    ),
    "WRI": (_PAPER, {}),
    "WRI published": (replace(_PAPER, weighting="published"), {}),
    "WRI, λ = 3": (_PAPER, {"penalty_weight": 3.0}),
    "WRI overlap, λ = 3": (_OVERLAP, {"penalty_weight": 3.0}),
}
"""Lines that see all features, with what differs from the preset `simulation`."""

LINES = (*OBJECTIVES, TRUE, ORACLE)
LOOKS = {
    "ERM": (style.ALGORITHM_COLOURS["erm"], "o"),
    "IRM": (style.ALGORITHM_COLOURS["irm"], "s"),
    "VREx": (style.ALGORITHM_COLOURS["vrex"], "D"),
    "VREx relative, λ = 30": (style.BLUE, "D"),
    "WRI published": (style.PURPLE, "v"),
    "WRI": (style.ALGORITHM_COLOURS["wri"], "^"),
    "WRI, λ = 3": (style.BLACK, "^"),
    "WRI overlap, λ = 3": (style.GREEN, "P"),
}
TUNED = ("WRI, λ = 3", "WRI overlap, λ = 3")  # compared with the baselines
BASELINES = ("ERM", "IRM", "VREx", "VREx relative, λ = 30")
KINDS = FILTERED, UNFILTERED = "filtered as published", "unfiltered"


OTHER_DATA = (
    "Some cells are more than three standard errors from the paper's. Its data seeds are not "
    "known, so its few data sets are others than ours, and data sets differ by more than its ± "
    "suggests."
)


class SimulationSize(NamedTuple):
    """Size of a table."""

    datasets: int  # of a cell
    seeds: int  # on each data set
    steps: int = 100


FULL, QUICK = SimulationSize(5, 5), SimulationSize(2, 2)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One table: what varies, and the rest of the setting."""

    name: str
    title: str
    symbol: str
    math: str  # the same for a figure
    varies: str  # field of the setting
    values: tuple[float, ...]
    fixed: Mapping[str, float] = field(default_factory=dict)

    def at(self, value: float) -> SimulationSetting:
        shifts: dict[str, Any] = {**self.fixed, self.varies: value}
        return SimulationSetting(**shifts)

    def paper(self, line: str, value: float) -> Printed:
        cells = read_printed(self.name).get("WRI" if line == "WRI published" else line, {})
        return cells.get(f"{value:g}", NOT_PRINTED)


SERIES = {
    "tableE1": Series(
        name="tableE1",
        title="invariant means differ",
        symbol="σ_inv",
        math="\\sigma_{inv}",
        varies="invariant_shift",
        values=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
    ),
    "tableE2": Series(
        name="tableE2",
        title="invariant covariances differ",
        symbol="Δ_inv",
        math="\\Delta_{inv}",
        varies="covariance_shift",
        values=(0.0, 0.2, 0.4, 0.6, 0.8),
    ),
    "tableE3": Series(
        name="tableE3",
        title="spurious features agree in training",
        symbol="θ",
        math="\\theta_{parity}",
        varies="parity",
        values=(90.0, 87.0, 85.0, 80.0, 70.0),
        fixed={"invariant_shift": 0.15, "covariance_shift": 0.5},
    ),
}
Cells = dict[float, dict[str, np.ndarray]]
"""Value of what varies, then line of the table, to accuracies `[data set]` (means over seeds)."""


def run(task: ExperimentTask) -> list[Result]:
    """Make tables and figure from the same runs; the figure needs those of all three tables."""
    size = FULL if task.full else QUICK
    filtered = task.options["filtered"]
    kinds = KINDS if filtered is None else (FILTERED if filtered else UNFILTERED,)
    names = tuple(SERIES) if "figureE5" in task.outputs else task.outputs
    trained = {
        name: train_table(name, size, kinds, task, part(task.progress, n, len(names)))
        for n, name in enumerate(names)
    }
    results = []
    for output in task.outputs:
        if output == "figureE5":
            (rows, notes), figure = figure_cells(trained, kinds), draw(trained)
        else:
            (rows, notes), figure = table_cells(output, trained[output]), None
        repetitions = f"data sets, each the mean of {size.seeds} seeds"
        if any(row.far_from_paper for row in rows):
            notes.append(OTHER_DATA)
        results.append(task.make_result(rows, notes, figure, output, repetitions))
    return results


class Dataset:
    """One draw of parameters and rows; equal arguments give equal data."""

    def __init__(self, setting: SimulationSetting, seed: int) -> None:
        self.seed, self._draw = seed, seed_hash(seed, repr(setting))
        self.simulation, environments = Simulation.balanced(setting, ROWS, self._draw)
        data = gather("simulation", environments, setting.classes)
        self.all_features = data.bank
        self.invariant_features = replace(
            data.bank, features=data.bank.features[:, : setting.d_inv]
        )
        *training, test = data.rows
        self.train = [rows[:TRAIN] for rows in training]
        self.evaluate = {"select": test[:SELECT], "shown": test[SELECT:]}
        self.true_densities = Exact(lambda x: self.simulation.log_invariant(x)[..., :-1])

    def run(self, line: str, seed: int | str, steps: int = 100) -> Run:
        """Make the training of one line; equal seeds on one data set start from equal weights."""
        bank = self.all_features
        hyper: dict[str, float] = {}
        objective: Objective = ERM()
        if line == ORACLE:
            bank = self.invariant_features
        elif line == TRUE:
            objective = replace(_PAPER, density=self.true_densities)
        else:
            objective, hyper = OBJECTIVES[line]
        spec = ModelSpec.of(objective, preset="simulation", hidden=HIDDEN, hyper=hyper, steps=steps)
        own = seed_hash(seed, self._draw)
        return Run(spec, bank, self.train, seed=own, evaluate=self.evaluate)


def accuracies(
    datasets: Sequence[Dataset],
    lines: Sequence[str],
    size: SimulationSize,
    seed: int,
    progress: Progress,
) -> dict[str, np.ndarray]:
    """Return the accuracy (%) in the test environment of each line, `[data set, seed]`."""
    seeds = range(seed, seed + size.seeds)
    runs = [d.run(line, s, size.steps) for line in lines for d in datasets for s in seeds]
    records = train(runs, checkpoint_every=1, progress=progress)
    shown = np.array([100 * chosen_accuracy(record) for record in records])
    return dict(zip(lines, shown.reshape(len(lines), len(datasets), size.seeds), strict=True))


def chosen_accuracy(record: Record) -> float:
    """Return the accuracy at the first step that is best on the rows to choose by; NaN never is."""
    accuracy = record.measures["accuracy"]
    chosen = np.where(np.isnan(accuracy["select"]), -1.0, accuracy["select"]).argmax()
    return float(accuracy["shown"][chosen])


def passing(
    settings: Sequence[SimulationSetting], first: int, size: SimulationSize
) -> list[list[Dataset]]:
    """Return for each setting the first data sets, by seed, that pass the published filter."""
    kept: list[list[Dataset]] = [[] for _ in settings]
    for _ in range(MOST_ROUNDS):
        wanting = [n for n, found in enumerate(kept) if len(found) < size.datasets]
        if not wanting:
            return kept
        seeds = range(first, first + size.datasets)
        candidates = [(n, Dataset(settings[n], seed)) for n in wanting for seed in seeds]
        lines = ("ERM", ORACLE)
        runs = [d.run(line, "filter", size.steps) for line in lines for _, d in candidates]
        records = train(runs, checkpoint_every=1)
        pairs = zip(records[: len(candidates)], records[len(candidates) :], strict=True)
        for (n, dataset), (erm, oracle) in zip(candidates, pairs, strict=True):
            if len(kept[n]) < size.datasets and passes(erm, oracle):
                kept[n].append(dataset)
        first += size.datasets
    short = settings[next(n for n, found in enumerate(kept) if len(found) < size.datasets)]
    raise InputError(
        f"fewer than {size.datasets} of {MOST_ROUNDS * size.datasets} data seeds pass the "
        f"published filter for {short}; use --unfiltered"
    )


def passes(erm: Record, oracle: Record) -> bool:
    """Return whether a data set passes the filter of the paper's tables, which it does not mention.

    ERM's best test accuracy must be between 1.5 times chance and 90 %, occur at step 3 or later,
    and be at least a tenth below the best of a classifier on the true invariant features.
    """
    curves = [
        (SELECT * r.measures["accuracy"]["select"] + TRAIN * r.measures["accuracy"]["shown"]) / ROWS
        for r in (erm, oracle)
    ]
    best, ceiling = (curve.max() for curve in curves)
    chance = 1 / erm.network.widths[-1]
    return bool(1.5 * chance < best < min(0.9, 0.9 * ceiling) and curves[0].argmax() >= 3)


def train_table(
    name: str,
    size: SimulationSize,
    kinds: tuple[str, ...],
    task: ExperimentTask,
    progress: Progress,
) -> dict[str, Cells]:
    """Return accuracies by kind of data seeds; each data set is trained on once for both kinds."""
    series = SERIES[name]
    values = series.values if task.full else series.values[:: len(series.values) // 2]
    settings = [series.at(value) for value in values]
    chosen: dict[str, list[list[Dataset]]] = {}
    if FILTERED in kinds:
        chosen[FILTERED] = passing(settings, task.seed, size)
    if UNFILTERED in kinds:
        seeds = range(task.seed, task.seed + size.datasets)
        chosen[UNFILTERED] = [[Dataset(setting, each) for each in seeds] for setting in settings]
    datasets = {
        (setting, dataset.seed): dataset
        for cells in chosen.values()
        for setting, cell in zip(settings, cells, strict=True)
        for dataset in cell
    }
    accuracy = accuracies(list(datasets.values()), LINES, size, task.seed, progress)
    place = {key: n for n, key in enumerate(datasets)}
    return {
        kind: {
            value: {
                line: accuracy[line][[place[setting, dataset.seed] for dataset in cell]].mean(1)
                for line in LINES
            }
            for value, setting, cell in zip(values, settings, cells, strict=True)
        }
        for kind, cells in chosen.items()
    }


def table_cells(name: str, by_kind: Mapping[str, Cells]) -> tuple[list[ResultCell], list[str]]:
    """Return rows of one table for each kind of data seeds, and comparisons as notes."""
    rows, notes, series = [], [], SERIES[name]
    for kind, cells in by_kind.items():
        for value, accuracy in cells.items():
            for line in LINES:
                printed = series.paper(line, value) if kind == FILTERED else NOT_PRINTED
                column = f"{series.symbol} = {value:g}"
                rows.append(ResultCell.of(line, column, accuracy[line], kind, printed))
        rows += averages(name, cells, kind, "average")
        notes += comparisons(name, [*cells.values()], kind)
    return rows, notes


def figure_cells(
    trained: Mapping[str, Mapping[str, Cells]], kinds: Sequence[str]
) -> tuple[list[ResultCell], list[str]]:
    """Return the averages of all tables, and comparisons over several tables as notes."""
    rows, notes = [], []
    for kind in kinds:
        columns = {name: [*by_kind[kind].values()] for name, by_kind in trained.items()}
        for name, by_kind in trained.items():
            rows += averages(name, by_kind[kind], kind, name)
        every = [*columns["tableE1"], *columns["tableE3"]]
        notes += comparisons("tableE1 and tableE3 together", every, kind)
        every += columns["tableE2"][1:]  # its first column is table E.1's
        notes += comparisons("all three together", every, kind)
    return rows, notes


def averages(name: str, cells: Cells, kind: str, column: str) -> list[ResultCell]:
    """Average each line over all columns; the paper's average is that of its cells."""
    rows = []
    for line in LINES:
        printed = [mean for v in cells if (mean := SERIES[name].paper(line, v)[0]) is not None]
        paper = round(float(np.mean(printed)), 2) if printed and kind == FILTERED else None
        groups = [accuracy[line] for accuracy in cells.values()]
        rows.append(ResultCell.over_groups(line, column, groups, kind, paper))
    return rows


def comparisons(label: str, cells: Sequence[Mapping[str, np.ndarray]], kind: str) -> list[str]:
    """Compare tuned WRI with each baseline on the same data sets."""
    of = {line: [accuracy[line] for accuracy in cells] for line in LINES}
    count = sum(len(group) for group in of["ERM"])
    rivals = {line: of[line] for line in BASELINES}
    return [
        f"{label}, {kind}: {ours} minus {compare_paired(of[ours], rivals)} (mean and paired 95 % "
        f"interval, {count} data sets)."
        for ours in TUNED
    ]


def draw(trained: Mapping[str, Mapping[str, Cells]]) -> Figure:
    """Draw one panel per table and kind of data seeds: points with standard errors."""
    kinds = list(next(iter(trained.values())))
    with style.figure(10, 1 + 2.6 * len(kinds)) as drawn:
        axes = drawn.subplots(len(kinds), len(trained), squeeze=False, sharex="col", sharey="col")
        for line_of_axes, kind in zip(axes, kinds, strict=True):
            for ax, (name, tables) in zip(line_of_axes, trained.items(), strict=True):
                cells = tables[kind]
                values = {line: [each[line] for each in cells.values()] for line in LOOKS}
                draw_points(ax, values, LOOKS, distance=0.1, size=4)
                unit = "°" if name == "tableE3" else ""
                ax.set_xticks(range(len(cells)), [f"{value:g}{unit}" for value in cells])
            line_of_axes[0].set_ylabel(f"test accuracy (%)\n{kind}")
        for column, (name, letter) in zip(axes.T, zip(trained, "abc", strict=True), strict=True):
            column[0].set_title(f"({letter}) {SERIES[name].title}")
            column[-1].set_xlabel(f"${SERIES[name].math}$")
        drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn
