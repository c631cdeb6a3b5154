"""Adam (Kingma & Ba, 2015) on `[R, P]` with own settings per run.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← θ − η · m̂ / (√v̂ + ε)

Weight decay is added to the gradient, as in `torch.optim.Adam`.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


StepScale = tuple[Tensor, Tensor]
"""Step size and ε of one step, `[R, 1]` each, with bias corrections."""


class Adam(NamedTuple):
    """State of the Adam optimiser for a stack of runs."""

    mean: Tensor  # [R, P]
    square: Tensor  # [R, P]
    steps: Tensor  # [R, 1], double: 1 − β₂ loses three digits in single precision

    @classmethod
    def initial(cls, flat: Tensor) -> Self:  # [R, P]
        """Return the state before the first step."""
        steps = torch.zeros_like(flat[:, :1], dtype=torch.float64)
        return cls(torch.zeros_like(flat), torch.zeros_like(flat), steps)

    def step(
        self,
        flat: Tensor,  # [R, P], updated in place
        gradient: Tensor,  # [R, P]
        learning_rate: Tensor,  # [R]
        weight_decay: Tensor,  # [R]
        alive: Tensor | None = None,  # [R]: runs that may move; all when None
    ) -> None:
        """Make one step in place."""
        if alive is not None:
            gradient = torch.where(alive[:, None], gradient, 0.0)
            learning_rate, weight_decay = learning_rate * alive, weight_decay * alive
        (rate,) = self.next_rates(1, learning_rate)
        self.move(flat, gradient, rate, weight_decay)

    def next_rates(self, n: int, learning_rate: Tensor) -> list[StepScale]:  # [R]
        """Return the step sizes of the next n steps and count these as made."""
        steps = self.steps + torch.arange(1, n + 1, device=self.steps.device)  # [R, n]
        self.steps.add_(n)
        root = (1 - BETA2**steps).sqrt_()  # moved out of √v̂ + ε to save a pass
        rates = root / (1 - BETA1**steps) * learning_rate[:, None]
        kind = self.mean.dtype
        return [
            (rate[:, None], floor[:, None])
            for rate, floor in zip(rates.to(kind).T, (EPSILON * root).to(kind).T, strict=True)
        ]

    def move(
        self, flat: Tensor, gradient: Tensor, rate: StepScale, weight_decay: Tensor
    ) -> None:  # [R, P], [R, P], [R]
        """Make a step with a known step size, in place."""
        size, floor = rate
        gradient = torch.addcmul(gradient, flat, weight_decay[:, None])
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        flat.addcdiv_(self.mean * size, self.square.sqrt().add_(floor), value=-1)

    def reset(self, which: Tensor) -> None:  # [R] bool
        """Set the state of some runs to zero."""
        for part in self:
            part[which] = 0.0

    def take(self, runs: Tensor) -> Self:
        """Return a copy of the state of some runs."""
        return type(self)(*(part[runs] for part in self))

    def first(self, n: int) -> Self:
        """Return the state of the first n runs as views; steps on them change this state."""
        return type(self)(*(part[:n] for part in self))

    def put(self, runs: Tensor, other: Self) -> None:
        """Write the state of some runs back."""
        for part, new in zip(self, other, strict=True):
            part[runs] = new


def clip_norm(gradient: Tensor, limit: Tensor | float) -> Tensor:  # [R, P] -> [R, P]
    """Scale the gradient of each run down to a largest norm."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    limit = limit[:, None] if isinstance(limit, Tensor) else limit
    return gradient / (norm / limit).clamp_min_(1.0)
