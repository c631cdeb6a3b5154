"""Time and memory of `wri fit` on a table of 100,000 rows, 50 columns and 8 sites.

    python benchmarks/fit_command.py               # with the defaults, and with --fast

Rows are simulated: ten causes with equal slopes everywhere, ten columns whose slopes differ between
sites, a category, a column with missing cells, the rest noise. Times are wall-clock, of the whole
command, reading and report included; --fast leaves no site out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import pandas as pd


def make_table(rows: int, columns: int, sites: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    site = random.integers(sites, size=rows)
    x = (
        random.normal(size=(rows, columns - 1))
        + 0.5 * random.normal(size=(sites, columns - 1))[site]
    )
    causes, changing = x[:, :10], x[:, 10:20]
    slopes = random.normal(0, 0.4, (sites, 10))[site]
    logit = 0.5 * causes.sum(1) + (slopes * changing).sum(1)
    y = random.random(rows) < 1 / (1 + np.exp(-logit))
    table = pd.DataFrame(x, columns=[f"x{k}" for k in range(columns - 1)])
    table.loc[random.random(rows) < 0.05, "x30"] = np.nan
    return table.assign(
        ward=random.choice(list("abcd"), rows), y=y.astype(int), site=[f"site {s}" for s in site]
    )


def run_fit(path: Path, options: list[str]) -> dict[str, float]:
    """Seconds, CPU seconds, and memory of the largest process in GB."""
    command = [sys.executable, "-m", "wri.cli", "fit", str(path), "--target", "y", "--env", "site"]
    command += ["-o", str(path.parent / "model"), "--json", *options]
    start = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as called:
        found = json.loads(called.stdout.read() if called.stdout else "")
        _, status, used = os.wait4(called.pid, 0)
        called.returncode = os.waitstatus_to_exitcode(status)
    return {
        "seconds": perf_counter() - start,
        "of that fitting": found["seconds"],
        "CPU seconds": used.ru_utime + used.ru_stime,
        "GB of the largest process": used.ru_maxrss / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=3, help="commands, one after the other")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        table = make_table(given.rows, given.columns, given.sites, given.seed)
        table.to_csv(path, index=False, float_format="%.6g")
        runs = {
            what: [run_fit(path, options) for _ in range(given.repeat)]
            for what, options in {"defaults": [], "`--fast`": ["--fast"]}.items()
        }
    if given.json:
        print(json.dumps(runs))
        return
    size = f"{given.rows:,} rows × {given.columns} columns of {given.sites} sites"
    print(f"*`wri fit`, CSV of {size}: median (range) of {given.repeat} commands, ", end="")
    print(f"seed {given.seed}*\n")
    names = list(runs["defaults"][0])
    print("| | " + " | ".join(names) + " |")
    print("|" + "---|" * (1 + len(names)))
    for what, own in runs.items():
        columns = [[run[name] for run in own] for name in names]
        cells = [
            f"{median(each):.{digits}f} ({min(each):.{digits}f}–{max(each):.{digits}f})"
            for each, digits in zip(columns, (1, 1, 1, 2), strict=True)
        ]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
