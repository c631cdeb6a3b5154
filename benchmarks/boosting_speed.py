"""What the penalty of boosted trees costs: WRI's trees against plain LightGBM with the same trees.

    python benchmarks/boosting_speed.py [--rows 100000] [--columns 50] [--environments 8]
        [--rounds 20] [--repetitions 3] [--json]

All grow the same number of rounds, leaves and rows per leaf, in one process with one thread. WRI's
have a forest on each half of the rows and, in every round, the weight of each row from all pairs of
environments. Times are processor time, which other work on the machine hardly changes. "per round"
is the mean of the second half of the rounds, where the penalty has its full weight.
"""

import argparse
import json
from time import process_time

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


def time_rounds(run: list[float]) -> float:
    """Mean time between rounds in the second half."""
    late = np.diff(run[len(run) // 2 :])
    return float(np.mean(late))


def time_ours(rows: WeightedRows, settings: TreeSettings, objective: str) -> dict[str, float]:
    """Seconds before the first round, per late round, and in all."""
    spec = TreeSpec.grown(objective, settings)
    spec = spec.complete(rows.features.shape[1], len(rows.targets), len(rows.targets))
    halves = None if objective == "erm" else np.arange(len(rows.targets)) % 2
    times = [process_time()]
    grow(
        rows.features,
        rows,
        spec.objective,
        spec.hyper,
        settings,
        halves=halves,
        progress=lambda done, total: times.append(process_time()),
    )
    end = process_time()
    return {
        "start": times[1] - times[0],
        "round": time_rounds(times),
        "all": end - times[0],
    }


def time_lightgbm(rows: WeightedRows, settings: TreeSettings) -> dict[str, float]:
    """The same of LightGBM's own logistic objective."""
    times = [process_time()]
    parameters = {**settings.parameters(0), "objective": "binary"}
    data = lightgbm.Dataset(rows.features, rows.targets)
    lightgbm.train(
        parameters,
        data,
        settings.rounds,
        callbacks=[lambda environment: times.append(process_time())],
    )
    return {
        "start": times[1] - times[0],
        "round": time_rounds(times),
        "all": process_time() - times[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = TreeSettings(rounds=given.rounds).complete(given.rows)
    rows = make_rows(given.rows, given.columns, given.environments, 0)
    time_lightgbm(rows, TreeSettings(rounds=2, least_rows=20))  # first use of its threads
    found: dict[str, list[dict[str, float]]] = {
        "LightGBM": [],
        "ERM boosting": [],
        "WRI boosting": [],
    }
    for _ in range(given.repetitions):  # in turn, so that a slow minute meets all of them
        found["LightGBM"].append(time_lightgbm(rows, settings))
        found["ERM boosting"].append(time_ours(rows, settings, "erm"))
        found["WRI boosting"].append(time_ours(rows, settings, "wri"))
    if given.json:
        print(json.dumps({"seconds": found, **vars(given)}))
        return
    print(
        f"*Processor time of {given.rounds} rounds, {given.rows:,} rows, {given.columns} columns, "
        f"{given.environments} environments, one thread; median of {given.repetitions} "
        "repetitions, and the range of ratios to LightGBM*\n"
    )
    print("| | ms per round | to LightGBM | s in all | to LightGBM |\n|---|---|---|---|---|")
    for name, own in found.items():
        cells = []
        for what, factor, digits in (("round", 1000, 0), ("all", 1, 1)):
            times = np.array([each[what] for each in own])
            ratios = times / [each[what] for each in found["LightGBM"]]
            cells.append(f"{factor * np.median(times):.{digits}f}")
            cells.append(f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})")
        print(f"| {name} | {' | '.join(cells)} |".replace("1.00 (1.00 to 1.00)", "1"))


if __name__ == "__main__":
    main()
