"""DomainBed's tables: its three selection methods, its standard error, its averages.

    cell = 100 · mean over trials ± 100 · σ / √n,   σ² = Σ (x − x̄)² / n

The mean is scaled, not the accuracies: 0.813 and 0.822 give 81.7, where the mean of 81.3 and 82.2
would be rounded to 81.8. Three rules are DomainBed's and differ from `wri.sweep.tables`. A cell
counts the trials that exist; of equally good draws the last counts; leave-one-out ignores draws
without all pairs. One rule is ours: a checkpoint whose accuracy is not a number is never chosen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wri.errors import check_option
from wri.sweep.outcomes import DatasetInfo, Outcome
from wri.sweep.selection import SELECTIONS, SelectedCheckpoint, choose
from wri.sweep.tables import AVERAGE, Cell, PairedDifference, SelectionTable

METHODS = ("training-domain", "leave-one-out", "oracle")
"""DomainBed's three selection methods, in the order of its tables."""

AVERAGES = "averages"
"""Name of the data set in the table of averages over environments."""

Grid = dict[str, dict[int, dict[int, SelectedCheckpoint | str]]]
"""Choice, or the reason for none, by algorithm, environment and trial."""


@dataclass(frozen=True)
class DomainBedCell(Cell):
    """Accuracies of the trials from 0 to 1; DomainBed's mean and standard error in %.

    The standard error is zero for a single trial.
    """

    @property
    def mean(self) -> float | None:
        return float(100 * np.mean(self.scores)) if self.scores else None

    @property
    def standard_error(self) -> float | None:
        if not self.scores:
            return None
        return float(100 * np.std(np.array(self.scores) / np.sqrt(len(self.scores))))


@dataclass(frozen=True, kw_only=True)
class DomainBedTable(SelectionTable):
    """Table of one selection method on one data set, or the averages of all."""

    @property
    def legend(self) -> str:
        shown = f"% ± DomainBed's standard error over {len(self.trials)} trials"
        fewer = [
            f"{algorithm} on {column} ({len(cell.scores)})"
            for algorithm, cells in self.lines.items()
            for column, cell in zip(self.columns[:-1], cells, strict=False)
            if 0 < len(cell.scores) < len(self.trials)
        ]
        return shown + (f"; fewer trials: {', '.join(fewer)}" if fewer else "")

    @property
    def comparisons(self) -> list[PairedDifference]:
        """Empty: missing trials cannot be paired."""
        return []


def build_tables(
    outcomes: Iterable[Outcome], infos: Iterable[DatasetInfo], methods: Sequence[str] = METHODS
) -> list[SelectionTable]:
    """Build DomainBed's tables.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Runs with accuracies.
    infos : iterable of DatasetInfo
        Their data sets.
    methods : sequence of str, default=("training-domain", "leave-one-out", "oracle")
        Selection methods out of `METHODS`.

    Returns
    -------
    tables : list of SelectionTable
        For each method one table per data set and one of the averages over their environments.

    Raises
    ------
    InputError
        If a method is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.integrations.domainbed import build_tables
    >>> from wri.sweep import DatasetInfo, Outcome
    >>> values = {f"env{e}_{part}": np.array([0.7]) for e in (0, 1) for part in ("in", "out")}
    >>> runs = [
    ...     Outcome(
    ...         dataset="toy",
    ...         algorithm="erm",
    ...         test_envs=(e,),
    ...         hparams_seed=0,
    ...         trial_seed=0,
    ...         steps=np.array([9]),
    ...         measures={"accuracy": values},
    ...     )
    ...     for e in (0, 1)
    ... ]
    >>> info = DatasetInfo(name="toy", environments=("a", "b"), constant={}, held_back=(0.2, 0.2))
    >>> tables = build_tables(runs, [info], ["training-domain"])
    >>> [str(cell) for cell in tables[0].lines["erm"]]
    ['70.0 ± 0.0', '70.0 ± 0.0', '70.0']
    """
    runs, infos = list(outcomes), sorted(infos, key=lambda info: info.name)
    tables: list[SelectionTable] = []
    for method in methods:
        check_option("--selection", method, METHODS)
        grids = {info.name: _grid(method, runs, info) for info in infos}
        tables += [_table(method, runs, info, grids[info.name]) for info in infos]
        tables.append(_averages(method, runs, grids))
    return tables


