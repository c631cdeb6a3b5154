"""How often the diagnosis raises an alarm where nothing changes, and where something does.

    python studies/diagnosis_level.py --cells --store level.jsonl [--repetitions 1000] [--json]
    WRI_DATA=… python studies/diagnosis_level.py --heart
    python studies/diagnosis_level.py --markers

Every repetition simulates a table (`simulate`), asks one function of `wri.diagnosis` and notes
whether it said that something differs. Finished repetitions are kept in the store, if one is given,
and the same command goes on where it was interrupted. Seeds: 0, 1, … of the stream REPORTED, one
table per line and repetition; the method was tuned on other streams. `--cells` takes all
combinations of skewed columns and noise, unequal noise, sites of 40 to 400 rows and a column of
zeros and few large values instead of the designs. `--heart` adds to the designs the patients of
Cleveland, split at random into sites, and days of rain; it needs the files of heart disease.
`--markers` counts which columns are flagged where the target is a number, of a cause, a marker and
a column of noise.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from wri.diagnosis import changing_features, environment_overlap, risk_gaps

REPORTED = 21
COLUMNS = 5
DESIGNS = ("gaussian", "log-normal", "heteroscedastic", "unequal sizes", "blocks", "split site")
TRAITS = ("skew", "noise", "sizes", "zeros")
CELLS = tuple(
    "+".join(own) or "none"
    for number in range(len(TRAITS) + 1)
    for own in combinations(TRAITS, number)
)  # all combinations, of which "sizes" has 40 to 400 rows per environment
SIZES = (40, 80, 160, 400)
RAIN = "rain"  # one station of many days, split at random: rain on 4 %, counted by occurrence
CHUNK = 20  # repetitions written at once
MARKERS = {
    "strength of the marker: 0.3, 0.8, 1.3, 1.8": ((0.3, 0.8, 1.3, 1.8), (1.0,) * 4),
    "strength of the marker: 0.5, 1, 1.5, 2": ((0.5, 1.0, 1.5, 2.0), (1.0,) * 4),
    "strength of the marker: 1, 1, 2, 2": ((1.0, 1.0, 2.0, 2.0), (1.0,) * 4),
    "strength of the marker: 0.5, 0.5, 0.5, −0.5": ((0.5, 0.5, 0.5, -0.5), (1.0,) * 4),
    "noise of the target: 0.5, 0.8, 1.25, 2; the marker is a cause": (
        (0.0,) * 4,
        (0.5, 0.8, 1.25, 2.0),
    ),
}
"""Strength of the marker and noise of the target at four sites."""


class Table(NamedTuple):
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    groups: np.ndarray  # [n]
    blocks: np.ndarray | None  # [n]


def simulate(
    design: str, question: str, environments: int, rows: int, change: float, seed: Any
) -> Table:
    """A table whose environments are alike, or differ by `change` in what is asked about."""
    random, traits = np.random.default_rng(seed), set(design.split("+"))
    sizes = np.full(environments, rows)
    if design == RAIN:
        sizes = np.full(environments, 2000)
    if "sizes" in traits:
        sizes = np.resize(SIZES, environments)
    if design == "unequal sizes":
        sizes = np.round(rows * np.geomspace(0.5, 3, environments)).astype(int)
    groups = np.repeat(np.arange(environments), sizes)
    n, blocks = len(groups), None
    noise = random.normal(size=(n, COLUMNS + 2))
    if design in ("blocks", "split site"):  # weeks of eight rows, of which neighbours are alike
        weeks = [np.arange(own) // 8 + 1000 * e for e, own in enumerate(sizes)]
        blocks = np.concatenate(weeks)
        day = np.concatenate([np.arange(own) % 8 for own in sizes])
        for later in range(1, 8):
            rows_then = np.flatnonzero(day == later)
            noise[rows_then] = 0.8 * noise[rows_then - 1] + 0.6 * noise[rows_then]
        if design == "split site":
            groups = random.permutation(groups)
    x, error = noise[:, :COLUMNS], noise[:, COLUMNS]
    x[:, 1:] = 0.5 * x[:, :-1] + np.sqrt(0.75) * x[:, 1:]
    if traits & {"log-normal", "skew"}:
        x, error = np.exp(x) / 2, (np.exp(error) - np.exp(0.5)) / 2
    if traits & {"zeros", RAIN}:  # rain: no more than one day in 25, and then often little
        x[:, -1] = np.where(random.random(n) < 0.04, np.exp(1.5 * noise[:, COLUMNS - 1]), 0)
    slopes = np.zeros((environments, COLUMNS))
    slopes[:, :2] = 1.0, -0.5
    if question != "overlap":
        slopes[:, 1] += change * np.linspace(-1, 1, environments)
    if question == "overlap":
        x[:, 0] += change * (groups == environments - 1) * x[:, 0].std()
    mean = (x * slopes[groups]).sum(1)
    if design == RAIN:
        mean = mean + 1.5 * (x[:, -1] > 0)
    if "zeros" in traits:
        mean = mean + 0.5 * np.log1p(x[:, -1])
    if question.endswith("classes"):
        mean = mean + 0.7 * noise[:, -1] * (blocks is not None)
        if traits & {"heteroscedastic", "noise"}:
            mean = mean + _unequal(question, x, groups, environments)[1] * noise[:, -1]
            mean = mean + _unequal(question, x, groups, environments)[0]
        y = (random.random(n) < expit(mean)).astype(int)
    else:
        if traits & {"heteroscedastic", "noise"}:
            error = error * _unequal(question, x, groups, environments)[1]
        y = mean + error
    if question == "overlap" and traits & {"heteroscedastic", "noise"}:
        x = x * np.sqrt((1 + x[:, :1] ** 2) / 2)
    return Table(x, y, groups, blocks)


def _unequal(
    question: str, x: np.ndarray, groups: np.ndarray, environments: int
) -> tuple[np.ndarray, np.ndarray]:
    """Prevalence and noise: by environment for slopes, by the first column alone for risks.

    Noise that differs between environments makes slopes of least squares no different, and risks
    of any model so; prevalence makes log-odds no different.
    """
    by_column = np.sqrt((1 + x[:, 0] ** 2) / 2)
    if question == "changing classes":
        return np.linspace(-1, 1, environments)[groups], np.zeros(len(x))
    if question == "changing numbers":
        return np.zeros(len(x)), np.geomspace(0.5, 2, environments)[groups] * by_column
    return np.zeros(len(x)), by_column


@cache
def cleveland(question: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns and target of Cleveland's patients."""
    from wri.datasets import load_heart

    table = load_heart()
    table = table[table["hospital"].astype(str).str.lower().str.contains("cleveland")]
    target = "disease" if "disease" in table else table.columns[-1]
    columns = table.drop(columns=["hospital", target]).select_dtypes("number")
    columns = columns.dropna(axis=1, thresh=len(columns) - 10)
    whole = columns.notna().all(axis=1)
    x = columns[whole].to_numpy(float)
    y = (table.loc[whole, target].to_numpy(float) > 0).astype(int)
    if question.endswith("numbers"):
        y = x[:, list(columns).index("thalach" if "thalach" in columns else columns.columns[-1])]
        x = np.delete(x, list(columns).index("thalach"), 1)
    return x, y


