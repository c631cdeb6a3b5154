"""Time and memory of one `fit`, and how they grow with rows, columns and environments.

    python benchmarks/estimator_scale.py [--estimators ERMClassifier WRIClassifier/32/16] [--json]

Simulated sites: a fifth of the columns are causes, a fifth markers whose strength differs from site
to site, the rest noise; two classes. Every fit runs in a process of its own with one thread,
default settings or hidden layers of the widths after the name, no candidates, and no site left
out. Seconds are those that the process spends, not those that pass. Its peak memory counts the
interpreter, PyTorch and the data. `ratio` is the time over that of the estimator's first line, in
the same run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, astuple, dataclass
from resource import RUSAGE_SELF, getrusage

import numpy as np

from printed_table import print_table

ESTIMATORS = ("WRIClassifier", "ERMClassifier", "WRIClassifier/32/16")


@dataclass(frozen=True)
class Size:
    rows: int = 100_000
    columns: int = 50
    environments: int = 8


def sizes(quick: bool) -> list[Size]:
    """The first size, then one thing changed at a time."""
    if quick:
        return [Size(2000, 10, 4), Size(4000, 10, 4)]
    return [
        Size(),
        *(Size(rows=n) for n in (12_500, 50_000, 200_000)),
        *(Size(columns=d) for d in (13, 100, 200)),
        *(Size(environments=e) for e in (2, 4, 16, 32)),
    ]


def sites(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    fifth = max(1, size.columns // 5)
    site = np.arange(size.rows) % size.environments
    x = random.normal(size=(size.rows, size.columns))
    x[:, :fifth] += random.normal(size=(size.environments, fifth))[site]
    odds = x[:, :fifth].sum(1) * 2 / fifth**0.5
    y = (random.random(size.rows) < 1 / (1 + np.exp(-odds))).astype(int)
    strength = random.uniform(0, 1, (size.environments, fifth))
    x[:, fifth : 2 * fifth] += (2 * y - 1)[:, None] * strength[site]
    return x, y, site


def one_fit(name: str, size: Size) -> dict[str, float]:
    import wri

    estimator, *hidden = name.split("/")
    model = getattr(wri, estimator)(hidden=tuple(map(int, hidden)), site_spread=False)
    x, y, site = sites(size)
    start = time.process_time()
    model.fit(x, y, groups=site)
    seconds = time.process_time() - start
    assert model.n_environments_ == size.environments
    return {"seconds": seconds, "megabytes": getrusage(RUSAGE_SELF).ru_maxrss / 1000}


def in_a_process(name: str, size: Size) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, *map(str, astuple(size))]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=alone)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def heads_of(name: str) -> list[str]:
    estimator, *hidden = name.split("/")
    start = estimator.removesuffix("Classifier") + (
        f", network {' × '.join(hidden)}" * bool(hidden)
    )
    return [f"{start}: s (ratio)", "MB"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--estimators", nargs="+", default=ESTIMATORS)
    parser.add_argument("--quick", action="store_true", help="two small sizes")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--one", nargs=4, metavar=("NAME", "ROWS", "COLUMNS", "ENVIRONMENTS"))
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_fit(given.one[0], Size(*map(int, given.one[1:])))))
        return
    found = []
    for name in given.estimators:
        first = None
        for size in sizes(given.quick):
            line = {"estimator": name, **asdict(size), **in_a_process(name, size)}
            first = first or line["seconds"]
            line["ratio"] = line["seconds"] / first
            found.append(line)
            print(line, file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps(found))
        return
    lines = []
    for size in sizes(given.quick):
        cells = [
            text
            for line in found
            if Size(line["rows"], line["columns"], line["environments"]) == size
            for text in (f"{line['seconds']:.2f} ({line['ratio']:.2f})", f"{line['megabytes']:.0f}")
        ]
        lines.append([f"{n:,}" for n in astuple(size)] + cells)
    heads = [head for name in given.estimators for head in heads_of(name)]
    title = "One fit: CPU seconds in one thread, ratio to the first line, and peak memory; seed 0"
    print_table(title, ["rows", "columns", "environments", *heads], lines)


if __name__ == "__main__":
    main()
