"""Cost of linear fits beside scikit-learn's LogisticRegression, in one run.

    python benchmarks/linear_speed.py [--only small middle pictures csv large] [--json]
    python benchmarks/linear_speed.py --only folder [--rows 20000000]

CPU time in one thread, the least of several repetitions; a ratio is the median over repetitions of
the time beside that of LogisticRegression just before it. Tables are those of
`studies/insured_sites.py` with more columns of noise. "csv" and "large" are whole calls of `wri
fit` with default options, in processes of their own, with seconds by the clock and the largest
memory. "curves" doubles rows, columns and sites and gives the slope of the logarithm of the time.
"folder" is a table of 20 columns and 8 sites in Parquet files, fitted with `--fast`, in this
process and on two workers of Ray.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import wri

sys.path.append(str(Path(__file__).parents[1] / "studies"))
from insured_sites import Design, sample_table

PARTS = ("small", "middle", "pictures", "csv", "large", "curves", "folder")
ROWS_PER_FILE = 500_000
PATH = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


def table(rows: int, columns: int, sites: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Rows, classes and sites."""
    design = Design("classes", sites, "partial", rows // sites, columns - 3)
    training, _ = sample_table(design, seed)
    x, y = (np.concatenate(part) for part in zip(*training, strict=True))
    return x, y, np.repeat(np.arange(sites), rows // sites)


def pictures(seed: int = 0) -> tuple[np.ndarray, ...]:
    """Features like those of a backbone: 2,533 × 1280, 10 classes, 4 domains."""
    random = np.random.default_rng(seed)
    y, site = random.integers(10, size=2533), random.integers(4, size=2533)
    centres = random.normal(size=(10, 60)) + 0.4 * random.normal(size=(4, 1, 60))
    inner = centres[site, y] + random.normal(size=(2533, 60))
    x = np.maximum(inner @ random.normal(size=(60, 1280)) / 8 + random.normal(size=1280), 0)
    return x, y, site


def cost(work: Callable[[], Any]) -> float:
    start = process_time()
    work()
    return process_time() - start


def compare(
    data: tuple[np.ndarray, ...], works: dict[str, Callable[..., Any]], repeat: int
) -> dict[str, Any]:
    """CPU seconds of each work and its ratio to LogisticRegression's."""
    x, y, site = data
    plain = LogisticRegression(max_iter=1000)
    seconds: dict[str, list[float]] = {name: [] for name in ("LogisticRegression", *works)}
    ratios: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeat + 1):  # the first warms up
        for name, work in works.items():
            base = cost(lambda: plain.fit(x, y))
            own = cost(lambda work=work: work().fit(x, y, groups=site))
            seconds["LogisticRegression"].append(base)
            seconds[name].append(own)
            ratios[name].append(own / base)
    return {
        "rows × columns × sites": f"{len(x):,} × {x.shape[1]} × {len(np.unique(site))}",
        "seconds": {name: min(each) for name, each in seconds.items()},
        "ratio": {name: float(np.median(each[1:])) for name, each in ratios.items()},
    }


def along_path() -> Any:
    """WRI with ten λ, each measured with every site left out."""
    candidates = [{"penalty_weight": weight} for weight in PATH]
    return wri.WRIClassifier(candidates=candidates, site_spread=False)


def awkward(path: Path) -> None:
    """A CSV with categories, missing cells, text numbers and a changing marker."""
    random = np.random.default_rng(0)
    x, y, site = table(2550, 8, 5)
    frame = pd.DataFrame(x, columns=["age", "marker", "season", *(f"lab {k}" for k in range(5))])
    frame["ward"] = random.choice(["north", "south", "icu", "day clinic"], len(frame))
    frame["smoker"] = random.choice(["yes", "no", None], len(frame), p=[0.3, 0.6, 0.1])
    frame["grade"] = random.integers(1, 5, len(frame))
    frame["age"] = (55 + 12 * frame["age"]).round(1)
    frame.loc[random.random(len(frame)) < 0.08, "lab 1"] = np.nan
    frame.assign(sick=np.where(y, "yes", "no"), clinic=[f"clinic {e}" for e in site]).to_csv(
        path, index=False
    )


def command(make: Callable[[Path], None], target: str, env: str) -> dict[str, Any]:
    """Cost of `wri fit` with default options on a file that is made for it."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.csv"
        make(rows)
        return run_fit(rows, target, env)


def run_fit(rows: Path, target: str, env: str, *more: str) -> dict[str, Any]:
    """Clock and CPU seconds and the largest memory of `wri fit`."""
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        arguments = ["fit", str(rows), "--target", target, "--env", env, "-o", model, *more]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
        subprocess.run(
            [sys.executable, "-m", "wri.cli", *arguments], check=True, capture_output=True
        )
        spent, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": spent,
        "CPU seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "GB": after.ru_maxrss / 2**20,  # of the largest process
    }


def folder(rows: int) -> dict[str, Any]:
    """`wri fit --fast` on a folder of Parquet files, here and on Ray."""
    with tempfile.TemporaryDirectory() as place:
        parts = Path(place) / "parts"
        parts.mkdir()
        for number, first in enumerate(range(0, rows, ROWS_PER_FILE)):
            count = min(ROWS_PER_FILE, rows - first) // 8 * 8
            x, y, site = table(count, 20, 8, seed=number)
            frame = pd.DataFrame(x.astype(np.float32), columns=[f"c{k}" for k in range(20)])
            frame.assign(y=y, site=[f"s{e}" for e in site]).to_parquet(
                parts / f"{number:03}.parquet"
            )
            print(f"written: {first + count:,} rows", file=sys.stderr, flush=True)
        found = {}
        for backend in ("local", "ray"):
            found[backend] = run_fit(parts, "y", "site", "--fast", "--backend", backend)
            print(f"{backend}: {found[backend]}", file=sys.stderr, flush=True)
        return found


def large(path: Path) -> None:
    x, y, site = table(100_000, 50, 8)
    names = [f"c{k}" for k in range(x.shape[1])]
    frame = pd.DataFrame(x.round(6), columns=names)
    frame.assign(y=y, site=[f"s{e}" for e in site]).to_csv(path, index=False)


def curves(repeat: int) -> dict[str, Any]:
    """CPU seconds of WRI against rows, columns and sites, with slopes of the logarithms."""
    grids = {
        "rows": [(n, 10, 4) for n in (4_000, 16_000, 64_000, 256_000, 1_000_000)],
        "columns": [(8_000, d, 4) for d in (8, 16, 32, 64, 128)],
        "sites": [(16_000, 10, e) for e in (4, 8, 16, 32, 64)],
    }
    found: dict[str, Any] = {}
    for place, (name, grid) in enumerate(grids.items()):
        lines = []
        for size in grid:
            x, y, site = table(*size)
            fit = partial(wri.WRIClassifier().fit, x, y, groups=site)
            spent = min(cost(fit) for _ in range(repeat))
            lines.append((size[place], spent))
            print(f"{name} {size}: {spent:.2f} s", file=sys.stderr, flush=True)
        at, seconds = np.log(np.array(lines)).T
        found[name] = {"seconds": dict(lines), "slope": float(np.polyfit(at, seconds, 1)[0])}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:4])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows", type=int, default=20_000_000, help="of the folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ours = {
        "ERMClassifier()": wri.ERMClassifier,
        "WRIClassifier()": wri.WRIClassifier,
        "WRI, 10 λ, every site left out": along_path,
    }
    found: dict[str, Any] = {}
    if "small" in given.only:
        found["small"] = compare(table(1_200, 6, 4), ours, given.repeat)
    if "middle" in given.only:
        found["middle"] = compare(table(16_000, 24, 8), ours, given.repeat)
    if "pictures" in given.only:
        ours = {"WRIClassifier()": wri.WRIClassifier}
        found["pictures"] = compare(pictures(), ours, 1)
    if "csv" in given.only:
        found["csv"] = command(awkward, "sick", "clinic")
    if "large" in given.only:
        found["large"] = command(large, "y", "site")
    if "curves" in given.only:
        found["curves"] = curves(1)
    if "folder" in given.only:
        found["folder"] = folder(given.rows)
    if given.json:
        print(json.dumps(found, indent=1))
        return
    for name, part in found.items():
        print(f"{name}: {json.dumps(part, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
