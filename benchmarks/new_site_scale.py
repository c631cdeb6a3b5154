"""Time and memory of `score_new_site` on many rows.

    python benchmarks/new_site_scale.py [--rows 1000000] [--columns 20] [--sites 12]
                                        [--repeats 2] [--json]

A classifier of two classes, one of three and a regressor are fitted on 24,000 rows (ERM, 20 steps:
what is measured does not depend on them), then meet a new site. Every one runs in a process of its
own. Seconds are those of the call, on the clock and of the processor. Memory is the process's
peak, with interpreter, PyTorch and the rows themselves. All calls are repeated, one round after
the other.
"""

import argparse
import json
import subprocess
import sys
import time
from resource import RUSAGE_SELF, getrusage

import numpy as np

from diagnosis_scale import show_range

FITTED = 24_000
TARGETS = {"two classes": 2, "three classes": 3, "number": 0}


def draw(rows: int, columns: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, columns))
    score = x[:, 0] + x[:, 1] / 2 + random.logistic(size=rows) / 2
    cuts = {2: [0.0], 3: [-0.7, 0.7]}.get(classes)
    return x, score if cuts is None else np.searchsorted(cuts, score)


def measure(target: str, rows: int, columns: int, sites: int) -> dict[str, float]:
    import wri

    classes = TARGETS[target]
    kind = wri.ERMClassifier if classes else wri.ERMRegressor
    x, y = draw(FITTED, columns, classes, 0)
    model = kind(steps=20).fit(x, y, groups=np.arange(FITTED) % sites)
    new, _ = draw(rows, columns, classes, 1)
    before = getrusage(RUSAGE_SELF).ru_maxrss / 1000
    start, work = time.perf_counter(), time.process_time()
    found = model.score_new_site(new)
    seconds, work = time.perf_counter() - start, time.process_time() - work
    assert found.loss is not None
    peak = getrusage(RUSAGE_SELF).ru_maxrss / 1000
    return {
        "seconds": seconds,
        "cpu_seconds": work,
        "peak_mb": peak,
        "before_mb": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help="a target, in this process")
    given = parser.parse_args()
    size = (given.rows, given.columns, given.sites)
    if given.one:
        print(json.dumps(measure(given.one, *size)))
        return
    found: dict[str, list[dict[str, float]]] = {target: [] for target in TARGETS}
    for target in [*TARGETS] * given.repeats:
        print(target, file=sys.stderr)
        command = [sys.executable, __file__, "--one", target]
        for name, value in zip(("rows", "columns", "sites"), size, strict=True):
            command += [f"--{name}", str(value)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[target].append(json.loads(done.stdout))
    if given.json:
        print(json.dumps(found))
        return
    what = f"{given.rows:,} new rows, {given.columns} columns, {given.sites} training sites"
    print(f"*`score_new_site`: {what}, smallest and largest of {given.repeats} calls*\n")
    print("| target | s on the clock | s of the processor | peak MB | before the call MB |")
    print("|---" * 5 + "|")
    shown = (("seconds", 1), ("cpu_seconds", 1), ("peak_mb", 0), ("before_mb", 0))
    for target, calls in found.items():
        cells = [show_range([call[name] for call in calls], digits) for name, digits in shown]
        print(f"| {target} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
