"""Where invariant boosted trees pay: simulated hospitals, heart disease, the paper's simulation.

    python studies/boosting.py --keep boosting.jsonl [--seeds 10] [--data thresholds heart …]
        [--packages FOLDER] [--table]

Each data set, line and seed is one part. A finished part is one line of JSON in the file, and only
missing parts are computed, so the command can be stopped and started again. --table prints what is
there. A seed draws everything anew: hospitals where they are drawn, patients, and the models' own
draws; of heart disease 80 % of every training hospital's patients. Settings were chosen on seeds
from 1000 on (`--first 1000`).

    thresholds          four fixed hospitals, causes that act together (1000 patients each)
    thresholds, drawn   the same with hospitals drawn by lot
    linear              `wri.datasets.hospitals`, one linear cause
    linear, drawn       the same with hospitals drawn by lot
    simulation          appendix E.2 of the paper, parity 90°, 5 classes (1000 rows each)
    heart               heart disease (UCI), each hospital left out in turn; log-loss

No rows are held back for verdicts, so all models see the same ones. anchorboosting, which is no
requirement of wri, is looked for among the installed packages and in FOLDER:

    pip install --target FOLDER --no-deps anchorboosting==0.4.0
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier

import wri
from wri.boosting import TreeSettings
from wri.datasets import (
    Simulation,
    SimulationSetting,
    ThresholdHospital,
    joined,
    load_heart,
    threshold_hospitals,
)
from wri.datasets import hospitals as linear
from wri.datasets.hospitals import REVERSED, TRAINING, UNRELATED, drawn_hospitals
from wri.datasets.threshold_hospitals import (
    REVERSED as THRESHOLD_REVERSED,
)
from wri.datasets.threshold_hospitals import (
    TRAINING as THRESHOLD_TRAINING,
)
from wri.datasets.threshold_hospitals import (
    UNRELATED as THRESHOLD_UNRELATED,
)
from wri.paper.experiments.heart import measured, predicted, split
from wri.report.intervals import paired_interval

ROWS, TESTED = 1000, 4000  # patients of a training hospital, and of a new one
GAMMA = 10.0  # of anchorboosting
SIMULATION = SimulationSetting(invariant_shift=0.15, parity=90.0)
OURS = {"validation_fraction": 0.0, "site_spread": False}
TREES = {**OURS, "compare_erm": False}
Parts = dict[str, tuple[np.ndarray, np.ndarray]]
"""Rows to be tested on, by what they are called."""


class Anchored:
    """anchorboosting's trees with the same growth; environments are its anchors."""

    def __init__(self, growth: TreeSettings) -> None:
        self._growth = growth

    def fit(self, x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> "Anchored":
        anchors = (groups[:, None] == np.unique(groups)).astype(float)
        booster = import_module("anchorboosting").AnchorBooster(
            GAMMA,
            num_boost_round=self._growth.rounds,
            objective="binary",
            learning_rate=self._growth.learning_rate,
            num_leaves=self._growth.leaves,
            min_data_in_leaf=self._growth.least_rows,
            min_gain_to_split=0.1,
            verbosity=-1,
            num_threads=1,
        )
        self.booster = booster.fit(x, y.astype(float), Z=anchors)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        score = self.booster.predict(x, raw_score=True)
        sick = norm.cdf(score)
        return np.column_stack([1 - sick, sick])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.predict_proba(x).argmax(1)


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


def make_models(growth: TreeSettings) -> dict[str, Callable[[int], Any]]:
    """Unfitted models by line, from a seed."""
    boosted = {name: getattr(wri, f"{name}BoostingClassifier") for name in ("ERM", "VREx", "WRI")}
    return {
        "LightGBM, same trees": lambda seed: lightgbm_like(growth, seed),
        "LightGBM, defaults": lambda seed: LGBMClassifier(
            random_state=seed, n_jobs=1, verbosity=-1
        ),
        "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
        "anchorboosting": lambda seed: Anchored(growth),
        "ERM, linear": lambda seed: wri.ERMClassifier(random_state=seed, **OURS),
        "WRI, linear": lambda seed: wri.WRIClassifier(random_state=seed, **OURS),
        "WRI, network": lambda seed: wri.WRIClassifier(
            random_state=seed, penalty_weight=3.0, hidden=(32, 16), **OURS
        ),
        "ERM boosting": lambda seed: boosted["ERM"](random_state=seed, **TREES),
        "VREx boosting": lambda seed: boosted["VREx"](random_state=seed, **TREES),
        "WRI boosting": lambda seed: boosted["WRI"](random_state=seed, **TREES),
        "WRI boosting, λ = 1": lambda seed: boosted["WRI"](
            random_state=seed, penalty_weight=1.0, **TREES
        ),
        "WRI boosting, λ = 5": lambda seed: boosted["WRI"](
            random_state=seed, penalty_weight=5.0, **TREES
        ),
    }


def growth_for(rows: int) -> TreeSettings:
    """How the estimators' trees grow by default on so many rows."""
    return TreeSettings().complete(rows)


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

    training = tuple(draw(f"training {k}", 0.0, 1.5) for k in range(len(THRESHOLD_TRAINING)))
    unrelated, turned = draw("unrelated", 0.0, 0.0), draw("reversed", -1.5, 0.0)
    return training, turned, unrelated


def sample_hospitals(data: str, seed: int) -> tuple[Any, Parts]:
    """Rows of training hospitals, and of new ones."""
    bent, drawn = data.startswith("thresholds"), data.endswith("drawn")
    if drawn:
        found = drawn_threshold_hospitals(seed) if bent else drawn_hospitals(seed)
        training, turned, unrelated = found
    elif bent:
        training, turned, unrelated = THRESHOLD_TRAINING, THRESHOLD_REVERSED, THRESHOLD_UNRELATED
    else:
        training, turned, unrelated = TRAINING, REVERSED, UNRELATED
    sample = threshold_hospitals if bent else linear
    rows = joined(sample(ROWS, seed, training))
    others = joined(sample(ROWS, seed + 10**6, training))
    return rows, {
        "reversed": turned.sample(TESTED, seed + 10**6)[1:],
        "unrelated": unrelated.sample(TESTED, seed + 10**6)[1:],
        "training rows": (rows.x, rows.y),
        "same hospitals": (others.x, others.y),
    }


def sample_simulation(seed: int) -> tuple[Any, Parts]:
    """Rows of the paper's simulation; its last environment is the test."""
    *training, test = Simulation.balanced(SIMULATION, ROWS, seed)[1]
    rows = joined(training)
    return rows, {"test environment": test[1:], "training rows": (rows.x, rows.y)}


def fit(model: Any, rows: Any) -> Any:
    """Fit with environments where a model knows what they are."""
    if isinstance(model, LGBMClassifier | HistGradientBoostingClassifier):
        return model.fit(rows.x, rows.y)
    return model.fit(rows.x, rows.y, groups=rows.site)


def measure(data: str, line: str, seed: int) -> dict[str, float]:
    """Accuracy (%) by part; of heart disease log-loss by hospital."""
    if data == "heart":
        return measure_heart(line, seed)
    rows, parts = sample_simulation(seed) if data == "simulation" else sample_hospitals(data, seed)
    model = fit(make_models(growth_for(len(rows.y)))[line](seed), rows)
    return {
        name: float(100 * np.mean(np.asarray(model.predict(x)) == y))
        for name, (x, y) in parts.items()
    }


def measure_heart(line: str, seed: int) -> dict[str, float]:
    table = load_heart()
    found = {}
    for hospital in table["hospital"].unique().tolist():
        known, new = split(table, hospital, seed)
        model = make_models(growth_for(len(known.y)))[line](seed)
        if line == "anchorboosting":
            chance = model.fit(known.x, known.y, known.site).predict_proba(new.x)[:, 1]
        else:
            chance = predicted(model, known, new, seed)
        found |= {f"{what}, {hospital}": v for what, v in measured(new.y, chance).items()}
    return found


DATA = (
    "thresholds",
    "thresholds, drawn",
    "linear",
    "linear, drawn",
    "simulation",
    "heart",
)


def can_run(data: str, line: str) -> bool:
    """Whether a line can take a data set: anchorboosting knows two classes."""
    if line != "anchorboosting":
        return True
    try:
        import_module("anchorboosting")
    except ImportError:
        return False
    return data != "simulation"


def plan(data: list[str], lines: list[str] | None, seeds: range) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for name in data:
            for line in lines or make_models(TreeSettings()):
                if can_run(name, line):
                    yield name, line, seed


def read(keep: Path) -> dict[tuple[str, str, int], dict[str, float]]:
    """Finished parts; a line that was cut is none."""
    found = {}
    for text in keep.read_text().splitlines() if keep.exists() else []:
        try:
            part = json.loads(text)
        except json.JSONDecodeError:
            continue
        found[part["data"], part["line"], part["seed"]] = part["measures"]
    return found


def compute(parts: list[tuple[str, str, int]], keep: Path) -> None:
    done = read(keep)
    for data, line, seed in parts:
        if (data, line, seed) in done:
            continue
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of overlap, and of LightGBM about its own names
            found = measure(data, line, seed)
        part = {"data": data, "line": line, "seed": seed, "measures": found}
        part["seconds"] = round(perf_counter() - start, 2)
        with keep.open("a") as file:
            file.write(json.dumps(part) + "\n")


def averaged(measures: dict[str, float]) -> dict[str, float]:
    """Measures of heart disease as means over the hospitals."""
    if not any(name.startswith("log-loss") for name in measures):
        return measures
    kinds = dict.fromkeys(name.split(", ")[0] for name in measures)
    return {
        kind: float(np.mean([v for name, v in measures.items() if name.startswith(kind)]))
        for kind in kinds
    }


def print_tables(keep: Path, seeds: range) -> None:
    """Markdown: mean ± standard error over the seeds, and WRI boosting against every line."""
    done = read(keep)
    for data in DATA:
        lines = list(dict.fromkeys(line for name, line, _ in done if name == data))
        values: dict[str, dict[str, np.ndarray]] = {}
        for line in lines:
            own = [averaged(done[data, line, s]) for s in seeds if (data, line, s) in done]
            if own:
                values[line] = {what: np.array([each[what] for each in own]) for what in own[0]}
        if not values:
            continue
        columns = list(next(iter(values.values())))
        print(f"\n### {data}\n\n| | {' | '.join(columns)} | draws |")
        print("|---" * (len(columns) + 2) + "|")
        for line, own in values.items():
            cells = [show(own[what]) for what in columns]
            print(f"| {line} | {' | '.join(cells)} | {len(own[columns[0]])} |")
        print_differences(values, columns)


def show(values: np.ndarray) -> str:
    digits = 1 if values.mean() > 1.5 else 3
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


def print_differences(values: dict[str, dict[str, np.ndarray]], columns: list[str]) -> None:
    """WRI boosting minus every other line, paired by seed, with 95 % intervals."""
    ours = values.get("WRI boosting")
    if ours is None:
        return
    print(f"\n| WRI boosting minus | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for line, own in values.items():
        if line == "WRI boosting" or len(own[columns[0]]) != len(ours[columns[0]]):
            continue
        cells = []
        for what in columns:
            found = paired_interval([ours[what]], [own[what]])
            digits = 1 if ours[what].mean() > 1.5 else 3
            cells.append(
                f"{found.mean:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"
            )
        print(f"| {line} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, default=Path("boosting.jsonl"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--lines", nargs="+")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--table", action="store_true", help="print what is there and compute none")
    given = parser.parse_args()
    if given.packages is not None:
        sys.path.append(str(given.packages))
    seeds = range(given.first, given.first + given.seeds)
    if not given.table:
        compute(list(plan(given.data, given.lines, seeds)), given.keep)
    print_tables(given.keep, seeds)


if __name__ == "__main__":
    main()
