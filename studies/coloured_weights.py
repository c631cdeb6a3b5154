"""Weights for the coloured digits: some lines of the ablation on draws that no table shows.

    python studies/coloured_weights.py [--dataset hcmnist-cs] [--first 0] [--draws 3]

The columns are those of `coloured_lambda.py`, at the last step.
"""

from coloured_lambda import describe, each_draw, last_accuracies, print_table, read_options
from wri.paper.experiments.ablation import VARIANTS, train_draw
from wri.paper.experiments.coloured import NAMES, ON_DIGITS, make_extractor
from wri.progress import silent

LINES = {
    ON_DIGITS: ON_DIGITS,
    "weights: uniform": "weights uniform",
    "weights: classifier strongly regularised": "classifier on x, strongly regularised",
    "weights: deeper classifier": "classifier on x, deeper",
    "wri": "classifier that sees the label (preset)",
    "weights: true digit group": "true digit group",
}


def main() -> None:
    given = read_options(__doc__, first=0, draws=3)
    variants = {shown: VARIANTS[name] for name, shown in LINES.items()}
    found = []
    for draw in each_draw(given):
        extractor = make_extractor("cnn")
        _, records = train_draw(given.dataset, variants, extractor, draw, True, silent)
        found.append(last_accuracies(records))
    print_table(f"{NAMES[given.dataset]}, by kind of weights: {describe(given)}", found)


if __name__ == "__main__":
    main()