def heart(question: str, environments: int, seed: Any) -> Table:
    """Cleveland's patients, split at random."""
    x, y = cleveland(question)
    groups = np.random.default_rng(seed).permutation(np.arange(len(x)) % environments)
    return Table(x, y, groups, None)


def ask_changing(table: Table, draws: int) -> dict[str, bool]:
    found = changing_features(table.x, table.y, table.groups, blocks=table.blocks, draws=draws)
    return {"flagged": len(found.flagged) > 0}


def ask_gaps(table: Table, other: Table, draws: int) -> dict[str, bool]:
    """Of a model that was fitted to another table of the same design."""
    classes = table.y.dtype.kind == "i"
    model = LogisticRegression(max_iter=2000) if classes else LinearRegression()
    model.fit(other.x, other.y)
    found = risk_gaps(model, table.x, table.y, table.groups, blocks=table.blocks, draws=draws)
    weighted = found.judged.any() and not found.weighted_risk_invariant
    return {"risks": not found.risk_invariant, "weighted risks": bool(weighted)}


def ask_overlap(table: Table, draws: int) -> dict[str, bool]:
    found = environment_overlap(table.x, table.groups, blocks=table.blocks)
    i, j = np.triu_indices(len(found.labels), 1)
    return {"differ": found.differ, "little in common": bool(found.little_in_common[i, j].any())}


