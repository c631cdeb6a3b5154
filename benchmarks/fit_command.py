"""Time and memory of `wri fit` on a table of 100,000 rows, 50 columns and 8 sites.

    python benchmarks/fit_command.py --fast        # no site is held out: at most 2 minutes
    python benchmarks/fit_command.py               # the defaults: at most 10 minutes

Rows are simulated: ten causes with equal slopes everywhere, ten columns whose slopes differ between
sites, a category, a column with missing cells, the rest noise. Times are wall-clock, of the whole
command, reading and report included.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--sites", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fast", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        table = make_table(given.rows, given.columns, given.sites, given.seed)
        table.to_csv(path, index=False, float_format="%.6g")
        command = [sys.executable, "-m", "wri.cli", "fit", str(path), "--target", "y"]
        command += ["--env", "site", "-o", f"{folder}/model", "--json"]
        start = perf_counter()
        done = subprocess.run(
            command + ["--fast"] * given.fast, stdout=subprocess.PIPE, check=True, env=os.environ
        )
        seconds = perf_counter() - start
    found = json.loads(done.stdout)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    result = {
        **vars(given),
        "seconds": round(seconds, 1),
        "fitting": found["seconds"],
        "gigabytes": round(peak, 2),
        "kept": found["kept"],
        "held_out": found["held_out"],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
