"""All objectives side by side on eight problems, tuned by one rule, and the time of a stack.

    python studies/family.py run [PROBLEM …] --store family.jsonl
    python studies/family.py table --store family.jsonl [--figure docs/figures/family.png]
    python studies/family.py times          # CPU time of a stack of 50 runs beside ERM's

`family_problems.py` describes the problems and their futures. Each objective but ERM has one
hyper-parameter to tune, on a grid that is the same for every λ. The value with the best measure is
chosen on draws that are not reported, the mean over the futures: log-loss for tables, accuracy for
pictures and the simulation. All else is the problem's preset, but that IB-IRM has IB-ERM's weight
of the bottleneck where the preset is not `table`. Predictors of the preset `table` are linear, but
those of objectives that need Φ(x) have hidden layers. Finished runs are kept in the store, and the
same command goes on where it stopped. PACS needs its pictures and the coloured digits MNIST (`wri
data`).
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from family_problems import PROBLEMS, Part, Problem
from wri.objectives import OBJECTIVES
from wri.progress import silent
from wri.registry import OBJECTIVES as ENTRIES
from wri.report import style
from wri.training import Bank, ModelSpec, Run, train, train_stack

GRIDS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "erm": ("", ()),
    "groupdro": ("eta", (1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0)),
    "mixup": ("alpha", (0.1, 0.3, 1.0, 3.0, 10.0)),
    "mldg": ("beta", (0.1, 0.3, 1.0, 3.0, 10.0)),
    "eqrm": ("quantile", (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)),
}
"""Tuned hyper-parameter of objectives without λ."""
BATCH = 64  # rows per environment and step with hidden layers in the preset `table`
MARKERS = "osD^vP"
PANELS = ("gaussians", "hospitals", "sites", "simulation", "hcmnist", "hcmnist-cs", "pacs")
UNITS = {"loss": "log-loss", "accuracy": "accuracy, %"}
AFTER = ("ibirm",)  # tuned after IB-ERM, whose weight it takes


class Results:
    """Results of finished runs: futures of (problem, objective, value, draw), kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found = {tuple(key): found for key, found in map(json.loads, lines)}

    def of(
        self, problem: str, name: str, value: float | None, draw: int
    ) -> dict[str, float] | None:
        return self._found.get((problem, name, value, draw))

    def add(
        self, problem: str, name: str, value: float | None, draw: int, found: dict[str, float]
    ) -> None:
        key = (problem, name, value, draw)
        self._found[key] = found
        with self._path.open("a") as file:
            file.write(json.dumps([key, found]) + "\n")


def grid(name: str, problem: Problem) -> tuple[str, tuple[float, ...]]:
    return GRIDS.get(name, ("penalty_weight", tuple(problem.values)))


def make_runs(
    problem: Problem, name: str, value: float | None, bottleneck: float | None, parts: list[Part]
) -> list[Run]:
    parameter, _ = grid(name, problem)
    hyper = {} if value is None else {parameter: value}
    if name == "ibirm" and bottleneck is not None and problem.preset != "table":
        hyper["bottleneck_penalty_weight"] = bottleneck
    if problem.preset == "table" and OBJECTIVES[name].needs_hidden:
        hyper["batch_size"] = BATCH
    if name in (problem.batches or {}):
        hyper["batch_size"] = problem.batches[name]
    spec = ModelSpec.of(
        problem.objective(name, problem.preset),
        preset=problem.preset,
        hyper=hyper,
        hidden=problem.hidden,
    )
    return [
        Run(spec, part.bank, part.train, seed=part.seed, evaluate=part.futures) for part in parts
    ]


def run_draws(
    results: Results, key: str, draws: Sequence[int], wanted: Mapping[str, Sequence]
) -> None:
    """Train what is missing of some draws: all values of an objective in one stack."""
    problem = PROBLEMS[key]
    drawn: dict[int, list[Part]] = {}
    for name, values in wanted.items():
        missing = [
            (value, draw)
            for draw in draws
            for value in values
            if results.of(key, name, value, draw) is None
        ]
        if not missing:
            continue
        began = time.process_time()
        drawn |= {d: problem.draw(d) for d in sorted({d for _, d in missing} - {*drawn})}
        bottleneck = tuned_value(results, key, "iberm") if name == "ibirm" else None
        runs = [make_runs(problem, name, v, bottleneck, drawn[d]) for v, d in missing]
        records = train(
            [run for own in runs for run in own],
            checkpoint_every=problem.checkpoint_every,
            measures=(problem.measure,),
            progress=silent,
            threads=1,
        )
        size = len(runs[0])
        for n, (value, draw) in enumerate(missing):
            own = [problem.read(r, problem.measure) for r in records[n * size : (n + 1) * size]]
            found = {future: float(np.mean([each[future] for each in own])) for future in own[0]}
            results.add(key, name, value, draw, found)
        taken = time.process_time() - began
        print(f"{key} {[*draws]} {name}: {taken:.0f} s CPU", file=sys.stderr, flush=True)


