"""Boosted trees with WRI's penalty beside plain boosting, LightGBM and linear models.

    python studies/boosting.py [--keep boosting.jsonl] [--data thresholds linear heart]
        [--first 0] [--seeds N] [--lines "WRI boosting" …] [--json]

    thresholds   four hospitals drawn by lot, causes that interact (1000 patients each)
    linear       the same with one linear cause (`wri.datasets.hospitals`)
    heart        heart disease (UCI), each hospital left out in turn; needs WRI_DATA

Each data set, line and seed is one part. A finished part is one line of JSON in the file, and only
missing parts are computed, so the command can be stopped and started again. A seed draws everything
anew: hospitals, patients, and the models' own draws; of heart disease 80 % of every training
hospital's patients. Settings were chosen on seeds from 1000 on (`--first 1000`). No rows are held
back for verdicts, so all models see the same ones.
"""

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lightgbm import LGBMClassifier

import wri
from wri.boosting import TreeSettings
from wri.datasets import ThresholdHospital, joined, load_heart, threshold_hospitals
from wri.datasets import hospitals as linear_hospitals
from wri.datasets.hospitals import drawn_hospitals
from wri.datasets.threshold_hospitals import TRAINING
from wri.paper.experiments.heart import measured, predicted, split
from wri.report.intervals import paired_interval, standard_error

ROWS, TESTED = 1000, 4000  # patients of a training hospital, and of a new one
OURS = {"validation_fraction": 0.0, "site_spread": False}
TREES = {**OURS, "compare_erm": False}
DEFAULT, FIXED, NETWORK = "WRI boosting, default", "WRI boosting, λ = 5", "WRI, network"
Parts = dict[str, tuple[np.ndarray, np.ndarray]]
"""Rows to be tested on, by what they are called."""


class Design(NamedTuple):
    """A data set, what is measured on it, and how often it is drawn."""

    title: str
    measures: str
    draws: str
    seeds: int


DATA = {
    "thresholds": Design("Causes that interact", "accuracy in %", "hospitals and patients", 20),
    "linear": Design("One linear cause", "accuracy in %", "hospitals and patients", 20),
    "heart": Design("Heart disease", "means over four hospitals left out", "patients", 10),
}


def lightgbm_like(growth: TreeSettings, seed: int) -> LGBMClassifier:
    """LightGBM's own classifier with the same growth."""
    return LGBMClassifier(
        n_estimators=growth.rounds,
        num_leaves=growth.leaves,
        min_child_samples=growth.least_rows,
        learning_rate=growth.learning_rate,
        reg_lambda=growth.l2,
        random_state=seed,
        n_jobs=1,
        verbosity=-1,
    )


MODELS: dict[str, Callable[[int, int], Any]] = {  # from a seed and the number of training rows
    DEFAULT: lambda seed, n: wri.WRIBoostingClassifier(random_state=seed, **TREES),
    FIXED: lambda seed, n: wri.WRIBoostingClassifier(
        random_state=seed, penalty_weight=5.0, **TREES
    ),
    "ERM boosting": lambda seed, n: wri.ERMBoostingClassifier(random_state=seed, **TREES),
    "LightGBM, same trees": lambda seed, n: lightgbm_like(TreeSettings().complete(n), seed),
    "LightGBM, its defaults": lambda seed, n: LGBMClassifier(
        random_state=seed, n_jobs=1, verbosity=-1
    ),
    "WRI, linear": lambda seed, n: wri.WRIClassifier(random_state=seed, **OURS),
    "ERM, linear": lambda seed, n: wri.ERMClassifier(random_state=seed, **OURS),
    NETWORK: lambda seed, n: wri.WRIClassifier(random_state=seed, hidden=(32, 16), **OURS),
}
"""Unfitted models by line; the network takes part only where causes interact."""


def drawn_threshold_hospitals(
    seed: int,
) -> tuple[tuple[ThresholdHospital, ...], ThresholdHospital, ThresholdHospital]:
    """Four training hospitals and two new ones, whose marker is reversed and unrelated.

    Means of causes lie between −1 and 1. Strengths of markers lie between 0 and 1.5 in training,
    and are negative or zero at the new hospitals.
    """
    random = np.random.default_rng([seed, 7])

    def draw(name: str, low: float, high: float) -> ThresholdHospital:
        causes = tuple(random.uniform(-1, 1, 3).tolist())
        return ThresholdHospital(name=name, causes=causes, marker=float(random.uniform(low, high)))

    training = tuple(draw(f"training {k}", 0.0, 1.5) for k in range(len(TRAINING)))
    unrelated, turned = draw("unrelated", 0.0, 0.0), draw("reversed", -1.5, 0.0)
    return training, turned, unrelated


def sample_hospitals(data: str, seed: int) -> tuple[Any, Parts]:
    """Rows of training hospitals, and of new ones."""
    bent = data == "thresholds"
    training, turned, unrelated = (drawn_threshold_hospitals if bent else _linear_ones)(seed)
    sample = threshold_hospitals if bent else linear_hospitals
    rows = joined(sample(ROWS, seed, training))
    others = joined(sample(ROWS, seed + 10**6, training))
    return rows, {
        "marker reversed": turned.sample(TESTED, seed + 10**6)[1:],
        "marker unrelated": unrelated.sample(TESTED, seed + 10**6)[1:],
        "same hospitals": (others.x, others.y),
        "training rows": (rows.x, rows.y),
    }


