"""A whole sweep against a process a run: wall time per run, and peak memory.

Synthetic features of 64 dimensions, 4 environments × 2000 rows, 7 classes, DomainBed's preset:
every algorithm × 4 held-out environments × 10 draws × 5 trials of 500 steps, accuracy of all eight
splits every 10 steps, by `wri sweep` into one store. The rival is (a) of `stack_vs_loop.py`: a
process a run with `DataLoader`s, on a few of the same draws. Process starts count on both sides.
With `--backend ray` stacks train in processes instead of threads.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    known = list(single_runs.ALGORITHMS)
    parser.add_argument("--algorithms", nargs="+", default=known, choices=known)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--backend", default="local", choices=["local", "ray"])
    parser.add_argument("--usual", type=int, default=2, help="single usual runs")
    options = parser.parse_args()
    data = single_runs.make_data()
    result: dict = {"seconds_per_run": {}, "usual": {}, "ratios": {}}
    with tempfile.TemporaryDirectory() as folder:
        file, store = Path(folder) / "features.npz", Path(folder) / "sweep.db"
        site = np.repeat([f"site {e}" for e in range(ENVIRONMENTS)], ROWS)
        np.savez(file, x=data["x"], y=data["y"], site=site)
        for name in options.algorithms:
            sizes = {"--draws": options.draws, "--trials": options.trials, "--steps": options.steps}
            columns = ["--data", str(file), "--target", "y", "--env", "site"]
            command = [sys.executable, "-m", "wri.cli", "sweep", *columns]
            command += ["--algorithms", name, "--store", str(store), "--json"]
            command += ["--preset", "domainbed", "--record", "accuracy"]
            command += ["--backend", options.backend]
            command += [str(part) for pair in sizes.items() for part in pair]
            start = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            wall, trained = time.perf_counter() - start, json.loads(done.stdout)["trained"]
            result["seconds_per_run"][name] = wall / trained
            draws = [
                draw(OBJECTIVES[name], n, trial)
                for n in range(options.draws)
                for trial in range(options.trials)
            ]
            walls = [
                child("single_runs.py", name, json.dumps(hyper), str(options.steps))[0]
                for hyper in spread_over_work(draws, options.usual)
            ]
            result["usual"][name] = float(np.mean(walls))
            result["ratios"][name] = result["usual"][name] / result["seconds_per_run"][name]
            print(name, trained, {k: round(v[name], 2) for k, v in result.items()}, file=sys.stderr)
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps(result) if options.json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
