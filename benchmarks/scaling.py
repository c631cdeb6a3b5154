"""Time and memory of training against environments, rows, runs and dimensions.

    python benchmarks/scaling.py --keep points.jsonl --figure docs/figures/scaling.png

One quantity is varied at a time around 3 training environments of 2000 rows × 64 features, 7
classes, 16 runs, batches of 256 rows of each environment, DomainBed's preset with its defaults (4
density steps of WRI per step). Along `rows` there are 4 runs of 16 features, along `dimensions` 4
runs. Every point is a process of its own with one thread:

    seconds   of a core, per run and step, set-up and one checkpoint of all rows in 10 steps
              included, imports not; trained again until `--least` seconds are spent
    memory    peak of the process, less that of one which has only imported the package
    slope     of log seconds (memory) against log size, from the third point on: 1 is linear, 0 flat

Seconds are those that the process spent, not those that passed, so that other work on the machine
disturbs them little: cores that share caches with it still slow it down. With `--keep` every
point is written when it is measured, and only missing ones are measured.
"""

import argparse
import json
import resource
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from printed_table import print_table
from wri.objectives import OBJECTIVES
from wri.training import Bank, ModelSpec, Run, train

AXES = {
    "environments": [2, 4, 8, 16, 32, 64],
    "rows": [1_000, 10_000, 100_000, 1_000_000],
    "runs": [1, 10, 50, 200, 1000],
    "dimensions": [16, 64, 256, 1024],
}
LABELS = {
    "environments": "training environments",
    "rows": "rows in all",
    "runs": "runs",
    "dimensions": "features",
}
TITLES = {
    "environments": "Environments of 2,000 rows; 16 runs, 64 features",
    "rows": "Rows of 3 environments; 4 runs, 16 features",
    "runs": "Runs; 3 environments of 2,000 rows, 64 features",
    "dimensions": "Features; 4 runs, 3 environments of 2,000 rows",
}
BASE = {"environments": 3, "rows": 6000, "runs": 16, "dimensions": 64}
STEPS = 20
CLASSES = 7
FORK = get_context("fork")


def make_runs(algorithm: str, size: dict[str, int]) -> list[Run]:
    random = np.random.default_rng(0)
    x = random.normal(size=(size["rows"], size["dimensions"])).astype(np.float32)
    y = random.integers(CLASSES, size=len(x))
    train_rows = np.array_split(np.arange(len(x)), size["environments"])
    known = {parameter.name for parameter in OBJECTIVES[algorithm].hyperparameters()}
    hyper = {"batch_size": 256, "anneal_steps": 0}
    hyper = {name: value for name, value in hyper.items() if name in known}
    spec = ModelSpec.of(algorithm, steps=STEPS, hyper=hyper)
    bank = Bank(x, y, classes=CLASSES)
    evaluate = {f"env{e}": rows for e, rows in enumerate(train_rows)}
    return [Run(spec, bank, train_rows, seed=s, evaluate=evaluate) for s in range(size["runs"])]


def measure(algorithm: str, size: dict[str, int], least: float) -> dict[str, float]:
    """Seconds per run and step and peak megabytes, in this process."""
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs = make_runs(algorithm, size)
    times, start = 0, time.process_time()
    while time.process_time() - start < least:
        train(runs, device="cpu", checkpoint_every=STEPS)  # and at step 0: one in 10
        times += 1
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds / times / len(runs) / STEPS, "memory": (peak - before) / 1024}


def point(
    algorithm: str, size: dict[str, int], keep: Path | None, least: float
) -> dict[str, float]:
    """The same in a process of its own, unless it is known."""
    job = json.dumps([algorithm, size])
    if keep is not None and keep.exists():
        for line in keep.read_text().splitlines():
            known = json.loads(line)
            if known["job"] == job:
                return known["found"]
    ours, theirs = FORK.Pipe()  # a copy of this process, which has imported everything
    child = FORK.Process(target=lambda: theirs.send(measure(algorithm, size, least)))
    child.start()
    theirs.close()
    found = ours.recv()
    child.join()
    if keep is not None:
        with keep.open("a") as file:
            file.write(json.dumps({"job": job, "found": found}) + "\n")
    return found


def size_at(axis: str, value: int) -> dict[str, int]:
    size = BASE | {axis: value}
    if axis == "environments":
        size["rows"] = 2000 * value
    if axis == "rows":
        size |= {"runs": 4, "dimensions": 16}
    if axis == "dimensions":
        size["runs"] = 4
    return size


def slope(sizes: list[int], values: list[float]) -> float:
    """Of the logarithms, from the third point on."""
    return float(np.polyfit(np.log(sizes[2:]), np.log(values[2:]), 1)[0])


def print_curves(axis: str, found: dict[str, dict]) -> None:
    lines = []
    for algorithm, curve in found.items():
        for what, unit, factor in (("seconds", "ms", 1000), ("memory", "MB", 1)):
            values = [f"{factor * value:.3g}" for value in curve[what]]
            slope = f"{curve['slopes'][what]:.2f}" if "slopes" in curve else ""
            lines.append([f"{algorithm.upper()}, {unit}", *values, slope.replace("-", "−")])
    print_table(
        f"{TITLES[axis]}: ms of a core per run and step, and peak MB",
        [LABELS[axis], *(f"{n:,}" for n in curve["sizes"]), "slope"],
        lines,
    )


def draw(curves: dict, path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    figure, panels = plt.subplots(
        2, len(curves), figsize=(1 + 3 * len(curves), 5.5), sharex="col", squeeze=False
    )
    for column, axis in enumerate(curves):
        for algorithm, curve in curves[axis].items():
            for panel, what in zip(panels[:, column], ("seconds", "memory"), strict=True):
                values = [1000 * v for v in curve[what]] if what == "seconds" else curve[what]
                panel.plot(curve["sizes"], values, "o-", label=algorithm.upper())
                panel.set(xscale="log", yscale="log")
                panel.set_xticks(AXES[axis], [f"{n:,}" for n in AXES[axis]])
                panel.xaxis.set_minor_locator(NullLocator())
                panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
                panel.yaxis.set_minor_locator(NullLocator())
                panel.grid(alpha=0.3)
        panels[1, column].set_xlabel(LABELS[axis])
    panels[0, 0].set_ylabel("ms of a core per run and step")
    panels[1, 0].set_ylabel("peak memory, MB")
    panels[0, 0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    known = list(OBJECTIVES)
    parser.add_argument("--algorithms", nargs="+", default=["erm", "wri"], choices=known)
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES))
    parser.add_argument("--most", type=int, help="leave out sizes above this")
    parser.add_argument("--least", type=float, default=2.0, help="seconds of a point")
    parser.add_argument("--keep", type=Path, help="file of points that are known")
    parser.add_argument("--figure", type=Path, help="draw the curves into this file")
    options = parser.parse_args()
    curves: dict = {}
    for axis in options.axes:
        sizes = [n for n in AXES[axis] if options.most is None or n <= options.most]
        for algorithm in options.algorithms:
            points = [
                point(algorithm, size_at(axis, n), options.keep, options.least) for n in sizes
            ]
            curve = {"sizes": sizes} | {key: [p[key] for p in points] for key in points[0]}
            if len(sizes) > 3:
                curve["slopes"] = {key: slope(sizes, curve[key]) for key in points[0]}
            curves.setdefault(axis, {})[algorithm] = curve
            print(axis, algorithm, curve, file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(curves))
    else:
        for axis in curves:
            print_curves(axis, curves[axis])
    if options.figure is not None:
        draw(curves, options.figure)


if __name__ == "__main__":
    main()