def _linear_ones(seed: int) -> Any:
    found = drawn_hospitals(seed)
    return found.training, found.reversed_marker, found.unrelated_marker


def measure(data: str, line: str, seed: int) -> tuple[dict[str, float], list[float]]:
    """Accuracy (%) by part; of heart disease means over hospitals. Also each λ that was chosen."""
    if data == "heart":
        return measure_heart(line, seed)
    rows, parts = sample_hospitals(data, seed)
    model = MODELS[line](seed, len(rows.y))
    sites = {} if isinstance(model, LGBMClassifier) else {"groups": rows.site}
    model.fit(rows.x, rows.y, **sites)
    found = {
        name: float(100 * np.mean(np.asarray(model.predict(x)) == y))
        for name, (x, y) in parts.items()
    }
    return found, chosen(line, model)


def measure_heart(line: str, seed: int) -> tuple[dict[str, float], list[float]]:
    table, found, weights = load_heart(), [], []
    for hospital in table["hospital"].unique().tolist():
        known, new = split(table, hospital, seed)
        model = MODELS[line](seed, len(known.y))
        found.append(measured(new.y, predicted(model, known, new, seed)))
        weights += chosen(line, model)
    return {what: float(np.mean([each[what] for each in found])) for what in found[0]}, weights


def chosen(line: str, model: Any) -> list[float]:
    """λ of a fitted model that chooses it."""
    return [float(model.hyper_["penalty_weight"])] if line == DEFAULT else []


def plan(data: list[str], lines: list[str], first: int, seeds: int | None) -> Iterator[Any]:
    """Data set, line and seed of each part."""
    for name in data:
        for seed in range(first, first + (seeds or DATA[name].seeds)):
            for line in lines:
                if line != NETWORK or name == "thresholds":
                    yield name, line, seed


def read(keep: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Finished parts; a line that was cut is none."""
    found = {}
    for text in keep.read_text().splitlines() if keep.exists() else []:
        try:
            part = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[part["data"], part["line"], part["seed"]] = part
    return found


def compute(parts: list[tuple[str, str, int]], keep: Path) -> dict[tuple[str, str, int], Any]:
    done = read(keep)
    for data, line, seed in parts:
        if (data, line, seed) in done:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of overlap, and of LightGBM about its own names
            measures, weights = measure(data, line, seed)
        part = {"data": data, "line": line, "seed": seed, "measures": measures, "λ": weights}
        with keep.open("a") as file:
            file.write(json.dumps(part) + "\n")
        done[data, line, seed] = part
    return {part: done[part] for part in parts}


def print_tables(done: dict[tuple[str, str, int], Any]) -> None:
    """Markdown: mean ± standard error over the seeds, and the default against every line."""
    for data in dict.fromkeys(data for data, _, _ in done):
        own = {key: part for key, part in done.items() if key[0] == data}
        seeds = sorted({seed for _, _, seed in own})
        values = {
            line: {
                what: np.array([own[data, line, seed]["measures"][what] for seed in seeds])
                for what in next(iter(own.values()))["measures"]
            }
            for line in dict.fromkeys(line for _, line, _ in own)
        }
        columns = list(next(iter(values.values())))
        title, measures, draws, _ = DATA[data]
        over = f"over {len(seeds)} draws of {draws} (seeds {seeds[0]} to {seeds[-1]})"
        print(f"*{title}: {measures}, ± standard error {over}*\n")
        print_table(
            [title, *columns],
            [[line, *(show(row[what]) for what in columns)] for line, row in values.items()],
        )
        if DEFAULT in values and len(seeds) > 1:
            print(f"*{title}, differences with 95 % intervals, paired by draw, {over}*\n")
            print_table(
                ["the default minus", *columns],
                [
                    [line, *(show_difference(values[DEFAULT][k], row[k]) for k in columns)]
                    for line, row in values.items()
                    if line != DEFAULT
                ],
            )
    print_chosen(done)


def print_chosen(done: dict[tuple[str, str, int], Any]) -> None:
    """How often the default chose each λ."""
    counts = {
        data: Counter(
            weight for key, part in done.items() if key[0] == data for weight in part["λ"]
        )
        for data in dict.fromkeys(data for data, _, _ in done)
    }
    weights = sorted({weight for each in counts.values() for weight in each})
    print("*λ that the default chose, in number of fits*\n")
    print_table(
        ["", *(f"λ = {weight:g}" for weight in weights)],
        [[DATA[k].title, *(str(each[w]) for w in weights)] for k, each in counts.items()],
    )


def print_table(head: list[str], rows: list[list[str]]) -> None:
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |")
    print()


def show(values: np.ndarray) -> str:
    digits = digits_of(values)
    error = standard_error(values)
    spread = "" if error is None else f" ± {error:.{digits}f}"
    return f"{values.mean():.{digits}f}{spread}"


def show_difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    return paired_interval([ours], [theirs]).describe(digits_of(ours)).replace("-", "−")


def digits_of(values: np.ndarray) -> int:
    """Digits that are shown: accuracies are in per cent."""
    return 1 if values.mean() > 1.5 else 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, default=Path("boosting.jsonl"))
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, help="number of seeds; by default that of the data")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--lines", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    done = compute(list(plan(given.data, given.lines, given.first, given.seeds)), given.keep)
    if given.json:
        print(json.dumps(list(done.values())))
        return
    print_tables(done)


if __name__ == "__main__":
    main()