def run(job: dict[str, Any], repetition: int, stream: int) -> dict[str, bool]:
    """One repetition of one line of the table."""
    question, design, change = job["question"], job["design"], job["change"]
    draws = job.get("draws", 999)
    size = (job["environments"], job["rows"])
    lines = [*DESIGNS, "heart", *CELLS, RAIN]
    seed = [stream, repetition, list(CHANGES).index(question), lines.index(design)]
    if design == "heart":
        table = heart(question, size[0], seed)
    else:
        table = simulate(design, question, *size, change, seed)
    if question.startswith("gaps"):
        if design == "heart":
            half = np.random.default_rng([*seed, 1]).random(len(table.x)) < 0.5
            first, other = (
                Table(table.x[rows], table.y[rows], table.groups[rows], None)
                for rows in (half, ~half)
            )
            return ask_gaps(first, other, draws)
        other = simulate(design, question, *size, 0.0, [*seed, 1])
        return ask_gaps(table, other, draws)
    ask: Callable[[Table, int], dict[str, bool]]
    ask = ask_overlap if question == "overlap" else ask_changing
    return ask(table, draws)


CHANGES = {
    "changing classes": 0.6,
    "changing numbers": 0.35,
    "gaps classes": 1.5,
    "gaps numbers": 0.8,
    "overlap": 0.4,
}


HEADS = {
    ("changing classes", "flagged"): "slopes, classes",
    ("changing numbers", "flagged"): "slopes, numbers",
    ("gaps classes", "risks"): "risks, classes",
    ("gaps classes", "weighted risks"): "weighted, classes",
    ("gaps numbers", "risks"): "risks, numbers",
    ("gaps numbers", "weighted risks"): "weighted, numbers",
    ("overlap", "differ"): "differ",
    ("overlap", "little in common"): "little in common",
}


def make_jobs(given: argparse.Namespace) -> list[dict[str, Any]]:
    jobs = []
    designs = [*DESIGNS, "heart", RAIN] if given.heart else list(CELLS if given.cells else DESIGNS)
    for question in given.questions:
        for design in given.designs or designs:
            if design == RAIN and question != "changing classes":
                continue
            for change in (0.0,) if design == "heart" else (0.0, CHANGES[question]):
                job = {"question": question, "design": design, "change": change}
                job |= {"environments": given.environments, "rows": given.rows}
                jobs.append(job if given.draws == 999 else job | {"draws": given.draws})
    return jobs


def summarise(jobs: list[dict[str, Any]], kept: dict[str, dict[int, Any]]) -> list[dict[str, Any]]:
    lines = []
    for job in jobs:
        found = list(kept[json.dumps(job, sort_keys=True)].values())
        for said in found[0] if found else ():
            share = float(np.mean([one[said] for one in found]))
            error = float(np.sqrt(share * (1 - share) / len(found)))
            lines.append({**job, "said": said, "share": share, "error": error, "n": len(found)})
    return lines


def print_table(title: str, lines: list[dict[str, Any]], digits: int) -> None:
    """Alarms in per cent with their standard error, one design per line."""
    if not lines:
        return
    tables = " or ".join(dict.fromkeys(str(line["n"]) for line in lines))
    print(f"*{title}: alarms in per cent of {tables} tables per cell, ± standard error*\n")
    asked = list(dict.fromkeys((line["question"], line["said"]) for line in lines))
    print(f"| | {' | '.join(HEADS[own] for own in asked)} |")
    print("|---" * (1 + len(asked)) + "|")
    for design in dict.fromkeys(line["design"] for line in lines):
        found = {
            (line["question"], line["said"]): _per_cent(line["share"], line["error"], digits)
            for line in lines
            if line["design"] == design
        }
        print(f"| {design} | {' | '.join(found.get(own, '–') for own in asked)} |")
    means = []
    for own in asked:
        cells = [line for line in lines if (line["question"], line["said"]) == own]
        error = np.sqrt(sum(line["error"] ** 2 for line in cells)) / len(cells)
        means.append(_per_cent(np.mean([line["share"] for line in cells]), error, digits))
    print(f"| mean | {' | '.join(means)} |\n")


