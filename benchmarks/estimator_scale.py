"""Time and memory of one `fit`, and how they grow with rows, columns and environments.

Simulated sites: a fifth of the columns are causes, a fifth markers whose strength differs from site
to site, the rest noise; two classes. Every fit runs in a process of its own, default settings or
with hidden layers, no candidates, sites left out in turn only with --site-spread; its peak memory
counts the interpreter, PyTorch and the data. `ratio` is the time over that of the estimator's first
line, in the same run.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from resource import RUSAGE_SELF, getrusage

import numpy as np


@dataclass(frozen=True)
class Size:
    rows: int = 100_000
    columns: int = 50
    environments: int = 8


def sizes(quick: bool) -> list[Size]:
    """The issue's size first, then one thing changed at a time."""
    if quick:
        return [Size(2000, 10, 4), Size(4000, 10, 4)]
    return [
        Size(),
        *(Size(rows=n) for n in (12_500, 25_000, 50_000, 200_000)),
        *(Size(columns=d) for d in (13, 25, 100, 200)),
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


def one_fit(name: str, hidden: tuple[int, ...], spread: bool, size: Size) -> dict[str, float]:
    import wri

    estimator = getattr(wri, name)(hidden=hidden, site_spread=spread)  # imports PyTorch
    x, y, site = sites(size)
    start = time.perf_counter()
    model = estimator.fit(x, y, groups=site)
    seconds = time.perf_counter() - start
    assert model.n_environments_ == size.environments
    return {"seconds": seconds, "megabytes": getrusage(RUSAGE_SELF).ru_maxrss / 1000}


def in_a_process(name: str, hidden: tuple[int, ...], spread: bool, size: Size) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", name, *map(str, asdict(size).values())]
    command += ["--hidden", *map(str, hidden), *(["--site-spread"] if spread else [])]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--estimators", nargs="+", default=["WRIClassifier", "ERMClassifier"])
    parser.add_argument("--hidden", type=int, nargs="*", default=[], help="a network's widths")
    parser.add_argument("--quick", action="store_true", help="two small sizes")
    parser.add_argument("--site-spread", action="store_true", help="leave sites out as well")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--one", nargs=4, metavar=("NAME", "ROWS", "COLUMNS", "ENVIRONMENTS"))
    given = parser.parse_args()
    hidden, spread = tuple(given.hidden), given.site_spread
    if given.one:
        size = Size(*map(int, given.one[1:]))
        print(json.dumps(one_fit(given.one[0], hidden, spread, size)))
        return
    found = []
    for name in given.estimators:
        first = None
        for size in sizes(given.quick):
            line = {"estimator": name, **asdict(size), **in_a_process(name, hidden, spread, size)}
            first = first or line["seconds"]
            line["ratio"] = line["seconds"] / first
            found.append(line)
            if not given.json:
                print(
                    f"{name:15} {size.rows:7} rows {size.columns:4} columns "
                    f"{size.environments:3} environments {line['seconds']:6.1f} s "
                    f"({line['ratio']:.2f}) {line['megabytes']:6.0f} MB",
                    flush=True,
                )
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
