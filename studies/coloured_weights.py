"""Weights for the coloured digits: some lines of the ablation on draws that no table shows.

    python studies/coloured_weights.py [--dataset hcmnist-cs] [--first 0] [--draws 4]

Accuracies at the last step, mean over draws ± standard error, and the worst draw.
"""

import argparse
from dataclasses import replace

from wri.paper.experiments.ablation import FULL_STEPS, VARIANTS, table
from wri.paper.experiments.coloured import ON_DIGITS, SHORT, make_extractor
from wri.paper.result import Result
from wri.progress import silent

LINES = (
    ON_DIGITS,
    "wri",
    "weights: classifier strongly regularised",
    "weights: deeper classifier",
    "weights: true digit group",
    "weights: uniform",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="hcmnist-cs")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--draws", type=int, default=4)
    given = parser.parse_args()
    variants = {
        name: VARIANTS[name]._replace(spec=replace(VARIANTS[name].spec, steps=FULL_STEPS))
        for name in LINES
    }
    draws = range(given.first, given.first + given.draws)
    extractor = make_extractor("cnn")
    rows, _ = table(given.dataset, variants, extractor, draws, True, silent)
    shown = [row for row in rows if row.table.endswith(SHORT["oracle"])]
    result = Result(experiment="weights", rows=shown, figures=[], seconds=0.0)
    [last_step] = result.tables
    for name, cells in last_step.lines:
        parts = [f"{cell.column} {cell.text}" for cell in cells if cell is not None]
        print(f"{name:45s} {', '.join(parts)}")


if __name__ == "__main__":
    main()
