"""The paper's featurizer: a narrow feature layer behind a fixed backbone, trained by ERM.

    x -> backbone -> linear to `width` features | linear to classes

trained by the mean cross-entropy over the training domains; the features are left of the bar, in
units of the training rows. The backbone's features are given, and only the two linear layers learn.
The caller chooses the rows: no row of a held-out domain may be among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from wri.paper.features.networks import draw, undrawn
from wri.rows import Scaling
from wri.threads import one_thread

BATCH = 64  # rows of each domain in a step
LEARNING_RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Featurizer:
    """Settings of the training of a feature layer."""

    width: int = 64
    steps: int = 500

    def fit_head(
        self, domains: Sequence[tuple[np.ndarray, np.ndarray]], seed: int, classes: int
    ) -> "FittedHead":
        """Train the layer on features `[n, D]` and classes `[n]` of each training domain."""
        unit = Scaling.of(np.concatenate([x for x, _ in domains]).astype(float))
        scaled = [unit.apply(x) for x, _ in domains]
        rows = [torch.as_tensor(x, dtype=torch.float32) for x in scaled]
        layer = undrawn(lambda: nn.Linear(rows[0].shape[1], self.width))
        classifier = undrawn(lambda: nn.Linear(self.width, classes))
        random = torch.Generator().manual_seed(seed)
        network = nn.Sequential(layer, classifier)
        draw(network, random)
        adam = torch.optim.Adam(network.parameters(), LEARNING_RATE)
        with one_thread():
            for _ in range(self.steps):
                losses = []
                for x, (_, y) in zip(rows, domains, strict=True):
                    drawn = torch.randint(len(y), (BATCH,), generator=random).numpy()
                    losses.append(cross_entropy(network(x[drawn]), torch.as_tensor(y[drawn])))
                adam.zero_grad()
                torch.stack(losses).mean().backward()
                adam.step()
        weight, bias = (value.detach().double().numpy() for value in layer.parameters())
        out = Scaling.of(np.concatenate(scaled) @ weight.T + bias)
        return FittedHead(unit, weight, bias, out)


@dataclass(frozen=True, eq=False)
class FittedHead:
    """Trained feature layer on a backbone's features."""

    unit: Scaling  # of the backbone's features
    weight: np.ndarray  # [width, D]
    bias: np.ndarray  # [width]
    out: Scaling  # of the features, in the training rows

    def transform(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, width], float32
        made = self.unit.apply(x) @ self.weight.T + self.bias
        return self.out.apply(made).astype(np.float32)
