"""Cost of linear fits beside scikit-learn's LogisticRegression, in one run.

    python benchmarks/linear_speed.py [--only small middle pictures csv large] [--json]
    python benchmarks/linear_speed.py --only folder [--rows 2500000 10000000]

CPU time in one thread, the least of several repetitions; a ratio is the median over repetitions of
the time beside that of LogisticRegression just before it. Tables are those of
`studies/insured_sites.py` with more columns of noise. "csv" and "large" are whole calls of `wri
fit` with default options, in processes of their own, with seconds by the clock and the largest
memory. "curves" multiplies rows, columns and sites and gives the slope of the logarithm of the
time. "folder" is a table of 20 columns and 8 sites in Parquet files, fitted with `--fast`, in one
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
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import wri
from printed_table import print_table

sys.path.append(str(Path(__file__).parents[1] / "studies"))
from insured_sites import Design, sample_table

PARTS = ("small", "middle", "pictures", "csv", "large", "curves", "folder")
SIZE = "rows × columns × sites"
MEASURED = ("CPU s", "s by the clock", "GB, largest process")
CALLS = 3  # of a command, and fits of a point of a curve
ROWS_PER_FILE = 500_000
BARS = {  # ratios to LogisticRegression, or CPU seconds, or seconds by the clock and memory
    "small": ("15", "40", "150"),
    "middle": ("", "60", ""),
    "pictures": ("5 CPU s",),
    "csv": "8 CPU s",
    "large": "25 s by the clock, 1.2 GB",
}
COMMANDS = {
    "csv": "2,550 × 11 × 5, categories and missing cells",
    "large": "100,000 × 50 × 8, numbers",
}
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
        SIZE: f"{len(x):,} × {x.shape[1]} × {len(np.unique(site))}",
        "seconds": {name: min(each) for name, each in seconds.items()},
        "ratio": {name: float(np.median(each[1:])) for name, each in ratios.items()},
        "ratios": {name: each[1:] for name, each in ratios.items()},
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


def command(make: Callable[[Path], None], target: str, env: str) -> list[dict[str, float]]:
    """Costs of `wri fit` with default options on a file that is made for it."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place) / "rows.csv"
        make(rows)
        return [run_fit(rows, target, env) for _ in range(CALLS)]


