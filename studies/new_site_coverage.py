"""How often the interval of `score_new_site` holds the loss that outcomes then give.

    python studies/new_site_coverage.py [--designs 1080] [--first 0] [--keep FILE] [--json]
    WRI_DATA=… python studies/new_site_coverage.py --heart [--seeds 5]

A design draws 3 to 12 sites of 60 to 600 rows (every third design: 200 rows each), a target (two
classes, three classes or a number), and how a marker follows it: "same" everywhere, "varied" in
strength, or "any": also reversed. Then it trains ERM, VREx or WRI and meets three new sites drawn
like the others, one with the marker reversed and one with the marker unrelated, of 30 to 2000 rows
each. Counted is whether the mean loss of these very rows lies in the interval. The form of the
interval was chosen on designs from 5000 on, with scikit-learn's linear models in place of ours.
Standard errors take a design as one observation, since its sites share a model.

With --keep every design is written to a file as soon as it is done, and only missing ones are run.
With --heart each hospital of UCI's heart disease is the new site of models of the other three.
"""

import argparse
import json
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit, softmax

import wri

TARGETS = ("two classes", "two classes", "number", "three classes")
MARKERS = ("varied", "any", "same")
ALGORITHMS = ("ERM", "VREx", "WRI")
SIZES = ((9, "9 to 12"), (5, "5 to 8"), (3, "3 or 4"))
NEW = (*("drawn like the training sites",) * 3, "marker reversed", "marker unrelated")


def draw_site(
    random: np.random.Generator, target: str, markers: str, n: int, new: str = NEW[0]
) -> tuple[np.ndarray, np.ndarray]:
    """X and y of a site: a cause, a marker that follows y, a column of noise and a skewed one."""
    cause = random.normal(random.uniform(-1.5, 1.5), 1, n)
    ends = {"varied": (0, 1.5), "any": (-1.5, 1.5), "same": (0.8, 0.8)}[markers]
    strength = random.uniform(*ends)
    if new == "marker reversed":
        strength = -1.5 if markers == "any" else -strength
    strength = 0.0 if new == "marker unrelated" else strength
    noise = 0.7 * np.exp(random.normal(0, 0.25))  # of numbers: sites differ in it
    if target == "two classes":
        y = (random.random(n) < expit(2 * cause)).astype(int)
        follows = 2 * y - 1.0
    elif target == "three classes":
        odds = softmax(np.column_stack([0 * cause, 1.5 * cause, 2 * cause - 1]), axis=1)
        y = (odds.cumsum(1) < random.random(n)[:, None]).sum(1)
        follows = y - 1.0
    else:
        y = follows = cause + random.normal(0, noise, n)
    marker = random.normal(strength * follows, 1)
    return np.column_stack([cause, marker, random.normal(size=n), random.exponential(size=n)]), y