def tuned_value(results: Results, key: str, name: str) -> float | None:
    """Return the value with the best mean over futures and tuning draws; None before tuning."""
    key = PROBLEMS[key].tuned_like or key
    problem = PROBLEMS[key]
    values = grid(name, problem)[1]
    found = [[results.of(key, name, value, draw) for draw in problem.tuned] for value in values]
    if not values or any(each is None for own in found for each in own):
        return None
    means = np.array([np.mean([mean_over_futures(each) for each in own]) for own in found])
    worst_last = np.nan_to_num(means, nan=-np.inf if problem.measure == "accuracy" else np.inf)
    chosen = worst_last.argmax() if problem.measure == "accuracy" else worst_last.argmin()
    return values[int(chosen)]


def mean_over_futures(found: Mapping[str, float]) -> float:
    return float(np.mean([*found.values()]))


def run_problem(results: Results, key: str, names: Sequence[str]) -> None:
    problem = PROBLEMS[key]
    for tuned in ([name for name in names if name not in AFTER], set(names) & set(AFTER)):
        run_draws(results, key, problem.tuned, {name: grid(name, problem)[1] for name in tuned})
    chosen = {name: [tuned_value(results, key, name)] for name in names}
    run_draws(results, key, problem.reported, chosen)


def collect(results: Results, key: str) -> tuple[dict[str, np.ndarray], list[str], list[int]]:
    """Return measures `[draws, futures]` of each objective on the draws that all have."""
    problem = PROBLEMS[key]
    chosen = {name: tuned_value(results, key, name) for name in OBJECTIVES}
    draws = [
        draw
        for draw in problem.reported
        if all(results.of(key, name, chosen[name], draw) for name in OBJECTIVES)
    ]
    if not draws:
        return {}, [], []
    futures = list(results.of(key, "erm", None, draws[0]) or {})
    unit = 100 if problem.measure == "accuracy" else 1
    found = {
        name: unit
        * np.array(
            [[results.of(key, name, chosen[name], draw)[f] for f in futures] for draw in draws]
        )
        for name in OBJECTIVES
    }
    return found, futures, draws


def cell(values: np.ndarray, measure: str, sign: str = "") -> str:
    places = 1 if measure == "accuracy" else 3
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():{sign}.{places}f} ± {error:.{places}f}".replace("-", "−")


def span(draws: Sequence[int]) -> str:
    return f"draws {draws[0]}–{draws[-1]}" if len(draws) > 1 else f"draw {draws[0]}"


def print_problem(results: Results, key: str) -> None:
    problem = PROBLEMS[key]
    found, futures, draws = collect(results, key)
    if not draws:
        return
    like = PROBLEMS[problem.tuned_like or key]
    print(
        f"\n*{problem.label}: {UNITS[problem.measure]}, mean ± standard error over "
        f"{span(draws)}; hyper-parameters chosen on {span(like.tuned)} of {like.label}*\n"
    )
    print(f"| {problem.label} | hyper-parameter | {' | '.join(futures)} | mean |")
    print("|" + "---|" * (len(futures) + 3))
    for name, values in found.items():
        value = tuned_value(results, key, name)
        parameter = grid(name, problem)[0].replace("penalty_weight", "λ")
        told = "" if value is None else f"{parameter} = {value:g}"
        columns = [*values.T, values.mean(1)]
        cells = " | ".join(cell(each, problem.measure) for each in columns)
        hidden = problem.preset == "table" and OBJECTIVES[name].needs_hidden
        print(f"| {ENTRIES[name].label}{' (Φ)' * hidden} | {told} | {cells} |")


