"""HCMNIST-CS with Fashion-MNIST in the digits' place: weights that are learned, and what they lack.

    python studies/fashion.py --draws 20 21 22 --store fashion.jsonl [--grey]

Everything is as in table 2: the features of a CNN per draw, preset `coloured`, 500 steps, last
step. Articles 0 to 4 are one side, 0, 1, 5 and 6 the easy ones. All lines of a draw have the same
features, split, initial weights and batches. "picture" are weights of a CNN that classifies the
environment of a picture, given its label, on two folds, each predicted by the network of the other:

    A(x) = mean over y of its logits,   weights from p(e | A) or from p(e | A, y)

each refitted as a smooth function of A, for all rows or for each label. It sees three channels: the
two colours, and the larger of both. The network of `--grey` sees the last only; its weights cannot
hold the colour, which nobody would know to leave out. "p(e | x, y)" keeps the label's own logit.
Finished lines are kept in the store, and the same command goes on where it stopped.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from coloured_lambda import last_accuracies, print_row, print_table, start_table
from wri.datasets import load_fashion_mnist
from wri.densities import Exact
from wri.paper.experiments.ablation import BASE, TINY, VARIANTS
from wri.paper.experiments.coloured import (
    ON_DIGITS,
    TRAINING,
    ColouredData,
    Variant,
    digits,
    load_features,
    make_extractor,
    train_variants,
)
from wri.paper.features import CNN
from wri.paper.features.networks import scaled, undrawn
from wri.paper.features.networks import train as train_network
from wri.paper.simulations import digit_shares
from wri.progress import silent
from wri.training import ModelSpec

DATASET, WIDTH, EPOCHS, RATES = "hcmnist-cs", 32, 3, (1e-3, 1e-4)
FOLDS = 2
TRUE, OF_A, OF_A_AND_Y = "true group", "picture, p(e | A)", "picture, p(e | A, y)"
OF_GREY, OF_GREY_AND_Y = "grey picture, p(e | A)", "grey picture, p(e | A, y)"
OWN, OWN_GREY = "picture, p(e | x, y)", "grey picture, p(e | x, y)"
LINES = {
    "same network trained on the true side": VARIANTS[ON_DIGITS],
    **{
        label: Variant(ModelSpec.of(name, preset="coloured"))
        for name, label in (("erm", "ERM"), ("irm", "IRM"), ("vrex", "VREx"), ("wri", "WRI"))
    },
}


def label_logits(
    images: np.ndarray, y: np.ndarray, environment: np.ndarray, seed: int
) -> np.ndarray:  # [N, C, H, W] -> [N, 2]
    """Return each row's log-odds of the second environment for either label, from the other fold.

    A row is predicted by a network that has not seen it: the odds are those of new rows.
    """
    fold = np.random.default_rng([seed, 2]).integers(0, FOLDS, len(y))
    logits = np.zeros((len(y), 2), np.float32)
    for k in range(FOLDS):
        body = CNN(width=WIDTH)._network(images.shape[1:])
        network = nn.Sequential(body, undrawn(lambda: nn.Linear(WIDTH, 2)))

        def loss(x: Tensor, code: Tensor, network: nn.Module = network) -> Tensor:
            own = network(x).gather(1, (code % 2)[:, None])[:, 0]  # the logit of the row's label
            return binary_cross_entropy_with_logits(own, (code // 2).float())

        seen, new = fold != k, np.flatnonzero(fold == k)
        rows = images[seen], (2 * environment + y)[seen]
        train_network(network, loss, rows, EPOCHS, RATES, FOLDS * seed + k, silent)
        with torch.no_grad():
            for part in np.array_split(new, 50):
                logits[part] = network(scaled(images[part])).numpy()
    return logits


def refit(score: np.ndarray, environment: np.ndarray) -> np.ndarray:  # [N] -> [N]
    """Return log-odds of the second environment as a smooth function of a score."""
    model = make_pipeline(
        SplineTransformer(8, degree=2, knots="quantile"), LogisticRegression(C=10, max_iter=500)
    )
    return model.fit(score[:, None], environment).decision_function(score[:, None])


def refit_by_label(score: np.ndarray, environment: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = np.zeros(len(y))
    for label in (0, 1):
        own = y == label
        found[own] = refit(score[own], environment[own])
    return found


def learned_weights(
    images: np.ndarray, y: np.ndarray, environment: np.ndarray, draw: int, grey: bool
) -> dict[str, np.ndarray]:
    """Return log-odds `[N]` by the name of a line."""
    larger = images.max(1, keepdims=True)
    seen = {False: np.concatenate([larger, images], axis=1)} | ({True: larger} if grey else {})
    found = {}
    for is_grey, pictures in seen.items():
        names = (OF_GREY, OF_GREY_AND_Y, OWN_GREY) if is_grey else (OF_A, OF_A_AND_Y, OWN)
        logits = label_logits(pictures, y, environment, draw)
        mean, own = logits.mean(1), logits[np.arange(len(y)), y]
        weights = (
            refit(mean, environment),
            refit_by_label(mean, environment, y),
            refit_by_label(own, environment, y),
        )
        found |= dict(zip(names, weights, strict=True))
    return found


def with_weights(data: ColouredData, log_odds: np.ndarray) -> ColouredData:
    """Return the data with log-odds of the first rows in a column too small for the predictor."""
    column = np.zeros((len(data.bank.features), 1))
    column[: len(log_odds), 0] = TINY * log_odds
    features = np.concatenate([data.bank.features, column], axis=1, dtype=np.float32)
    return replace(data, bank=replace(data.bank, features=features))


def kept_log_odds(x: Tensor) -> Tensor:  # [..., D] -> [..., E]
    column = x[..., -1] / TINY
    return torch.stack([torch.zeros_like(column), column], dim=-1)


def run_draw(draw: int, grey: bool) -> dict[str, dict[str, float]]:
    """Train all lines of one draw and return their accuracies (%) at the last step."""
    source = load_fashion_mnist()
    data = load_features(DATASET, True, make_extractor("cnn"), silent, draw, source)
    data = replace(data, name=f"fashion, {data.name}")  # seeds of the runs depend on the name
    environments = [digits(DATASET, True, draw, source)[e] for e in TRAINING]
    images, y, numbers = (
        np.concatenate([getattr(each, part) for each in environments])
        for part in ("images", "y", "digits")
    )
    environment = np.repeat([0, 1], [len(each) for each in environments])
    shares = np.log(digit_shares(DATASET, np.bincount(source.digits, minlength=10)))
    first, second = shares[list(TRAINING)]
    weights = {TRUE: (second - first)[numbers]}
    weights |= learned_weights(images, y, environment, draw, grey)
    objective = replace(BASE, density=Exact(kept_log_odds))
    banks: dict[str | None, ColouredData] = {None: data}
    lines = dict(LINES)
    for name, log_odds in weights.items():
        banks[name] = with_weights(data, log_odds)
        lines[f"WRI, weights: {name}"] = Variant(ModelSpec.of(objective, preset="coloured"), name)
    return last_accuracies(train_variants(banks, lines, draw, silent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, nargs="+", required=True)
    parser.add_argument("--grey", action="store_true", help="also weights without colour")
    parser.add_argument("--store", type=Path, default=Path("fashion.jsonl"))
    options = parser.parse_args()
    lines = options.store.read_text().splitlines() if options.store.exists() else []
    done = dict(map(json.loads, lines))
    for draw in options.draws:
        if draw in done:
            continue
        began = time.process_time()
        done[draw] = run_draw(draw, options.grey)
        with options.store.open("a") as file:
            file.write(json.dumps([draw, done[draw]]) + "\n")
        seconds = time.process_time() - began
        print(f"draw {draw}: {seconds:.0f} s of CPU time", file=sys.stderr, flush=True)
    found = [done[draw] for draw in options.draws]
    if len(found) == 1:
        print_table(f"Draw {options.draws[0]}: accuracy in %, one run per line", found)
        return
    numbers = ", ".join(map(str, options.draws))
    print_table(f"Accuracy in %, mean ± standard error over draws {numbers}", found)
    start_table("Test accuracy in % by draw", "", *(f"draw {draw}" for draw in options.draws))
    for name in found[0]:
        print_row(name, *(f"{lines[name]['test']:.1f}" for lines in found))


if __name__ == "__main__":
    main()
