"""Time and peak memory of every diagnosis on a large table, each in a process of its own.

    python benchmarks/diagnosis_scale.py [--rows 500000] [--columns 20] [--environments 12]
                                         [--repeats 2] [--json]

Two columns matter, one of them in different ways between environments, whose means shift. Seconds
are those of the call, on the clock and of the processor; memory is the peak of the whole process,
the interpreter and the table included. All calls are repeated, one round after the other. Models
are scikit-learn's, fitted before the clock starts.
"""

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time

import numpy as np

QUESTIONS = {
    "nothing": "interpreter and table alone",
    "changing classes": "`changing_features`, classes",
    "changing numbers": "`changing_features`, numbers",
    "changing blocks": "`changing_features`, classes, blocks of 100 rows",
    "gaps classes": "`risk_gaps`, classes",
    "gaps numbers": "`risk_gaps`, numbers",
    "gaps blocks": "`risk_gaps`, classes, blocks of 100 rows",
    "overlap": "`environment_overlap`",
    "overlap blocks": "`environment_overlap`, blocks of 100 rows",
    "design": "`design_position`",
}
SIZES = ("rows", "columns", "environments")


def make_table(rows: int, columns: int, environments: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    groups = np.arange(rows) * environments // rows
    x = random.normal(size=(rows, columns))
    x[:, 0] += np.linspace(-0.5, 0.5, environments)[groups]
    score = x[:, 0] + np.linspace(0, 1, environments)[groups] * x[:, 1]
    return x, score + random.normal(size=rows), groups, np.arange(rows) // 100


def measure(question: str, rows: int, columns: int, environments: int) -> dict[str, float]:
    """Seconds of one call, and the process's peak memory in MB."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    from wri.diagnosis import changing_features, design_position, environment_overlap, risk_gaps

    x, y, groups, week = make_table(rows, columns, environments)
    ill = (y > 0).astype(int)
    blocks = week if question.endswith("blocks") else None
    call: Callable[[], object] = int
    if question.startswith("changing"):
        target = y if question.endswith("numbers") else ill

        def call() -> object:
            return changing_features(x, target, groups, blocks=blocks).meaning
    elif question.startswith("gaps"):
        numbers = question.endswith("numbers")
        model = (LinearRegression() if numbers else LogisticRegression()).fit(
            x, y if numbers else ill
        )

        def call() -> object:
            return risk_gaps(model, x, y if numbers else ill, groups, blocks=blocks).meaning
    elif question.startswith("overlap"):

        def call() -> object:
            return environment_overlap(x, groups, blocks=blocks).meaning
    elif question == "design":

        def call() -> object:
            return design_position(x, ill, groups, [1]).meaning

    start, work = perf_counter(), process_time()
    call()
    seconds = {"s": perf_counter() - start, "CPU s": process_time() - work}
    return {**seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def show_range(values: list[float], digits: int) -> str:
    """The smallest and the largest number, or one if they do not differ."""
    return " to ".join(dict.fromkeys(f"{each:.{digits}f}" for each in (min(values), max(values))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--environments", type=int, default=12)
    parser.add_argument("--questions", nargs="*", default=list(QUESTIONS))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    size = (given.rows, given.columns, given.environments)
    if given.child:
        print(json.dumps(measure(given.child, *size)))
        return
    found: dict[str, list[dict[str, float]]] = {question: [] for question in given.questions}
    for question in given.questions * given.repeats:
        print(question, file=sys.stderr)
        command = [sys.executable, __file__, "--child", question]
        command += [f"--{name}={value}" for name, value in vars(given).items() if name in SIZES]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[question].append(json.loads(done.stdout.splitlines()[-1]))
    if given.json:
        print(json.dumps(found))
        return
    what = f"{given.rows:,} rows, {given.columns} columns, {given.environments} environments"
    print(f"*Every diagnosis: {what}, smallest and largest of {given.repeats} calls*\n")
    print("| | s on the clock | s of the processor | peak MB |\n|---|---|---|---|")
    for question, calls in found.items():
        cells = [
            show_range([call[name] for call in calls], digits)
            for name, digits in (("s", 1), ("CPU s", 1), ("MB", 0))
        ]
        print(f"| {QUESTIONS[question]} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
