"""Weight of each row in an objective, at the current scores of a predictor.

    T(l_1 … l_n) = mean_e R_e + λ · penalty          any objective of the registry
    ω_r = ∂T/∂l_r,   κ_r = ∂T/∂(f·l′)_r              κ for IRM, whose penalty sees f·l′(f)

Trees need a gradient and a positive curvature in each row's score f:

    g = ω l′ + κ (l′ + H f),    h = max(|ω + κ|, c·ω⁰) · l″,    ω⁰ = ω without a penalty

where H f is the derivative of l′ along the scores: f l″ for one score, and p_c (f_c − Σ_k p_k f_k)
for classes, whose scores act together. The curvature is LightGBM's, which has no mixed terms.
ω may be negative: a row of an environment whose weighted risk is too low asks for a larger loss.
For such rows l″ is replaced by its largest value, because l′/l″ is unbounded for a flat loss.
T is the objective's own `loss` (`wri.objectives`), with the scores in place of a network's
parameters, so that no penalty is implemented twice.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import Tensor

from wri.errors import InputError
from wri.objectives import Objective
from wri.objectives.base import Batch, DrawnRows, Draws, Model, Start, StepContext, TrainingRows
from wri.stacked import Loss, Streams, View, Views

LEAST_CURVATURE = 0.2
"""c: smallest curvature of a row, as a share of its curvature without a penalty."""

AT_ONCE = 2**16  # rows whose densities are computed at once


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedRows:
    """Training rows of all environments.

    Parameters
    ----------
    features : ndarray of shape (n, D)
        What densities see of the rows, in units of about one.
    targets : ndarray of shape (n,)
        Class numbers, or numbers in units of about one.
    environment : ndarray of int of shape (n,)
        Environment of each row, from 0.
    loss : Loss
        One of the losses in `wri.stacked`.
    weights : ndarray of shape (n,)
        Positive weight of each row within its environment.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.boosting import WeightedRows
    >>> from wri.stacked import LOGISTIC
    >>> rows = WeightedRows(
    ...     features=np.zeros((4, 1)),
    ...     targets=np.array([0, 1, 0, 1]),
    ...     environment=np.array([0, 0, 1, 1]),
    ...     loss=LOGISTIC,
    ...     weights=np.ones(4),
    ... )
    >>> rows.n_environments
    2
    """

    features: np.ndarray
    targets: np.ndarray
    environment: np.ndarray
    loss: Loss
    weights: np.ndarray

    @property
    def n_environments(self) -> int:
        """Number of environments."""
        return int(self.environment.max()) + 1

    @property
    def by_environment(self) -> list[np.ndarray]:
        """Row numbers of each environment."""
        return [np.flatnonzero(self.environment == e) for e in range(self.n_environments)]

    def padded(self) -> tuple[Tensor, Tensor]:
        """Return row numbers and their shares of each environment's risk.

        Returns
        -------
        numbers : Tensor of shape (E, B)
            Row numbers; short environments are padded with their last row.
        shares : Tensor of shape (E, B)
            Shares, which sum to one per environment; 0 for padding.
        """
        rows = self.by_environment
        longest = max(map(len, rows))
        number = np.stack([np.pad(own, (0, longest - len(own)), mode="edge") for own in rows])
        share = np.zeros(number.shape)
        for e, own in enumerate(rows):
            share[e, : len(own)] = self.weights[own] / self.weights[own].sum()
        return torch.from_numpy(number), torch.from_numpy(share)


class _Scores:
    """Scores of all rows as the parameters of a network; its inputs are row numbers."""

    def __init__(self, features: Tensor, outputs: int) -> None:
        self._features = features
        self._outputs = outputs

    def view_width(self, what: View) -> int:
        if what != "x":
            raise InputError(f"densities of trees see the inputs, 'x', not {what!r}")
        return self._features.shape[1]

    def represent(self, flat: Tensor, x: Tensor) -> Tensor:
        raise InputError("trees have no representation Φ(x) for an objective to see")

    head = represent

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:  # [1, n·C], [1, E, B, 1] -> [1, E, B, C]
        return flat.view(-1, self._outputs)[x[..., 0]]

    def views(self, flat: Tensor, x: Tensor) -> Views:
        seen = self._features[x[..., 0]]
        return Views(seen, seen, self.outputs(flat, x))


class _Tape:
    """Losses of rows, and scale gradients, as often as an objective asks for them."""

    def __init__(self, loss: Loss) -> None:
        self.losses: list[Tensor] = []
        self.scales: list[Tensor] = []
        each = self._keep(loss.per_example, self.losses)
        scale = self._keep(loss.scale_gradient, self.scales)
        self.loss = replace(loss, per_example=each, scale_gradient=scale, classes=False)

    @staticmethod
    def _keep(
        function: Callable[[Tensor, Tensor], Tensor], kept: list[Tensor]
    ) -> Callable[[Tensor, Tensor], Tensor]:
        def call(outputs: Tensor, targets: Tensor) -> Tensor:
            kept.append(function(outputs, targets).detach().requires_grad_())
            return kept[-1]

        return call


class _WholeDraws(Draws):
    """All training rows, for densities that are fitted once."""

    def __init__(self, rows: WeightedRows) -> None:
        self._rows = rows
        self._x = torch.from_numpy(rows.features)

    @property
    def rows_per_step(self) -> int:
        return len(self._x)

    def density_rows(self, runs: Sequence[int], steps: Sequence[int]) -> Iterator[DrawnRows]:
        raise InputError("trees take densities that are fitted once, before the first tree")

    def batch(self, rows: Tensor) -> Batch:
        return Batch(self._x[rows], torch.from_numpy(self._rows.targets)[rows])

    def n_learned(self, run: int) -> int:
        return len(self._x)

    def learned(self, runs: Sequence[int]) -> Iterator[Tensor]:
        for piece in torch.arange(len(self._x)).split(AT_ONCE):
            yield piece[None]

    def training_rows(self, run: int) -> TrainingRows:
        rows, own = self._rows, self._rows.by_environment
        order = np.concatenate(own)
        return TrainingRows(
            rows.features[order], rows.targets[order], rows.weights[order], [*map(len, own)]
        )

    def split(self, run: int) -> Hashable:
        return 0


class RoundWeights(NamedTuple):
    """Weights of rows at one round, in units in which they sum to the number of rows."""

    plain: np.ndarray  # [n], ω⁰
    loss: np.ndarray  # [n], ω
    scale: np.ndarray  # [n], κ


class RowWeights:
    """Row weights of an objective, round by round; its hyper-parameters count rounds as steps."""

    def __init__(
        self, objective: Objective, rows: WeightedRows, hyper: Mapping[str, float], seed: int = 0
    ) -> None:
        self._objective = objective
        self._rows = rows
        self._seed = seed
        self._number, self._share = rows.padded()
        targets = torch.from_numpy(rows.targets)[self._number][None]  # [1, E, B]
        number = self._number[None, :, :, None]  # [1, E, B, 1]
        self._batch = Batch(number, targets, self._share[None], self._number[None])
        self._hyper = {name: torch.tensor([float(value)]) for name, value in hyper.items()}
        self._features = torch.from_numpy(rows.features)
        self._state = objective.initial(
            Start(
                seeds=[seed],
                environments=rows.n_environments,
                network=_Scores(self._features, 1),
                dtype=torch.float64,
                device="cpu",
                draws=_WholeDraws(rows),
            )
        )
        self._state = objective.freeze_weights(self._batch, self._state)
        self.plain = self._per_row(self._share / rows.n_environments)

    def at(self, scores: np.ndarray, round_: int) -> RoundWeights:  # [n, C]
        """Return the weights at these scores; call it for each round in order."""
        tape = _Tape(self._rows.loss)
        with torch.enable_grad():
            total, self._state = self._evaluate(tape.loss, scores, round_)
        kept = [*tape.losses, *tape.scales]
        slopes = torch.autograd.grad(total.sum(), kept, allow_unused=True)
        omega, kappa = np.zeros_like(self.plain), np.zeros_like(self.plain)
        for place, slope in enumerate(slopes):
            if slope is not None:
                into = omega if place < len(tape.losses) else kappa
                into += self._per_row(slope[0])
        return RoundWeights(self.plain, omega, kappa)

    def value(self, scores: np.ndarray, round_: int) -> float:  # [n, C]
        """Return the value of the objective at these scores."""
        with torch.no_grad():
            return float(self._evaluate(self._rows.loss, scores, round_)[0])

    def _evaluate(self, loss: Loss, scores: np.ndarray, round_: int) -> tuple[Tensor, Any]:
        """Return T, `[1]`, and the state of the objective after it."""
        network = _Scores(self._features, scores.shape[1])
        flat = torch.from_numpy(np.ascontiguousarray(scores)).reshape(1, -1)
        random = Streams([self._seed], f"round {round_}", torch.float64, "cpu")
        context = StepContext(round_, self._hyper, random)
        return self._objective.loss(Model(network, flat, loss), self._batch, self._state, context)

    def _per_row(self, values: Tensor) -> np.ndarray:  # [E, B] -> [n]
        """Convert values of padded environments to values of rows, in units of one row of n."""
        real = self._share > 0
        found: np.ndarray = np.zeros(len(self._rows.targets))
        found[self._number[real].numpy()] = values[real].numpy() * len(found)
        return found


class LossSlopes(NamedTuple):
    """Derivatives of the loss in the scores, `[n, C]` each."""

    first: np.ndarray
    second: np.ndarray  # positive, one score at a time
    along: np.ndarray  # H f, of the first derivative along the scores; exact for any C
    largest: float  # upper bound of `second`


def loss_slopes(name: str, scores: np.ndarray, targets: np.ndarray) -> LossSlopes:
    """Return the slopes of the loss of that name at scores `[n, C]` and targets `[n]`.

    The factors are those of LightGBM's own objectives: half of the squared loss, and C/(C − 1)
    times the curvature of C classes.
    """
    if name == "squared":
        return LossSlopes(scores - targets[:, None], np.ones(scores.shape), scores, 1.0)
    if name == "logistic":
        p = expit(scores)
        curvature = p * (1 - p)
        return LossSlopes(p - targets[:, None], curvature, curvature * scores, 0.25)
    p, classes = softmax(scores, axis=1), scores.shape[1]
    factor = classes / (classes - 1)
    along = p * (scores - (p * scores).sum(1, keepdims=True))
    own = targets[:, None] == np.arange(classes)
    return LossSlopes(p - own, factor * p * (1 - p), along, factor / 4)


def tree_gradients(weights: RoundWeights, slopes: LossSlopes) -> tuple[np.ndarray, np.ndarray]:
    """g and h of every row and score, `[n, C]` each."""
    omega, kappa = weights.loss[:, None], weights.scale[:, None]
    gradient = omega * slopes.first + kappa * (slopes.first + slopes.along)
    size = np.maximum(np.abs(omega + kappa), LEAST_CURVATURE * weights.plain[:, None])
    return gradient, size * np.where(omega + kappa < 0, slopes.largest, slopes.second)