def _per_cent(share: float, error: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} ± {100 * error:.{digits}f}"


def print_markers(repetitions: int) -> None:
    """Which columns are flagged at four sites of 300 rows, y = 2 · cause + noise."""
    columns, flags = ("cause", "marker", "noise column"), defaultdict[str, list[Any]](list)
    for place, (name, (strengths, noise)) in enumerate(MARKERS.items()):
        for repetition in range(repetitions):
            random = np.random.default_rng([REPORTED, repetition, place])
            site = np.repeat(np.arange(4), 300)
            cause = random.normal(size=len(site)) + np.linspace(-1, 1, 4)[site]
            y = 2 * cause + np.array(noise)[site] * random.normal(size=len(site))
            marker = np.array(strengths)[site] * y + random.normal(size=len(site))
            if not any(strengths):
                y = y + marker  # a second cause
            x = np.column_stack([cause, marker, random.normal(size=len(site))])
            flags[name].append(changing_features(x, y, site).is_flagged)
    what = f"flags in per cent of {repetitions} tables per line, ± standard error"
    print(f"*Causes and markers of numbers: {what}*\n")
    print(f"| what differs between sites | {' | '.join(columns)} |\n|---|---|---|---|")
    for name, found in flags.items():
        shares = np.mean(found, axis=0)
        errors = np.sqrt(shares * (1 - shares) / repetitions)
        cells = [_per_cent(*own, digits=1) for own in zip(shares, errors, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, help="file of finished repetitions")
    parser.add_argument("--repetitions", type=int, default=1000, help="the one to stop before")
    parser.add_argument("--power", type=int, default=100, help="repetitions with a change")
    parser.add_argument("--environments", type=int, default=4)
    parser.add_argument("--rows", type=int, default=160, help="per environment")
    parser.add_argument("--draws", type=int, default=999, help="of bootstrap or permutation")
    parser.add_argument("--stream", type=int, default=REPORTED)
    parser.add_argument("--questions", nargs="*", default=list(CHANGES))
    parser.add_argument("--designs", nargs="*", default=[])
    parser.add_argument("--heart", action="store_true", help="Cleveland's patients and rain, too")
    parser.add_argument("--cells", action="store_true", help="all combinations of TRAITS instead")
    parser.add_argument("--markers", action="store_true", help="columns flagged of numbers instead")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.markers:
        print_markers(given.repetitions)
        return
    jobs, kept = make_jobs(given), defaultdict[str, dict[int, Any]](dict)
    if given.store and given.store.exists():
        for line in given.store.read_text().splitlines():
            record = json.loads(line)
            if record["stream"] == given.stream:
                kept[record["job"]][record["repetition"]] = record["said"]
    for start in range(0, given.repetitions, CHUNK):
        print(f"{start} of {given.repetitions} repetitions", end="\r", file=sys.stderr, flush=True)
        for job in jobs:
            key, most = json.dumps(job, sort_keys=True), given.repetitions
            most = given.power if job["change"] else most
            new = []
            for repetition in range(start, min(start + CHUNK, most)):
                if repetition not in kept[key]:
                    said = run(job, repetition, given.stream)
                    kept[key][repetition] = said
                    record = {"job": key, "stream": given.stream, "repetition": repetition}
                    new.append(json.dumps(record | {"said": said}) + "\n")
            if given.store:
                with given.store.open("a") as store:
                    store.writelines(new)
    lines = summarise(jobs, kept)
    if given.json:
        print(json.dumps(lines))
        return
    print_table("Nothing changes", [line for line in lines if not line["change"]], 1)
    print_table("Something changes", [line for line in lines if line["change"]], 0)


if __name__ == "__main__":
    main()