def _grid(method: str, runs: list[Outcome], info: DatasetInfo) -> Grid:
    own = [run for run in runs if run.dataset == info.name]
    grid: Grid = {}
    for algorithm in _algorithms(own):
        tried = [run for run in own if run.algorithm == algorithm]
        trials = sorted({run.trial_seed for run in tried})
        grid[algorithm] = {
            k: {
                trial: choose(
                    method,
                    _with_pairs(tried, info, k, trial) if SELECTIONS[method].needs_pairs else tried,
                    info,
                    algorithm=algorithm,
                    held_out=k,
                    trial_seed=trial,
                    ties="last",
                )
                for trial in trials
            }
            for k in range(len(info.environments))
        }
    return grid


def _algorithms(runs: Iterable[Outcome]) -> list[str]:
    """Return ERM, then the others by name."""
    return sorted({run.algorithm for run in runs}, key=lambda name: (name != "erm", name))


def _with_pairs(runs: list[Outcome], info: DatasetInfo, held_out: int, trial: int) -> list[Outcome]:
    """Return the draws that have all pairs, or all draws if none has, to get the reason."""
    others = [k for k in range(len(info.environments)) if k != held_out]
    needed = {(held_out,), *((min(held_out, k), max(held_out, k)) for k in others)}
    found: dict[int, set[tuple[int, ...]]] = {}
    for run in runs:
        if run.trial_seed == trial:
            found.setdefault(run.hparams_seed, set()).add(run.test_envs)
    whole = {draw for draw, held in found.items() if needed <= held}
    return [run for run in runs if not whole or run.hparams_seed in whole]


def _cell(choices: Mapping[int, SelectedCheckpoint | str]) -> Cell:
    """Make a cell from the choice of each trial; trials without a choice do not count."""
    chosen = [(trial, c) for trial, c in choices.items() if not isinstance(c, str)]
    if not chosen:
        reasons = dict.fromkeys(str(reason) for reason in choices.values())
        return Cell(reason="; ".join(reasons))
    return DomainBedCell(tuple(c.score for _, c in chosen), choices=tuple(chosen))


def _average(cells: Sequence[Cell], columns: Sequence[str]) -> Cell:
    """Return the mean of the cells' means, without an error as in DomainBed."""
    means = [cell.mean for cell in cells]
    filled = [mean for mean in means if mean is not None]
    if len(filled) < len(means):
        empty = [name for name, mean in zip(columns, means, strict=True) if mean is None]
        return Cell(reason=f"no average without {', '.join(empty)}")
    return Cell((sum(filled) / len(filled),))


def _table(method: str, runs: list[Outcome], info: DatasetInfo, grid: Grid) -> SelectionTable:
    own = [run for run in runs if run.dataset == info.name]
    lines = {}
    for algorithm, by_environment in grid.items():
        cells = [_cell(choices) for choices in by_environment.values()]
        lines[algorithm] = (*cells, _average(cells, info.environments))
    return _make(method, info.name, info.environments, lines, own)


def _averages(method: str, runs: list[Outcome], grids: dict[str, Grid]) -> SelectionTable:
    """Average per data set over environments in each trial, then over the trials."""
    lines = {}
    for algorithm in _algorithms(runs):
        cells = []
        for name, grid in grids.items():
            by_trial: dict[int, list[float]] = {}
            for choices in grid.get(algorithm, {}).values():
                for trial, choice in choices.items():
                    if not isinstance(choice, str):
                        by_trial.setdefault(trial, []).append(choice.score)
            means = tuple(float(np.mean(scores)) for scores in by_trial.values())
            reason = "" if means else f"nothing was chosen on {name}"
            cells.append(DomainBedCell(means, reason))
        lines[algorithm] = (*cells, _average(cells, tuple(grids)))
    return _make(method, AVERAGES, tuple(grids), lines, runs)


def _make(
    method: str,
    dataset: str,
    columns: Sequence[str],
    lines: dict[str, tuple[Cell, ...]],
    runs: list[Outcome],
) -> SelectionTable:
    draws = {
        name: len({run.hparams_seed for run in runs if run.algorithm == name}) for name in lines
    }
    return DomainBedTable(
        selection=method,
        dataset=dataset,
        measure="accuracy",
        trials=tuple(sorted({run.trial_seed for run in runs})),
        columns=(*columns, AVERAGE),
        lines=lines,
        n_environments=len(columns),
        draws=draws,
    )
