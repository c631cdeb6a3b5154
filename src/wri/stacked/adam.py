"""Adam (Kingma & Ba, 2015) on `[R, P]` with every run's own settings.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← θ − η · m̂ / (√v̂ + ε)

Weight decay is added to the gradient, as in `torch.optim.Adam`.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam(NamedTuple):
    """State of the optimiser; `step` and `reset` write into it and into the parameters."""

    mean: Tensor  # [R, P]
    square: Tensor  # [R, P]
    steps: Tensor  # [R, 1], double: 1 − β₂ loses three digits in single precision

    @classmethod
    def initial(cls, flat: Tensor) -> Self:
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
        gradient = torch.addcmul(gradient, flat, weight_decay[:, None])
        if alive is not None:
            gradient = torch.where(alive[:, None], gradient, 0.0)
        self.steps.add_(1)
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = (1 - BETA2**self.steps).sqrt_()  # [R, 1]; moved out of √v̂ + ε to save a pass
        rate = (root / (1 - BETA1**self.steps) * learning_rate[:, None]).to(flat.dtype)
        if alive is not None:
            rate = rate * alive[:, None]
        spread = self.square.sqrt().add_((EPSILON * root).to(flat.dtype))
        flat.addcdiv_(self.mean * rate, spread, value=-1)

    def reset(self, which: Tensor) -> None:  # [R] bool
        """Forget the past of the runs in `which`."""
        for part in self:
            part[which] = 0.0

    def take(self, runs: Tensor) -> Self:
        return type(self)(*(part[runs] for part in self))

    def first(self, n: int) -> Self:
        """The first n runs, as views: steps on them write into this state."""
        return type(self)(*(part[:n] for part in self))

    def put(self, runs: Tensor, other: Self) -> None:
        for part, new in zip(self, other, strict=True):
            part[runs] = new


def clip_norm(gradient: Tensor, limit: Tensor | float) -> Tensor:  # [R, P] -> [R, P]
    """Scale every run's gradient down to the norm `limit`; `inf` leaves it as it is."""
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    limit = limit[:, None] if isinstance(limit, Tensor) else limit
    return gradient * (limit / norm).clamp_(max=1.0).nan_to_num_(1.0)  # limit/0 is infinite, so 1
