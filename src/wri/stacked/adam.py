"""Adam (Kingma & Ba, 2015) on `[R, P]` with own settings per run.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← θ − η · m̂ / (√v̂ + ε)

Weight decay is added to the gradient, as in `torch.optim.Adam`.
"""

from typing import NamedTuple, Self

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class StepScale(NamedTuple):
    """Step size and ε of one step, with bias corrections."""

    size: Tensor  # [R, 1]
    floor: Tensor  # [R, 1]


class Adam(NamedTuple):
    """State of the Adam optimiser for a stack of runs.

    `step`, `move` and `reset` change the state, and the parameters, in place.

    Attributes
    ----------
    mean : Tensor of shape (R, P)
        Running mean of the gradient.
    square : Tensor of shape (R, P)
        Running mean of its square.
    steps : Tensor of shape (R, 1)
        Number of steps, in double precision: 1 − β₂ loses three digits in single precision.

    References
    ----------
    D. P. Kingma and J. Ba, "Adam: A Method for Stochastic Optimization", ICLR, 2015.

    Examples
    --------
    >>> import torch
    >>> from wri.stacked import Adam
    >>> flat = torch.ones(1, 2)
    >>> adam = Adam.initial(flat)
    >>> adam.step(flat, 2 * flat, torch.tensor([0.1]), torch.tensor([0.0]))
    >>> flat
    tensor([[0.9000, 0.9000]])
    """

    mean: Tensor  # [R, P]
    square: Tensor  # [R, P]
    steps: Tensor  # [R, 1], double: 1 − β₂ loses three digits in single precision

    @classmethod
    def initial(cls, flat: Tensor) -> Self:
        """Return the state before the first step.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters.

        Returns
        -------
        state : Adam
            Zeros.
        """
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
        """Make one step in place.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters, updated in place.
        gradient : Tensor of shape (R, P)
            Gradient of each run.
        learning_rate : Tensor of shape (R,)
            Step size of each run.
        weight_decay : Tensor of shape (R,)
            Weight decay of each run.
        alive : Tensor of shape (R,) or None, default=None
            Runs that may move. None: all.
        """
        if alive is not None:
            gradient = torch.where(alive[:, None], gradient, 0.0)
            learning_rate, weight_decay = learning_rate * alive, weight_decay * alive
        (rate,) = self.next_rates(1, learning_rate)
        self.move(flat, gradient, rate, weight_decay)

    def next_rates(self, n: int, learning_rate: Tensor) -> list[StepScale]:
        """Return the step sizes of the next n steps and count these as made.

        Parameters
        ----------
        n : int
            Number of steps.
        learning_rate : Tensor of shape (R,)
            Step size of each run.

        Returns
        -------
        rates : list of StepScale
            One per step.
        """
        steps = self.steps + torch.arange(1, n + 1, device=self.steps.device)  # [R, n]
        self.steps.add_(n)
        root = (1 - BETA2**steps).sqrt_()  # moved out of √v̂ + ε to save a pass
        rates = root / (1 - BETA1**steps) * learning_rate[:, None]
        kind = self.mean.dtype
        return [
            StepScale(rate[:, None], floor[:, None])
            for rate, floor in zip(rates.to(kind).T, (EPSILON * root).to(kind).T, strict=True)
        ]

    def move(self, flat: Tensor, gradient: Tensor, rate: StepScale, weight_decay: Tensor) -> None:
        """Make a step with a known step size, in place.

        Parameters
        ----------
        flat : Tensor of shape (R, P)
            Parameters, updated in place.
        gradient : Tensor of shape (R, P)
            Gradient of each run.
        rate : StepScale
            From `next_rates`.
        weight_decay : Tensor of shape (R,)
            Weight decay of each run.
        """
        gradient = torch.addcmul(gradient, flat, weight_decay[:, None])
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        flat.addcdiv_(self.mean * rate.size, self.square.sqrt().add_(rate.floor), value=-1)

    def reset(self, which: Tensor) -> None:  # [R] bool
        """Set the state of some runs to zero.

        Parameters
        ----------
        which : Tensor of shape (R,)
            True for the runs to reset.
        """
        for part in self:
            part[which] = 0.0

    def take(self, runs: Tensor) -> Self:
        """Return a copy of the state of some runs.

        Parameters
        ----------
        runs : Tensor
            Numbers of the runs.

        Returns
        -------
        state : Adam
            Their state.
        """
        return type(self)(*(part[runs] for part in self))

    def first(self, n: int) -> Self:
        """Return the state of the first n runs as views; steps on them change this state.

        Parameters
        ----------
        n : int
            Number of runs.

        Returns
        -------
        state : Adam
            Views.
        """
        return type(self)(*(part[:n] for part in self))

    def put(self, runs: Tensor, other: Self) -> None:
        """Write the state of some runs back.

        Parameters
        ----------
        runs : Tensor
            Numbers of the runs.
        other : Adam
            Their state.
        """
        for part, new in zip(self, other, strict=True):
            part[runs] = new


def clip_norm(gradient: Tensor, limit: Tensor | float) -> Tensor:  # [R, P] -> [R, P]
    """Scale the gradient of each run down to a largest norm.

    Parameters
    ----------
    gradient : Tensor of shape (R, P)
        Gradient of each run.
    limit : Tensor of shape (R,) or float
        Largest norm; `inf` changes nothing.

    Returns
    -------
    clipped : Tensor of shape (R, P)
        Gradient with norm of at most `limit`.

    Examples
    --------
    >>> import torch
    >>> from wri.stacked import clip_norm
    >>> clip_norm(torch.tensor([[3.0, 4.0]]), 1.0)
    tensor([[0.6000, 0.8000]])
    """
    norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    limit = limit[:, None] if isinstance(limit, Tensor) else limit
    return gradient / (norm / limit).clamp_min_(1.0)
