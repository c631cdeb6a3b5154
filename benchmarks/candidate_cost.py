"""What choosing costs: a plain fit of WRI, two candidates, and "auto", beside each other.

    python benchmarks/candidate_cost.py [--sites 12] [--rows 1000] [--columns 10] [--n-jobs 1]

Simulated hospitals; seconds and seconds of CPU time of one `fit` each, after a warm-up.
"""

import argparse
from time import perf_counter, process_time
from typing import Any

import numpy as np

import wri
from wri.datasets import joined
from wri.datasets.hospitals import Hospital, hospitals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=12)
    parser.add_argument("--rows", type=int, default=1000, help="of each site")
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--n-jobs", type=int, help="stacks at a time")
    given = parser.parse_args()
    random = np.random.default_rng(0)
    sites = [
        Hospital(f"site {k}", random.uniform(-1.5, 1.5), random.uniform(0, 1.5))
        for k in range(given.sites)
    ]
    x, y, site = joined(hospitals(given.rows, 0, sites, given.columns - 2))
    wri.WRIClassifier(steps=5).fit(x[:100], y[:100], groups=np.arange(100) % 3)
    candidates = [{"penalty_weight": 0.0}, {"penalty_weight": 3.0}]
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "two candidates in λ": {"candidates": candidates},
        "two candidates in weight decay": {
            "candidates": [{"weight_decay": 1e-3}, {"weight_decay": 1e-2}]
        },
        "auto": {"penalty_weight": "auto"},
    }
    for name, options in ways.items():
        start, cpu = perf_counter(), process_time()
        wri.WRIClassifier(n_jobs=given.n_jobs, **options).fit(x, y, groups=site)
        print(f"{name}: {perf_counter() - start:.1f} s, {process_time() - cpu:.1f} s of CPU time")


if __name__ == "__main__":
    main()