def print_overview(results: Results, minus: str = "") -> None:
    """Print the mean over futures of every problem, or its difference from an objective's."""
    every = {key: collect(results, key) for key in PROBLEMS}
    every = {key: each for key, each in every.items() if each[2]}
    heads = [
        f"{PROBLEMS[key].label}: {UNITS[PROBLEMS[key].measure]}, {len(draws)} draws"
        for key, (*_, draws) in every.items()
    ]
    told = f"{ENTRIES[minus].label}'s subtracted, " if minus else "by objective, "
    print(f"\n*Mean over futures, {told}mean ± standard error over draws*\n")
    print(f"| | {' | '.join(heads)} |")
    print("|" + "---|" * (len(heads) + 1))
    for name in OBJECTIVES:
        if name == minus:
            continue
        cells = []
        for key, (found, *_) in every.items():
            values = found[name] - found[minus] if minus else found[name]
            cells.append(cell(values.mean(1), PROBLEMS[key].measure, "+" * bool(minus)))
        print(f"| {ENTRIES[name].label} | {' | '.join(cells)} |")


def draw_figure(results: Results, path: Path) -> None:
    """Draw each problem: rows like those seen against the future that differs most from them."""
    keys = [key for key in PANELS if collect(results, key)[2]]
    rows = 1 if len(keys) < 4 else 2
    with style.figure(9.5, 0.8 + 2.7 * rows) as drawn:
        axes = drawn.subplots(rows, -(-len(keys) // rows), squeeze=False).ravel()
        for ax in axes[len(keys) :]:
            ax.set_axis_off()
        for ax, key in zip(axes, keys, strict=False):
            problem = PROBLEMS[key]
            found, futures, draws = collect(results, key)
            for n, (name, values) in enumerate(found.items()):
                means = values.mean(0)
                errors = values.std(0, ddof=1) / len(values) ** 0.5
                ax.errorbar(
                    means[0],
                    means[-1],
                    xerr=errors[0],
                    yerr=errors[-1],
                    fmt=MARKERS[n % len(MARKERS)],
                    color=ENTRIES[name].colour,
                    mec="black",
                    mew=0.4,
                    ms=8 if name == "wri" else 6,
                    lw=0.8,
                    label=ENTRIES[name].label,
                    zorder=3 if name == "wri" else 2,
                )
            erm = found["erm"].mean(0)
            ax.axvline(erm[0], color=style.GREY, lw=0.6, ls=":", zorder=0)
            ax.axhline(erm[-1], color=style.GREY, lw=0.6, ls=":", zorder=0)
            if problem.measure == "loss":  # better is up and to the right in every panel
                ax.invert_xaxis()
                ax.invert_yaxis()
            ax.set_title(f"{problem.label} ({len(draws)} draws)")
            ax.set_xlabel(f"{futures[0]} ({UNITS[problem.measure]})")
            ax.set_ylabel(futures[-1])
        handles, labels = axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=9)
    drawn.savefig(path, dpi=110)


def print_times(names: Sequence[str], steps: int = 30, count: int = 50) -> None:
    random = np.random.default_rng(0)
    bank = Bank(random.normal(size=(900, 64)), random.integers(4, size=900))
    train_rows = [np.arange(300 * e, 300 * e + 300) for e in range(3)]

    def seconds(name: str) -> float:
        hyper = {"batch_size": 64}
        known = {parameter.name for parameter in OBJECTIVES[name].hyperparameters()}
        hyper |= {each: 0 for each in known if each.endswith("anneal_steps")}
        spec = ModelSpec.of(name, steps=steps, hyper=hyper)
        runs = [Run(spec, bank, train_rows, seed=s) for s in range(count)]
        before = time.process_time()
        train_stack(runs, checkpoint_every=steps)
        return time.process_time() - before

    seconds("erm")  # the first stack pays for starting up
    rounds = [{name: seconds(name) for name in names} for _ in range(3)]
    print(f"*Time of a stack: CPU seconds of {steps} steps of {count} runs, three rounds*\n")
    print("| objective | least | most | least, times ERM |")
    print("|---|---|---|---|")
    for name in names:
        taken = [each[name] for each in rounds]
        times = min(taken) / min(each["erm"] for each in rounds)
        print(f"| {ENTRIES[name].label} | {min(taken):.2f} | {max(taken):.2f} | {times:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table", "times"))
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="all unless named")
    parser.add_argument("--store", type=Path, default=Path("family.jsonl"))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.what == "times":
        print_times(list(OBJECTIVES))
        return
    results = Results(options.store)
    problems = options.problems or list(PROBLEMS)
    if options.what == "run":
        for key in problems:
            run_problem(results, key, list(OBJECTIVES))
        return
    for minus in ("", "erm", "wri"):
        print_overview(results, minus)
    for key in problems:
        print_problem(results, key)
    if options.figure:
        draw_figure(results, options.figure)


if __name__ == "__main__":
    main()