def mean_loss(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    if not hasattr(model, "predict_proba"):
        return float(np.square(model.predict(x) - y).mean())
    place = np.searchsorted(model.classes_, y)
    return float(-np.log(model.predict_proba(x)[np.arange(len(y)), place]).mean())


def meet(model: Any, x: np.ndarray, y: np.ndarray, new: str) -> dict[str, Any]:
    """A new site's interval and its loss."""
    found, actual = model.score_new_site(x), mean_loss(model, x, y)
    line: dict[str, Any] = {"new": new, "rows": len(y), "loss": actual, "outside": found.outside}
    if found.loss is None or found.loss.low is None:
        return {**line, "held": None}
    low, high = found.loss.low, found.loss.high
    seen = found.flagged_often or bool(found.flagged_columns) or found.outside > 0.5
    return {
        **line,
        "held": bool(low <= actual <= high),
        "low": low,
        "high": high,
        "training": found.loss.training,
        "seen": seen,
    }


def run_design(number: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    target, markers = TARGETS[number % 4], MARKERS[number // 4 % 3]
    algorithm, sites = ALGORITHMS[number // 12 % 3], int(random.integers(3, 13))
    sizes = np.exp(random.uniform(np.log(60), np.log(600), sites)).astype(int)
    sizes = sizes if number % 3 else np.full(sites, 200)
    drawn = [draw_site(random, target, markers, n) for n in sizes]
    x, y = (np.concatenate(each) for each in zip(*drawn, strict=True))
    kind = "Regressor" if target == "number" else "Classifier"
    model = getattr(wri, algorithm + kind)(random_state=number)
    model.fit(x, y, groups=np.repeat(np.arange(sites), sizes))
    new = []
    for each in NEW:
        n = int(np.exp(random.uniform(np.log(30), np.log(2000))))
        new.append(meet(model, *draw_site(random, target, markers, n, each), each))
    described = {"target": target, "markers": markers, "algorithm": algorithm, "sites": sites}
    return {"design": number, **described, "unequal": bool(number % 3), "met": new}


def run_heart(seeds: int) -> list[dict[str, Any]]:
    """Each hospital the new site of models of the other three, patients drawn by the seed."""
    from wri.datasets import load_heart
    from wri.paper.experiments.heart import split

    table, lines = load_heart(), []
    for seed in range(seeds):
        for hospital in table["hospital"].unique():
            known, new = split(table, hospital, seed)
            for algorithm in ALGORITHMS:
                model = getattr(wri, f"{algorithm}Classifier")(random_state=seed)
                model.fit(np.asarray(known.x, float), known.y, groups=known.site)
                met = meet(model, np.asarray(new.x, float), np.asarray(new.y), hospital)
                lines.append({"algorithm": algorithm, "seed": seed, **met})
    return lines


def collect(first: int, designs: int, keep: Path | None) -> Iterator[dict[str, Any]]:
    """Designs from the file, then those that it lacks."""
    kept: dict[int, dict[str, Any]] = {}
    if keep is not None and keep.exists():
        for text in keep.read_text().splitlines():
            line = json.loads(text)
            kept[line["design"]] = line
    for number in range(first, first + designs):
        if number in kept:
            yield kept[number]
            continue
        line = run_design(number)
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(line) + "\n")
        yield line


def summarise(lines: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Share of intervals that held, how many there were, and their median width over the loss."""
    found: dict[str, Any] = {}
    for value in sorted({line[key] for line in lines}):
        own = [each for each in lines if each[key] == value and each["held"] is not None]
        none = sum(each[key] == value and each["held"] is None for each in lines)
        held = float(np.mean([each["held"] for each in own]))
        misses: dict[int, float] = defaultdict(float)  # by design
        for each in own:
            misses[each["design"]] += each["held"] - held
        width = [(each["high"] - each["low"]) / each["training"] for each in own]
        found[str(value)] = {
            "held": held,
            "error": float(np.linalg.norm([*misses.values()]) / len(own)),
            "seen": float(np.mean([each["seen"] for each in own])),
            "intervals": len(own),
            "no interval": none,
            "median width": float(np.median(width)),
        }
    return found


def print_coverage(title: str, tables: Iterable[dict[str, Any]]) -> None:
    """How often intervals held, one kind of sites or designs per line."""
    print(f"*{title}, ± standard error*\n")
    print("| | held (%) | intervals | none given | median width / loss | seen (%) |")
    print("|---" * 6 + "|")
    for value, row in (line for table in tables for line in table.items()):
        print(
            f"| {value} | {100 * row['held']:.1f} ± {100 * row['error']:.1f} "
            f"| {row['intervals']} | {row['no interval']} "
            f"| {row['median width']:.2f} | {100 * row['seen']:.0f} |"
        )
    print()


def print_heart(lines: list[dict[str, Any]], seeds: int) -> None:
    """Loss and interval of every hospital and model, means over seeds."""
    print(f"*Heart disease: loss and interval, mean ± standard deviation over {seeds} seeds*\n")
    print("| left out | model | loss | from | to | held |\n" + "|---" * 6 + "|")
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        cells[line["new"], line["algorithm"]].append(line)
    for (hospital, algorithm), own in cells.items():
        numbers = [[line[name] for line in own] for name in ("loss", "low", "high")]
        shown = [f"{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}" for each in numbers]
        held = sum(line["held"] for line in own)
        print(f"| {hospital} | {algorithm} | {' | '.join(shown)} | {held} of {len(own)} |")


def describe(design: dict[str, Any]) -> dict[str, Any]:
    """A design's entry with what its tables name it by."""
    sites = next(names for least, names in SIZES if design["sites"] >= least)
    sizes = "unequal sizes" if design["unequal"] else "equal sizes"
    markers = f"strength of the marker: {design['markers']}"
    return {**design, "sites": f"{sites} training sites", "unequal": sizes, "markers": markers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", type=int, default=1080)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--heart", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if given.heart:
        lines = run_heart(given.seeds)
        if given.json:
            print(json.dumps(lines))
        else:
            print_heart(lines, given.seeds)
        return
    lines = []
    for done, design in enumerate(collect(given.first, given.designs, given.keep), 1):
        lines += [{**describe(design), **met} for met in design["met"]]
        print(f"{done} of {given.designs}", end="\r", file=sys.stderr, flush=True)
    like = [line for line in lines if line["new"] == NEW[0]]
    new = summarise(lines, "new")
    keys = ("target", "markers", "algorithm", "sites", "unequal")
    tables = {key: summarise(like, key) for key in keys}
    if given.json:
        print(json.dumps({"new": new, **tables}))
        return
    print_coverage(f"New sites of {given.designs} designs", [new])
    print_coverage("Sites drawn like the training sites, by design", tables.values())


if __name__ == "__main__":
    main()
