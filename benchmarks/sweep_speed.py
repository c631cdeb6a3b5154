"""Whole sweeps: beside one process per run, and on Ray beside threads.

Synthetic features of 64 dimensions, 4 environments × 2000 rows, 7 classes, DomainBed's preset:
every algorithm × 4 held-out environments × draws × trials, accuracy of all eight splits every 10
steps, by `wri sweep` into one store. The rival is (a) of `stack_vs_loop.py`: a process per run with
`DataLoader`s, on a few of the same draws. Process starts count on both sides.

    python benchmarks/sweep_speed.py
    python benchmarks/sweep_speed.py --backends local ray --algorithms erm wri --steps 100

With `--backends` all algorithms are one sweep, which every back end trains anew, in turn.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import single_runs
from single_runs import ENVIRONMENTS, ROWS
from stack_vs_loop import child, spread_over_work
from wri.objectives import OBJECTIVES
from wri.sweep import draw

Seconds = dict[str, list[float]]


def run_sweep(file: Path, names: list[str], options: argparse.Namespace, *more: str) -> dict:
    """Train a sweep: its seconds, start included, and what the command said."""
    sizes = {"--draws": options.draws, "--trials": options.trials, "--steps": options.steps}
    command = [sys.executable, "-m", "wri.cli", "sweep", "--data", str(file), "--json"]
    command += ["--target", "y", "--env", "site", "--algorithms", *names, *more]
    command += ["--preset", "domainbed", "--record", "accuracy"]
    command += [str(part) for pair in sizes.items() for part in pair]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"seconds": time.perf_counter() - start, **json.loads(done.stdout)}


def compare_with_processes(file: Path, options: argparse.Namespace) -> dict:
    """Seconds per run of every algorithm, in a sweep and in processes of its own."""
    result: dict = {"seconds_per_run": {}, "usual": {}, "ratios": {}, "walls": {}}
    store = str(file.parent / "sweep.db")
    for name in options.algorithms:
        done = run_sweep(file, [name], options, "--store", store)
        draws = [
            draw(OBJECTIVES[name], n, trial)
            for n in range(options.draws)
            for trial in range(options.trials)
        ]
        walls = [
            child("single_runs.py", name, json.dumps(hyper), str(options.steps))[0][0]
            for hyper in spread_over_work(draws, options.usual)
        ]
        own = {"seconds_per_run": done["seconds"] / done["trained"], "usual": float(np.mean(walls))}
        own |= {"ratios": own["usual"] / own["seconds_per_run"], "walls": walls}
        for key, value in own.items():
            result[key][name] = value
        print(name, done["trained"], own, file=sys.stderr)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return result


def show_comparison(result: dict, options: argparse.Namespace) -> None:
    runs = options.draws * options.trials * ENVIRONMENTS
    print(f"*Seconds per run: {runs} runs of {options.steps} steps per algorithm, ", end="")
    print(f"mean (range) of {options.usual} usual runs*\n")
    print("| algorithm | one process per run | sweep | ratio |\n|---|---|---|---|")
    for name, walls in result["walls"].items():
        usual = f"{result['usual'][name]:.1f} ({min(walls):.1f}–{max(walls):.1f})"
        sweep, ratio = result["seconds_per_run"][name], result["ratios"][name]
        print(f"| {OBJECTIVES[name].__name__} | {usual} | {sweep:.2f} | {ratio:.1f} |")
    print(f"\nThe largest process took {result['peak_mb'] / 1000:.1f} GB.")


def compare_backends(file: Path, options: argparse.Namespace) -> Seconds:
    found: Seconds = {name: [] for name in options.backends}
    for place in range(options.repeat):
        for name, own in found.items():
            store = ["--store", str(file.parent / f"{name}-{place}.db"), "--backend", name]
            own.append(run_sweep(file, options.algorithms, options, *store)["seconds"])
            print(name, own, file=sys.stderr)
    return found


def show_backends(found: Seconds, options: argparse.Namespace) -> None:
    runs = options.draws * options.trials * ENVIRONMENTS
    labels = " and ".join(f"{runs} of {OBJECTIVES[name].__name__}" for name in options.algorithms)
    print(f"*Back ends, seconds of a sweep of {labels}, {options.steps} steps: ", end="")
    print(f"median (range) of {options.repeat} sweeps*\n")
    print("| back end | seconds of the command |\n|---|---|")
    for name, own in found.items():
        print(f"| {name} | {np.median(own):.1f} ({min(own):.1f}–{max(own):.1f}) |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    known = [name for name in single_runs.ALGORITHMS if name in OBJECTIVES]
    parser.add_argument("--algorithms", nargs="+", default=known, choices=known)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--usual", type=int, default=2, help="single usual runs")
    parser.add_argument("--backends", nargs="+", choices=["local", "ray"], help="compare these")
    parser.add_argument("--repeat", type=int, default=3, help="sweeps of each back end")
    options = parser.parse_args()
    compare, show = compare_with_processes, show_comparison
    if options.backends:
        compare, show = compare_backends, show_backends
    with tempfile.TemporaryDirectory() as folder:
        file, data = Path(folder) / "features.npz", single_runs.make_data()
        site = np.repeat([f"site {e}" for e in range(ENVIRONMENTS)], ROWS)
        np.savez(file, x=data["x"], y=data["y"], site=site)
        result = compare(file, options)
    if options.json:
        print(json.dumps(result))
    else:
        show(result, options)


if __name__ == "__main__":
    main()