def processes_below(first: int) -> Iterator[tuple[int, float, float]]:
    """A process and those that it started, each with its CPU seconds and peak of memory in GB."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            words = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(words[1])
            seconds[pid] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    below = {first}
    for _ in parents:
        more = {pid for pid, parent in parents.items() if parent in below} | below
        if more == below:
            break
        below = more
    for pid in below & {*parents}:
        with suppress(OSError, StopIteration):
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
            yield pid, seconds[pid], int(peak) / 2**20


def run_fit(rows: Path, target: str, env: str, *more: str) -> dict[str, float]:
    """Clock and CPU seconds of `wri fit`, and the memory of its largest process."""
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        arguments = ["fit", str(rows), "--target", target, "--env", env, "-o", model, *more]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
        called = subprocess.Popen(
            [sys.executable, "-m", "wri.cli", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "2" if "ray" in more else "1"},  # workers
        )
        seen: dict[int, tuple[float, float]] = {}
        while called.poll() is None:
            seen |= {pid: (cpu, peak) for pid, cpu, peak in processes_below(called.pid)}
            time.sleep(0.3)
        spent, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if called.returncode:
        sys.exit(f"wri {' '.join(arguments)} ended with {called.returncode}")
    waited_for = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cpu, memory = np.array([*seen.values()]).T
    values = max(waited_for, float(cpu.sum())), spent, float(memory.max())  # nobody waits for Ray's
    return dict(zip(MEASURED, values, strict=True))


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
            tell(f"written: {first + count:,} rows")
        found: dict[str, Any] = {}
        for backend in ("local", "ray"):
            found[backend] = run_fit(parts, "y", "site", "--fast", "--backend", backend)
            tell(f"{backend}: {found[backend]}")
        size = sum(path.stat().st_size for path in parts.iterdir()) / 1e9
        return found | {"files": f"{len([*parts.iterdir()])}, {size:.2f} GB"}


def tell(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)


def large(path: Path) -> None:
    x, y, site = table(100_000, 50, 8)
    names = [f"c{k}" for k in range(x.shape[1])]
    frame = pd.DataFrame(x.round(6), columns=names)
    frame.assign(y=y, site=[f"s{e}" for e in site]).to_csv(path, index=False)


def curves() -> dict[str, Any]:
    """CPU seconds of WRI against rows, columns and sites, with slopes of the logarithms."""
    grids = {
        "Rows": [(n, 10, 4) for n in (4_000, 16_000, 64_000, 256_000, 1_000_000)],
        "Columns": [(8_000, d, 4) for d in (8, 16, 32, 64, 128)],
        "Sites": [(16_000, 10, e) for e in (4, 8, 16, 32, 64)],
    }
    found: dict[str, Any] = {}
    for place, (name, grid) in enumerate(grids.items()):
        spent = []
        for size in grid:
            x, y, site = table(*size)
            fit = partial(wri.WRIClassifier().fit, x, y, groups=site)
            spent.append([cost(fit) for _ in range(CALLS)])
            tell(f"{name} {size}: {spent[-1]} s")
        sizes, least = [size[place] for size in grid], [min(own) for own in spent]
        at, seconds = np.log(sizes), np.log(least)
        found[name] = {
            "seconds": dict(zip(sizes, least, strict=True)),
            "all": spent,
            "slope": float(np.polyfit(at, seconds, 1)[0]),
            "slope at last": float(np.polyfit(at[2:], seconds[2:], 1)[0]),
        }
    return found


def print_ratios(parts: dict[str, dict[str, Any]]) -> None:
    lines = []
    for name, part in parts.items():
        for (fit, ratios), bar in zip(part["ratios"].items(), BARS[name], strict=True):
            seconds, count = f"{part['seconds'][fit]:.2g}", str(len(ratios))
            lines.append([part[SIZE], fit, seconds, show(ratios), count, bar])
    print_table(
        "Linear fits: CPU seconds in one thread, least of all repetitions, and ratio to "
        "LogisticRegression just before, median and range; seed 0",
        [SIZE, "fit", "CPU s", "ratio", "repetitions", "bar"],
        lines,
    )


def print_commands(parts: dict[str, list[dict[str, float]]]) -> None:
    lines = []
    for name, calls in parts.items():
        cells = [show([call[what] for call in calls]) for what in MEASURED]
        lines.append([COMMANDS[name], *cells, str(len(calls)), BARS[name]])
    title = "`wri fit` of a CSV with default options, processes of their own: median and range"
    print_table(title, [SIZE, *MEASURED, "calls", "bar"], lines)


def show(values: list[float]) -> str:
    spread = f" ({min(values):.3g} to {max(values):.3g})" if len(values) > 1 else ""
    return f"{np.median(values):.3g}{spread}"


def print_curves(parts: dict[str, dict[str, Any]]) -> None:
    others = ("10 columns, 4 sites", "8,000 rows, 4 sites", "16,000 rows, 10 columns")
    for (name, part), other in zip(parts.items(), others, strict=True):
        least, largest = ([f"{each(own):.2g}" for own in part["all"]] for each in (min, max))
        print_table(
            f"{name}: CPU seconds of `WRIClassifier().fit` of {other}, {CALLS} fits per size",
            [name.lower(), *(f"{n:,}" for n in part["seconds"]), "slope", "from the third on"],
            [
                ["least", *least, f"{part['slope']:.2f}", f"{part['slope at last']:.2f}"],
                ["largest", *largest, "", ""],
            ],
        )


def print_folders(parts: dict[int, dict[str, Any]]) -> None:
    places = {"local": "one process", "ray": "two workers of Ray"}
    print_table(
        "Tables in files: `wri fit --fast` of 20 columns × 8 sites, ERM and WRI, one call each",
        ["rows", "files", "where", *MEASURED],
        [
            [f"{rows:,}", part["files"], place, *(f"{part[name][own]:.3g}" for own in MEASURED)]
            for rows, part in parts.items()
            for name, place in places.items()
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:4])
    parser.add_argument("--repeat", type=int, default=5, help="of fits in this process")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000], help="of folders")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ours = {
        "`ERMClassifier()`": wri.ERMClassifier,
        "`WRIClassifier()`": wri.WRIClassifier,
        "WRI, 10 λ, every site left out": along_path,
    }
    found: dict[str, Any] = {}
    if "small" in given.only:
        found["small"] = compare(table(1_200, 6, 4), ours, given.repeat)
    if "middle" in given.only:
        found["middle"] = compare(table(16_000, 24, 8), ours, given.repeat)
    if "pictures" in given.only:
        ours = {"`WRIClassifier()`": wri.WRIClassifier}
        found["pictures"] = compare(pictures(), ours, 1)
    ratios = [*found]
    if "csv" in given.only:
        found["csv"] = command(awkward, "sick", "clinic")
    if "large" in given.only:
        found["large"] = command(large, "y", "site")
    commands = found.keys() - ratios
    if "curves" in given.only:
        found["curves"] = curves()
    if "folder" in given.only:
        found["folder"] = {rows: folder(rows) for rows in given.rows}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    if ratios:
        print_ratios({name: found[name] for name in ratios})
    if commands:
        print_commands({name: found[name] for name in COMMANDS if name in commands})
    if "curves" in found:
        print_curves(found["curves"])
    if "folder" in found:
        print_folders(found["folder"])


if __name__ == "__main__":
    main()
