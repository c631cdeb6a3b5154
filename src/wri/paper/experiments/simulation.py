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
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wri.datasets import SimulationSetting
from wri.paper.experiments import ExperimentTask
from wri.paper.experiments.simulation_runs import (
    LINES,
    ORACLE,
    TRUE,
    Dataset,
    SimulationSize,
    accuracies,
    passing,
)
from wri.paper.result import Result, ResultCell, read_printed
from wri.progress import Progress, part
from wri.report import style
from wri.report.intervals import paired_interval

FULL, QUICK = SimulationSize(5, 5), SimulationSize(2, 2)
TUNED = ("WRI, λ = 3", "WRI overlap, λ = 3")  # compared with the baselines
BASELINES = ("ERM", "IRM", "VREx", "VREx relative, λ = 30")
KINDS = FILTERED, UNFILTERED = "filtered as published", "unfiltered"
TITLES = {
    "tableE1": "invariant means differ",
    "tableE2": "invariant covariances differ",
    "tableE3": "spurious features agree in training",
}
MARKS = {
    "ERM": (style.ALGORITHM_COLOURS["erm"], "o"),
    "IRM": (style.ALGORITHM_COLOURS["irm"], "s"),
    "VREx": (style.ALGORITHM_COLOURS["vrex"], "D"),
    "VREx relative, λ = 30": (style.BLUE, "D"),
    "WRI published": (style.PURPLE, "v"),
    "WRI": (style.ALGORITHM_COLOURS["wri"], "^"),
    "WRI, λ = 3": (style.BLACK, "^"),
    "WRI overlap, λ = 3": (style.GREEN, "P"),
}


@dataclass(frozen=True, kw_only=True)
class Series:
    """One table: what varies, and the paper's "mean±spread" per value."""

    symbol: str
    math: str  # the same for a figure
    varies: str  # field of the setting
    values: tuple[float, ...]
    printed: Mapping[str, str]
    invariant_shift: float = 0.0
    covariance_shift: float = 0.0

    def at(self, value: float) -> SimulationSetting:
        fixed = {"invariant_shift": self.invariant_shift, "covariance_shift": self.covariance_shift}
        shifts: dict[str, Any] = fixed | {self.varies: value}
        return SimulationSetting(**shifts)

    def paper(self, line: str, value: float) -> tuple[float | None, float | None]:
        cells = self.printed.get("WRI" if line == "WRI published" else line)
        if cells is None:
            return None, None
        return read_printed(cells)[self.values.index(value)]


