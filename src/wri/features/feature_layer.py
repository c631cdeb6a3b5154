"""The paper's featurizer: a narrow feature layer on given features, trained by ERM.

    x -> linear to `width` features | linear to classes

trained by the mean cross-entropy over the training domains; the features are left of the bar, in
units of the training rows. The caller chooses the rows: no row of a held-out domain may be among
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from wri.errors import InputError
from wri.rows import Scaling
from wri.threads import one_thread

BATCH = 64  # rows of each domain in a step
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class FeatureLayer:
    """Feature layer that a sweep trains for each trial, held-out environment and width.

    Parameters
    ----------
    widths : tuple of int, default=(64, 32)
        Possible numbers of features. The largest is the default; a sweep draws one of them for each
        other draw of hyper-parameters.
    steps : int, default=500
        Training steps.

    Raises
    ------
    InputError
        If a width or the number of steps is less than 1.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.features import FeatureLayer
    >>> layer = FeatureLayer((2, 4), steps=5)
    >>> layer.widths
    (4, 2)
    >>> x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    >>> layer.fit([(x, y)], width=4, classes=2, seed=0).transform(x).shape
    (6, 4)
    """

    widths: tuple[int, ...] = (64, 32)
    steps: int = 500

    def __post_init__(self) -> None:
        if not self.widths or min(*self.widths, self.steps) < 1:
            raise InputError(
                f"a feature layer needs widths and steps of at least 1, not {self.widths} and "
                f"{self.steps}"
            )
        object.__setattr__(self, "widths", tuple(sorted(set(self.widths), reverse=True)))

    def fit(
        self,
        domains: Sequence[tuple[np.ndarray, np.ndarray]],
        *,
        width: int,
        classes: int,
        seed: int,
    ) -> "FittedFeatureLayer":
        """Train the layer.

        Parameters
        ----------
        domains : sequence of (ndarray of shape (n, D), ndarray of shape (n,))
            Features and class numbers of each training domain.
        width : int
            Number of features.
        classes : int
            Number of classes.
        seed : int
            Seed of initial weights and batches.

        Returns
        -------
        layer : FittedFeatureLayer
            The trained layer.
        """
        unit = Scaling.of(np.concatenate([x for x, _ in domains]).astype(float))
        scaled = [unit.apply(x) for x, _ in domains]
        rows = [torch.as_tensor(x, dtype=torch.float32) for x in scaled]
        random = torch.Generator().manual_seed(seed)
        layer = _draw_linear(rows[0].shape[1], width, random)
        classifier = _draw_linear(width, classes, random)
        adam = torch.optim.Adam([*layer, *classifier], LEARNING_RATE)
        with one_thread():
            for _ in range(self.steps):
                losses = []
                for x, (_, y) in zip(rows, domains, strict=True):
                    drawn = torch.randint(len(y), (BATCH,), generator=random).numpy()
                    outputs = linear(linear(x[drawn], *layer), *classifier)  # [B, C]
                    losses.append(cross_entropy(outputs, torch.as_tensor(y[drawn]).long()))
                adam.zero_grad()
                torch.stack(losses).mean().backward()
                adam.step()
        weight, bias = (value.detach().double().numpy() for value in layer)
        out = Scaling.of(np.concatenate(scaled) @ weight.T + bias)
        return FittedFeatureLayer(unit, weight, bias, out)


def _draw_linear(inputs: int, outputs: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw weights and biases like PyTorch: uniform in ±1/√inputs."""
    bound = inputs**-0.5
    weight = torch.empty(outputs, inputs).uniform_(-bound, bound, generator=random)
    bias = torch.empty(outputs).uniform_(-bound, bound, generator=random)
    return weight.requires_grad_(), bias.requires_grad_()


@dataclass(frozen=True, eq=False)
class FittedFeatureLayer:
    """Trained feature layer."""

    unit: Scaling  # of the inputs
    weight: np.ndarray  # [width, D]
    bias: np.ndarray  # [width]
    out: Scaling  # of the features, in the training rows

    def transform(self, x: np.ndarray) -> np.ndarray:  # [n, D] -> [n, width], float32
        made = self.unit.apply(x) @ self.weight.T + self.bias
        return self.out.apply(made).astype(np.float32)
