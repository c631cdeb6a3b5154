"""What two short cuts for large tables change, beside the same without them.

    python studies/large_tables.py [--tables 200] [--fits 20] [--json]

Flags: without a site, `wri fit` flags columns on at most 4,096 rows of each other site. Tables have
four sites of 12,000 rows: a cause whose mean differs between sites, a marker that follows the
outcome, and columns of noise that are normal, log-normal and mostly zero. Printed is the share of
tables in which the marker is flagged, and in which another column is, when the marker's strength at
the sites has the standard deviation shown; at 0 nothing changes. A flag of the marker at 0 is a
false alarm as well. Strengths with a standard deviation are tried on a quarter of the tables.

Thresholds: with more than 1,000 rows per column, the thresholds of verdicts come from the model of
all rows instead of one without the held-out rows. Printed is the share of fresh rows of the same
sites that are rare or outside (5 % are promised) and outside.
"""

import argparse
import json
from importlib import import_module
from unittest.mock import patch

import numpy as np
from scipy.special import expit

import wri
from wri.estimators import problem

changing_features = import_module("wri.diagnosis.changing_features")  # the module, not the function
SITES, ROWS, STRENGTH = 4, 12_000, 0.8
SPREADS = (0.0, 0.02, 0.05, 0.1)
MARKER = 1  # its column
COLUMNS, ROWS_PER_COLUMN, FRESH = 10, 1_200, 20_000
ROWS_USED = {"4,096 rows": 4096, "all rows": ROWS}
SHARES = ("rare or outside, %", "outside, %")


def sample_rows(
    n: int, strengths: np.ndarray, means: np.ndarray, classes: bool, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, outcomes and sites of n rows per site."""
    site = np.repeat(np.arange(len(means)), n)
    cause = random.normal(means[site], 1.0)
    if classes:
        y = (random.random(len(site)) < expit(2 * cause)).astype(float)
        marker = random.normal(strengths[site] * (2 * y - 1), 1.0)
    else:
        y = cause + random.normal(size=len(site))
        marker = random.normal(strengths[site] * y, 1.0)
    noise = random.normal(size=(len(site), 3))
    noise[:, 1] = np.exp(noise[:, 1])
    noise[:, 2] = np.where(random.random(len(site)) < 0.9, 0.0, np.abs(noise[:, 2]))
    return np.column_stack([cause, marker, noise]), y, site


def flagged(spread: float, classes: bool, seed: int) -> dict[str, np.ndarray]:
    """Return the flagged columns of one table, with the sample and with all rows."""
    random = np.random.default_rng([seed, int(1000 * spread), classes])
    strengths = random.normal(STRENGTH, spread, SITES)
    x, y, site = sample_rows(ROWS, strengths, random.uniform(-1.5, 1.5, SITES), classes, random)
    found = {}
    for name, most in ROWS_USED.items():
        with patch.object(changing_features, "FLAGGING_ROWS", most):
            found[name] = changing_features.flagged_columns(x, y, site, classes)
    return found


def compare_flags(tables: int) -> list[dict]:
    """Count flags over tables."""
    lines = []
    for classes in (True, False):
        for spread in SPREADS:
            count = tables if spread == 0 else max(1, tables // 4)
            each = [flagged(spread, classes, seed) for seed in range(count)]
            line = {"outcome": "classes" if classes else "numbers", "spread": spread, "n": count}
            for name in each[0]:
                own = [found[name] for found in each]
                line[f"marker, {name}"] = float(np.mean([MARKER in k for k in own]))
                line[f"others, {name}"] = float(np.mean([bool((k != MARKER).any()) for k in own]))
            lines.append(line)
    return lines


def verdict_shares(seed: int, optimism: float) -> list[float]:
    """Return the shares of fresh rows that are not supported, and outside."""
    random = np.random.default_rng(seed)
    means, strengths = random.uniform(-1.5, 1.5, SITES), random.uniform(0, 1.5, SITES)
    extra = COLUMNS - 5
    parts = []
    for n in (ROWS_PER_COLUMN * COLUMNS // SITES, FRESH // SITES):
        x, y, site = sample_rows(n, strengths, means, True, random)
        parts.append((np.column_stack([x, random.normal(size=(len(x), extra))]), y, site))
    (x, y, site), (fresh, _, _) = parts
    with patch.object(problem, "MOST_OPTIMISM", optimism):
        model = wri.WRIClassifier(site_spread=False).fit(x, y, groups=site)
    verdicts = model.verdict(fresh)
    return [float((verdicts != "supported").mean()), float((verdicts == "outside").mean())]


def compare_thresholds(fits: int) -> list[dict]:
    """Compare shares of verdicts over fits."""
    lines = []
    for name, optimism in (
        ("the model of all rows", problem.MOST_OPTIMISM),
        ("a second model, without the held-out rows", 0.0),
    ):
        each = 100 * np.array([verdict_shares(seed, optimism) for seed in range(fits)])
        means, errors = each.mean(0), each.std(0, ddof=1) / np.sqrt(fits)
        shares = dict(zip(SHARES, zip(means.tolist(), errors.tolist(), strict=True), strict=True))
        lines.append({"thresholds from": name, **shares, "n": fits})
    return lines


def print_flags(lines: list[dict]) -> None:
    counts = f"{lines[0]['n']} tables at spread 0 and {lines[-1]['n']} at others"
    print(f"*Flags in per cent of tables of {SITES} × {ROWS:,} rows, ± standard error: {counts}*\n")
    kinds = [f"{who}, {rows}" for who in ("marker", "others") for rows in ROWS_USED]
    print(f"| outcome | spread of the marker's strength | {' | '.join(kinds)} |")
    print("|---" * (2 + len(kinds)) + "|")
    for line in lines:
        cells = [
            f"{100 * share:.1f} ± {100 * np.sqrt(share * (1 - share) / line['n']):.1f}"
            for share in map(line.get, kinds)
        ]
        print(f"| {line['outcome']} | {line['spread']:g} | {' | '.join(cells)} |")
    print()


def print_thresholds(lines: list[dict]) -> None:
    rows = f"tables of {ROWS_PER_COLUMN * COLUMNS:,} rows × {COLUMNS} columns"
    print(f"*Verdicts of fresh rows, mean ± standard error over {lines[0]['n']} {rows}*\n")
    print(f"| thresholds from | {' | '.join(SHARES)} |\n|---|---|---|")
    for line in lines:
        cells = [f"{mean:.2f} ± {error:.2f}" for mean, error in map(line.get, SHARES)]
        print(f"| {line['thresholds from']} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    flags, thresholds = compare_flags(options.tables), compare_thresholds(options.fits)
    if options.json:
        print(json.dumps({"flags": flags, "thresholds": thresholds}))
        return
    print_flags(flags)
    print_thresholds(thresholds)


if __name__ == "__main__":
    main()