SERIES = {
    "tableE1": Series(
        symbol="σ_inv",
        math="\\sigma_{inv}",
        varies="invariant_shift",
        values=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        printed={
            "ERM": "51.3±1.6 52.5±1.1 53.3±0.9 51.5±2.0 50.3±1.3 53.7±1.4 54.8±2.1",
            "IRM": "52.4±2.7 51.9±2.3 52.2±2.7 51.2±3.2 49.2±1.8 51.5±3.2 54.3±3.3",
            "VREx": "52.5±1.0 51.1±1.5 54.0±1.0 52.4±1.4 50.5±1.3 53.6±1.3 56.8±1.1",
            "WRI": "55.9±2.5 55.0±1.3 55.9±2.3 54.4±2.3 52.1±3.1 54.1±1.8 56.1±2.6",
            TRUE: "54.8±0.9 54.6±1.3 55.6±1.6 55.5±1.0 53.7±1.0 54.8±0.8 55.1±1.2",
            ORACLE: "67.8±0.3 68.2±0.3 69.3±0.3 70.4±0.2 68.8±0.6 67.4±2.0 68.6±0.9",
        },
    ),
    "tableE2": Series(
        symbol="Δ_inv",
        math="\\Delta_{inv}",
        varies="covariance_shift",
        values=(0.0, 0.2, 0.4, 0.6, 0.8),
        printed={
            "ERM": "51.3±1.6 51.4±1.5 51.1±1.2 51.1±1.3 51.7±1.2",
            "IRM": "52.4±2.7 51.3±2.4 51.5±2.1 50.6±1.7 51.3±1.8",
            "VREx": "52.5±1.0 51.6±0.3 51.2±0.9 52.0±1.5 52.5±1.3",
            "WRI": "55.9±2.5 52.3±1.4 52.9±1.6 53.3±0.7 53.8±2.5",
            TRUE: "54.8±0.9 55.2±1.1 55.3±0.8 54.7±2.0 52.2±1.2",
            ORACLE: "67.8±0.3 67.6±0.7 67.6±0.4 68.9±0.3 68.9±0.3",
        },
    ),
    "tableE3": Series(
        symbol="θ",
        math="\\theta_{parity}",
        varies="parity",
        values=(90.0, 87.0, 85.0, 80.0, 70.0),
        printed={
            "ERM": "44.8±1.2 43.0±1.4 40.5±1.1 37.5±0.7 30.5±0.9",
            "IRM": "43.8±3.6 41.9±3.9 40.9±4.2 37.0±4.0 29.9±3.0",
            "VREx": "45.2±2.0 42.9±1.9 41.4±1.6 37.2±2.7 30.5±1.3",
            "WRI": "46.9±1.5 45.4±1.9 43.9±2.6 39.5±3.2 30.9±2.2",
        },
        invariant_shift=0.15,
        covariance_shift=0.5,
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
            rows, notes = figure_cells(trained, kinds)
            figures = style.save(draw(trained), task.folder, output)
        else:
            rows, notes = table_cells(output, trained[output])
            figures = []
        repetitions = f"data sets, each the mean of {size.seeds} seeds"
        results.append(
            Result(
                experiment=output,
                rows=rows,
                figures=figures,
                notes=[*notes, *far_cells(rows)],
                repetitions=repetitions,
            )
        )
    return results


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
    rows, notes = [], []
    for kind, cells in by_kind.items():
        rows += table_rows(name, cells, kind)
        notes += comparisons(name, columns(cells), kind)
    return rows, notes


def figure_cells(
    trained: Mapping[str, Mapping[str, Cells]], kinds: Sequence[str]
) -> tuple[list[ResultCell], list[str]]:
    """Return the averages of all tables, and comparisons over several tables as notes."""
    rows, notes = [], []
    for kind in kinds:
        tables = {name: by_kind[kind] for name, by_kind in trained.items()}
        rows += [row for name, cells in tables.items() for row in averages(name, cells, kind)]
        every = [*columns(tables["tableE1"]), *columns(tables["tableE3"])]
        notes += comparisons("tableE1 and tableE3 together", every, kind)
        every += columns(tables["tableE2"])[1:]  # its first column is table E.1's
        notes += comparisons("all three together", every, kind)
    return rows, notes


def table_rows(name: str, cells: Cells, kind: str) -> list[ResultCell]:
    series, rows = SERIES[name], []
    for value, accuracy in cells.items():
        for line in LINES:
            printed = series.paper(line, value) if kind == FILTERED else (None, None)
            column = f"{series.symbol} = {value:g}"
            rows.append(ResultCell.of(line, column, accuracy[line], *printed, kind))
    return rows + [replace(row, column="average") for row in averages(name, cells, kind)]


def averages(name: str, cells: Cells, kind: str) -> list[ResultCell]:
    """Average each line over all columns; the paper's average is that of its cells."""
    series, rows = SERIES[name], []
    for line in LINES:
        printed = [mean for v in cells if (mean := series.paper(line, v)[0]) is not None]
        paper = round(float(np.mean(printed)), 2) if printed and kind == FILTERED else None
        groups = [accuracy[line] for accuracy in columns(cells)]
        rows.append(ResultCell.over_groups(line, name, groups, paper, kind))
    return rows


def columns(cells: Cells) -> list[dict[str, np.ndarray]]:
    return list(cells.values())


def comparisons(label: str, cells: Sequence[Mapping[str, np.ndarray]], kind: str) -> list[str]:
    """Compare tuned WRI with each baseline on the same data sets."""

    def of(line: str) -> list[np.ndarray]:
        return [accuracy[line] for accuracy in cells]

    count = sum(len(group) for group in of("ERM"))
    return [
        f"{label}, {kind}: {ours} minus "
        + "; ".join(f"{line} {paired_interval(of(ours), of(line))}" for line in BASELINES)
        + f" (mean and paired 95 % interval, {count} data sets)."
        for ours in TUNED
    ]


def far_cells(rows: Sequence[ResultCell]) -> list[str]:
    far = [f"{row.algorithm} at {row.column}" for row in rows if row.far_from_paper]
    if not far:
        return []
    return [
        "More than three standard errors from the paper: " + ", ".join(far) + ". The paper's data "
        "seeds are not known, so its few data sets are others than ours, and data sets differ by "
        "more than the paper's ± suggests."
    ]


def draw(trained: Mapping[str, Mapping[str, Cells]]) -> Figure:
    """Draw one panel per table and kind of data seeds: points with standard errors."""
    kinds = list(next(iter(trained.values())))
    with style.figure(10, 1 + 2.6 * len(kinds)) as drawn:
        axes = drawn.subplots(len(kinds), len(trained), squeeze=False, sharex="col", sharey="col")
        for line_of_axes, kind in zip(axes, kinds, strict=True):
            for ax, (name, tables) in zip(line_of_axes, trained.items(), strict=True):
                draw_panel(ax, name, tables[kind])
            line_of_axes[0].set_ylabel(f"test accuracy (%)\n{kind}")
        for ax, (name, letter) in zip(axes[0], zip(trained, "abc", strict=True), strict=True):
            ax.set_title(f"({letter}) {TITLES[name]}")
        for ax, name in zip(axes[-1], trained, strict=True):
            ax.set_xlabel(f"${SERIES[name].math}$")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=4)
    return drawn


def draw_panel(ax: Axes, name: str, cells: Cells) -> None:
    for n, (line, (colour, marker)) in enumerate(MARKS.items()):
        rows = [ResultCell.of(line, "", accuracy[line]) for accuracy in cells.values()]
        ax.errorbar(
            np.arange(len(rows)) + 0.1 * (n - (len(MARKS) - 1) / 2),
            [row.ours for row in rows],
            [row.spread or 0.0 for row in rows],
            fmt=marker,
            color=colour,
            ms=4,
            lw=1,
            label=line,
        )
    suffix = "°" if name == "tableE3" else ""
    ax.set_xticks(range(len(cells)), [f"{value:g}{suffix}" for value in cells])
    ax.grid(axis="y", color="#E5E5E5", lw=0.6)
    ax.set_axisbelow(True)
