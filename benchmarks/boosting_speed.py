"""What the penalty of boosted trees costs: WRI's trees against plain LightGBM with the same trees.

    python benchmarks/boosting_speed.py [--rows 100000] [--columns 50] [--environments 8] [--json]

Both grow the same number of rounds, leaves and rows per leaf, in one process with one thread. WRI's
have a forest on each half of the rows and, in every round, the weight of each row from all pairs of
environments. Times are means of a round after the penalty has come into force; the ratio is what
counts, the seconds are this machine's.
"""

import argparse
import json
from time import perf_counter

import lightgbm
import numpy as np

from wri.boosting import TreeSettings, TreeSpec, WeightedRows, grow
from wri.stacked import LOGISTIC


def make_rows(rows: int, columns: int, environments: int, seed: int) -> WeightedRows:
    """Environments whose first columns shift and whose second column follows the class."""
    random = np.random.default_rng(seed)
    environment = np.arange(rows) * environments // rows
    x = random.normal(size=(rows, columns))
    x[:, 0] += environment / environments
    y = (random.random(rows) < 1 / (1 + np.exp(-2 * x[:, 0] * x[:, 2]))).astype(int)
    x[:, 1] += (2 * y - 1) * (0.3 + environment / environments)
    return WeightedRows(
        features=x, targets=y, environment=environment, loss=LOGISTIC, weights=np.ones(rows)
    )


def time_rounds(run: "list[float]") -> float:
    """Mean time between rounds in the second half."""
    late = np.diff(run[len(run) // 2 :])
    return float(np.mean(late))


def time_ours(rows: WeightedRows, settings: TreeSettings, objective: str) -> dict[str, float]:
    """Seconds before the first round, per late round, and in all."""
    spec = TreeSpec.grown(objective, settings)
    spec = spec.complete(rows.features.shape[1], len(rows.targets), len(rows.targets))
    halves = None if objective == "erm" else np.arange(len(rows.targets)) % 2
    times = [perf_counter()]
    grow(
        rows.features,
        rows,
        spec.objective,
        spec.hyper,
        settings,
        halves=halves,
        progress=lambda done, total: times.append(perf_counter()),
    )
    end = perf_counter()
    return {
        "start": times[1] - times[0],
        "round": time_rounds(times),
        "all": end - times[0],
    }


def time_lightgbm(rows: WeightedRows, settings: TreeSettings) -> dict[str, float]:
    """The same of LightGBM's own logistic objective."""
    times = [perf_counter()]
    parameters = {**settings.parameters(0), "objective": "binary"}
    data = lightgbm.Dataset(rows.features, rows.targets)
    lightgbm.train(
        parameters,
        data,
        settings.rounds,
        callbacks=[lambda environment: times.append(perf_counter())],
    )
    return {
        "start": times[1] - times[0],
        "round": time_rounds(times),
        "all": perf_counter() - times[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--leaves", type=int, default=TreeSettings().leaves)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = TreeSettings(rounds=given.rounds, leaves=given.leaves).complete(given.rows)
    rows = make_rows(given.rows, given.columns, given.environments, 0)
    time_lightgbm(rows, TreeSettings(rounds=2, least_rows=20))  # first use of its threads
    found = {
        "LightGBM": time_lightgbm(rows, settings),
        "ERM boosting": time_ours(rows, settings, "erm"),
        "WRI boosting": time_ours(rows, settings, "wri"),
    }
    plain = found["LightGBM"]
    ratios = {
        name: {what: own[what] / plain[what] for what in ("round", "all")}
        for name, own in found.items()
    }
    if given.json:
        print(json.dumps({"seconds": found, "ratios": ratios, **vars(given)}))
        return
    for name, own in found.items():
        print(
            f"{name:13} {1000 * own['round']:7.1f} ms per round ({ratios[name]['round']:.2f}×), "
            f"{own['all']:6.2f} s in all ({ratios[name]['all']:.2f}×)"
        )


if __name__ == "__main__":
    main()
