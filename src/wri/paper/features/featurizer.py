"""The paper's featurizer: a narrow feature layer behind a backbone, trained by ERM.

    x -> backbone -> linear to `width` features | linear to classes

trained by the mean cross-entropy over the training domains; the features are left of the bar, in
units of the training rows. There are two modes:

    fit_head   the backbone is fixed: its features are given, and only the two linear layers learn
    fit_full   everything learns, from pictures that are read in every step, and the result is a
               `Backbone`; the defaults are DomainBed's, meant for a GPU

The caller chooses the rows: no row of a held-out domain may be among them.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from wri.errors import InputError
from wri.features.backbones import Backbone
from wri.paper.features.networks import draw, undrawn
from wri.progress import Progress, silent
from wri.rows import Scaling
from wri.threads import one_thread

Batch = Callable[[int, np.ndarray], Tensor]
"""Function from a domain and row numbers to inputs `[B, …]`."""


@dataclass(frozen=True, kw_only=True)
class Featurizer:
    """Settings of the training of a feature layer.

    Parameters
    ----------
    width
        Number of features; the paper's are 64 and 32.
    steps
        Of Adam.
    batch_size
        Rows of each domain in a step.
    learning_rate, weight_decay
        Of Adam.
    """

    width: int = 64
    steps: int = 500
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("width", "steps", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")

    @classmethod
    def domainbed(cls, width: int = 64) -> "Featurizer":
        """Return DomainBed's defaults for a network that learns as a whole."""
        return cls(width=width, steps=5000, batch_size=32, learning_rate=5e-5)

    def fit_head(
        self, domains: Sequence[tuple[np.ndarray, np.ndarray]], seed: int, classes: int
    ) -> "FittedHead":
        """Train the feature layer on a backbone's features.

        Parameters
        ----------
        domains
            Features `[n, D]` and classes `[n]` of each training domain.
        seed
            Of initial weights and batches.
        classes
            How many there are in all domains.
        """
        unit = Scaling.of(np.concatenate([x for x, _ in domains]).astype(float))
        scaled = [unit.apply(x) for x, _ in domains]
        rows = [torch.as_tensor(x, dtype=torch.float32) for x in scaled]
        layer = undrawn(lambda: nn.Linear(rows[0].shape[1], self.width))
        with one_thread():
            self._train(
                layer,
                lambda domain, numbers: rows[domain][numbers],
                [y for _, y in domains],
                (seed, classes, "cpu"),
                silent,
            )
        weight, bias = (value.detach().double().numpy() for value in layer.parameters())
        out = Scaling.of(np.concatenate(scaled) @ weight.T + bias)
        return FittedHead(unit, weight, bias, out)

    def fit_full(
        self,
        backbone: Backbone,
        domains: Sequence[tuple[Sequence[Path], np.ndarray]],
        seed: int,
        classes: int,
        device: str = "cpu",
        progress: Progress = silent,
    ) -> Backbone:
        """Train a copy of a backbone with the feature layer behind it.

        Parameters
        ----------
        backbone
            Where training starts, and how pictures are read.
        domains
            Paths and classes `[n]` of each training domain.
        seed, classes
            As in `fit_head`.
        device
            "cpu" or "cuda".
        progress
            Called with (done, of) steps.
        """
        [sample] = domains[0][0][:1]
        wide = len(backbone.for_extraction().features(sample.read_bytes()))
        layer = undrawn(lambda: nn.Linear(wide, self.width))
        network = nn.Sequential(deepcopy(backbone.network), layer).to(device)

        def read(domain: int, numbers: np.ndarray) -> Tensor:
            files = [domains[domain][0][n].read_bytes() for n in numbers]
            pixels = np.stack([backbone.preprocessing.pixels(data) for data in files])
            return backbone.preprocessing.normalise(pixels)

        targets = [y for _, y in domains]
        self._train(network, read, targets, (seed, classes, device), progress, fresh=layer)
        name = f"{backbone.name}, {self.width} features, seed {seed}"
        return Backbone(name, network.eval().cpu(), backbone.preprocessing)

    def _train(
        self,
        network: nn.Module,
        batch: Batch,
        targets: Sequence[np.ndarray],
        how: tuple[int, int, str],
        progress: Progress,
        fresh: nn.Module | None = None,
    ) -> None:
        """Train by ERM; `how` holds seed, classes and device, `fresh` starts at random."""
        seed, classes, device = how
        random = torch.Generator().manual_seed(seed)
        classifier = undrawn(lambda: nn.Linear(self.width, classes))
        draw(fresh or network, random)
        draw(classifier, random)
        whole: Any = nn.Sequential(network, classifier).to(device)
        whole.train()
        adam = torch.optim.Adam(
            whole.parameters(), self.learning_rate, weight_decay=self.weight_decay
        )
        for step in range(self.steps):
            losses = []
            for domain, y in enumerate(targets):
                drawn = torch.randint(len(y), (self.batch_size,), generator=random).numpy()
                outputs = whole(batch(domain, drawn).to(device))
                losses.append(cross_entropy(outputs, torch.as_tensor(y[drawn]).to(device)))
            adam.zero_grad()
            torch.stack(losses).mean().backward()
            adam.step()
            progress(step + 1, self.steps)


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
