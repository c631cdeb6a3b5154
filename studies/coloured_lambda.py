"""λ for the coloured digits, on draws that table 2 does not show.

    python studies/coloured_lambda.py [--dataset hcmnist-cs] [--first 0] [--draws 5]

Every line is the preset `coloured` with one λ, at the last step, on draws of everything: rows and
colours, extractor, split, initial weights. The columns are accuracies (%): in the test environment,
there in the worst draw, there with unrelated colours, and on held-back rows of the training
environments.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from wri.objectives import make_objective
from wri.paper.experiments.ablation import BASE
from wri.paper.experiments.coloured import (
    NAMES,
    TEST,
    UNRELATED,
    Variant,
    load_features,
    make_extractor,
    train_variants,
)
from wri.paper.result import ResultCell
from wri.progress import silent
from wri.training import ModelSpec, Record

LADDERS = {
    "IRM": (make_objective("irm", "coloured"), (100, 1e3, 1e4, 1e5, 1e6)),
    "VREx": (make_objective("vrex", "coloured"), (100, 300, 1e3, 1e4)),
    "WRI, weights uniform": (replace(BASE, weighting="uniform"), (3, 10, 30, 100)),
    "WRI": (BASE, (3, 10, 30, 100, 300)),
}
COLUMNS = {"test": f"env{TEST}_in", "unrelated": UNRELATED, "+90%": "env0_out", "+80%": "env1_out"}

Accuracies = Mapping[str, float]  # % by column


def main() -> None:
    given = read_options(__doc__, first=0, draws=5)
    variants = {"ERM": Variant(ModelSpec.of("erm", preset="coloured"))}
    for name, (objective, ladder) in LADDERS.items():
        for weight in ladder:
            spec = ModelSpec.of(objective, preset="coloured", hyper={"penalty_weight": weight})
            variants[f"{name}, λ = {weight:,.0f}"] = Variant(spec)
    found = []
    for draw in each_draw(given):
        data = load_features(given.dataset, True, make_extractor("cnn"), silent, draw)
        found.append(last_accuracies(train_variants({None: data}, variants, draw, silent)))
    print_table(f"{NAMES[given.dataset]}, by λ: {describe(given)}", found)


def read_options(about: str, first: int, draws: int) -> argparse.Namespace:
    """Read the options that the studies of table 2's choices share."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--dataset", choices=NAMES, default="hcmnist-cs")
    parser.add_argument("--first", type=int, default=first)
    parser.add_argument("--draws", type=int, default=draws)
    return parser.parse_args()


def each_draw(given: argparse.Namespace) -> Iterator[int]:
    """Yield the numbers of the draws, and say which one is next."""
    for draw in range(given.first, given.first + given.draws):
        print(f"{given.dataset}, draw {draw}", file=sys.stderr, flush=True)
        yield draw


def describe(given: argparse.Namespace) -> str:
    return (
        f"accuracy in %, mean ± standard error over draws {given.first} to "
        f"{given.first + given.draws - 1}"
    )


def last_accuracies(records: Mapping[str, Record]) -> dict[str, Accuracies]:
    """Return each line's accuracies at the last step."""
    return {
        name: {
            column: 100 * float(record.measures["accuracy"][split][-1])
            for column, split in COLUMNS.items()
        }
        for name, record in records.items()
    }


def print_table(title: str, found: Sequence[Mapping[str, Accuracies]]) -> None:
    """Print a table of lines over draws, with the worst draw in the test environment."""
    test, *others = COLUMNS
    has_worst = len(found) > 1
    start_table(title, "", test, *["worst draw"] * has_worst, *others)
    for name in found[0]:
        values = {column: [lines[name][column] for lines in found] for column in COLUMNS}
        first, *more = map(mean_text, values.values())
        print_row(name, first, *[f"{min(values[test]):.1f}"] * has_worst, *more)
    print(flush=True)


def start_table(title: str, *columns: str) -> None:
    print(f"*{title}*\n")
    print_row(*columns)
    print("|---" * len(columns) + "|")


def print_row(*cells: str) -> None:
    shown = [cell.replace("|", "\\|") for cell in cells]  # else it would end a cell
    print("|" + "|".join(f" {cell} " if cell else " " for cell in shown) + "|")


def mean_text(values: Sequence[float]) -> str:
    """Return mean ± standard error; the mean alone if there are too few values."""
    cell = ResultCell.of("", "", values)
    return f"{cell.ours:.1f}" + (f" ± {cell.spread:.1f}" if cell.spread is not None else "")


if __name__ == "__main__":
    main()
