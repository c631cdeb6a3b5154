"""Linear predictors by L-BFGS on all rows, in double precision.

    minimise  F(S, G) + ρ/2 · |W|²  over W, c,     f_b = W x_b + c
    S_ek = Σ_{b in e} a_bk · l(f_b, y_b),     G_e = Σ_{b in e} a_b0 · f_b · ∇l(f_b, y_b)

F is a smooth function of a few sums over the rows of each environment e. Sums of chunks of a table
add up, and so do their slopes in W and c: one pass over the chunks gives F and its gradient.
a_b0 are weights that sum to one per environment: S_e0 is a risk, and G_e the derivative of a risk
in a scale of the outputs (IRM). The offset c is not penalised.

L-BFGS runs in coordinates in which the curvature of the mean loss is about one:

    U W = u,   Uᵀ U = κ · Cov(x) + ρ

κ of a log-loss is chosen anew where the loss has become small: rows that are nearly sure have
little curvature.

It ends where the gradient in these coordinates is below `GRADIENT`, so that the distance to the
minimum is about as small, or where rounding ends all progress. There is no seed and no step size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import dtrsm, dtrsv

MEMORY = 20
DESCENT, WOLFE_CURVATURE = 1e-4, 0.9  # of Wolfe's conditions
MOST_TRIES = 30  # of a step length
VALUE_ROUNDING = 1e-14  # relative, of values

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Minimum:
    """Where L-BFGS ended."""

    x: np.ndarray  # [n]
    value: float
    slope: np.ndarray  # [n]
    evaluations: int
    is_final: bool  # the gradient is small, or rounding ends all progress


def minimise(evaluate: Evaluate, x: np.ndarray, tolerance: float, most_steps: int) -> Minimum:
    """Minimise a smooth function until no component of its gradient exceeds the tolerance.

        x ← x − t · H g,   H g = γ·g + S a − γ·Y b
        b = R⁻¹ Sᵀg,   a = R⁻ᵀ ((D + γ·YᵀY) b − γ·Yᵀg)        (Byrd, Nocedal and Schnabel, 1994)

    with the last `MEMORY` steps S and changes of the gradient Y, R the upper triangle of SᵀY, D its
    diagonal, γ = sᵀy / yᵀy. The first step has H = 1, because coordinates are chosen so that it is
    nearly Newton's; SciPy's first step has length one, and its calls take longer than small sums
    over rows. A step is accepted by Wolfe's conditions, near the minimum by those of Hager and
    Zhang (2005), which look at slopes: there values differ by rounding only.
    """
    value, slope = evaluate(x)
    past, evaluations, is_final = _Past(len(x)), 1, False
    for _ in range(most_steps):
        if np.abs(slope).max() <= tolerance:
            is_final = True
            break
        direction = past.direction(slope)
        length, descent = 1.0, float(direction @ slope)
        low, high = 0.0, np.inf
        for _ in range(MOST_TRIES):
            at = x + length * direction
            new_value, new_slope = evaluate(at)
            evaluations += 1
            along = float(new_slope @ direction)
            falls = new_value <= value + DESCENT * length * descent
            if not falls and new_value <= value + VALUE_ROUNDING * abs(value):
                falls = along <= (2 * DESCENT - 1) * descent
            if not falls:
                high = length
                rise = new_value - value - length * descent
                # the minimum of a parabola through the three numbers, not too near to an end
                guess = -descent * length**2 / (2 * rise) if np.isfinite(rise) and rise > 0 else low
                length = min(max(guess, low + 0.1 * (high - low)), low + 0.9 * (high - low))
            elif along < WOLFE_CURVATURE * descent:
                low, length = length, 2 * length if high == np.inf else (length + high) / 2
            else:
                break
        else:  # rounding ends all progress
            is_final = True
            break
        past.add(at - x, new_slope - slope)
        x, value, slope = at, new_value, new_slope
    return Minimum(x=x, value=value, slope=slope, evaluations=evaluations, is_final=is_final)


class _Past:
    """The last steps with their changes of the gradient, in a ring."""

    def __init__(self, size: int) -> None:
        self._steps, self._changes = np.zeros((2, MEMORY, size))
        self._order = np.empty(0, int)  # places in the ring, the oldest first
        self._inner, self._squares = np.empty((2, 0, 0))  # SᵀY and YᵀY, in this order
        self._scale = 1.0

    def add(self, step: np.ndarray, change: np.ndarray) -> None:
        product = float(step @ change)
        if product <= 0:  # rounding: no curvature was seen
            return
        kept = slice(max(0, len(self._order) + 1 - MEMORY), None)
        place = len(self._order) if len(self._order) < MEMORY else self._order[0]
        order = self._order = np.append(self._order[kept], place)
        self._steps[place], self._changes[place] = step, change
        squares = (self._changes @ change)[order]
        self._inner = _grow(
            self._inner[kept, kept],
            (self._steps @ change)[order],
            (self._changes @ step)[order[:-1]],
        )
        self._squares = _grow(self._squares[kept, kept], squares, squares[:-1])
        self._scale = product / float(squares[-1])

    def direction(self, slope: np.ndarray) -> np.ndarray:
        """Return −H g."""
        order, upper, scale = self._order, self._inner, self._scale
        if not len(order):
            return -slope
        a, b = np.zeros((2, MEMORY))
        inner = dtrsv(upper, (self._steps @ slope)[order])
        right = np.diagonal(upper) * inner
        right += scale * (self._squares @ inner - (self._changes @ slope)[order])
        a[order], b[order] = dtrsv(upper, right, trans=1), inner
        return scale * (b @ self._changes - slope) - a @ self._steps


def _grow(matrix: np.ndarray, column: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return a square matrix with one more column, and one more row but for its last element."""
    size = len(column)
    grown = np.empty((size, size), order="F")
    grown[:-1, :-1], grown[:, -1], grown[-1, :-1] = matrix, column, row
    return grown


GRADIENT = 1e-8
"""Largest component of the gradient of F + ρ/2·|W|² at which L-BFGS ends."""
CURVATURE = {"logistic": 0.15, "cross_entropy": 0.15, "squared": 2.0}  # κ by loss, at first
STEPS = (50, 500)  # before κ is chosen anew, and after
ROUNDING = 1e-11  # of gradients


class RowLosses(NamedTuple):
    """Losses of rows and their slopes in the outputs; of the scale of the outputs if asked for."""

    loss: np.ndarray  # [n]
    slope: np.ndarray  # [C, n]: short axes first, because long ones are fast to sum along
    scale: np.ndarray | None = None  # [n], f · ∇l
    scale_slope: np.ndarray | None = None  # [C, n]


def logistic(f: np.ndarray, y: np.ndarray, scale: bool) -> RowLosses:  # [1, n], [n]
    """Log-loss of two classes by one log-odds."""
    odds = f[0]
    small = np.exp(-np.abs(odds))
    loss = np.log1p(small) + np.maximum(odds, 0) - y * odds
    chance = np.where(odds >= 0, 1.0, small) / (1 + small)
    slope = chance - y
    if not scale:
        return RowLosses(loss, slope[None])
    curved = slope + odds * chance * (1 - chance)
    return RowLosses(loss, slope[None], odds * slope, curved[None])


def cross_entropy(f: np.ndarray, y: np.ndarray, scale: bool) -> RowLosses:  # [C, n], [n]
    """Log-loss of classes by one output each."""
    own = y * f.shape[1] + np.arange(f.shape[1])  # of the flat outputs
    shifted = f - f.max(0)
    chance = np.exp(shifted)
    total = chance.sum(0)
    chance /= total
    loss = np.log(total) - shifted.take(own)
    slope = chance.copy() if scale else chance
    slope.reshape(-1)[own] -= 1
    if not scale:
        return RowLosses(loss, slope)
    middle = (chance * f).sum(0)
    return RowLosses(loss, slope, middle - f.take(own), slope + chance * (f - middle))


def squared(f: np.ndarray, y: np.ndarray, scale: bool) -> RowLosses:  # [1, n], [n]
    """Squared error."""
    value = f[0]
    error = value - y
    found = RowLosses(np.square(error), 2 * error[None])
    if not scale:
        return found
    return found._replace(scale=2 * value * error, scale_slope=(4 * value - 2 * y)[None])


LOSSES = {"logistic": logistic, "cross_entropy": cross_entropy, "squared": squared}


class Sums(NamedTuple):
    """Sums over the rows of each environment, or the slopes of F in them."""

    losses: np.ndarray  # [E, K], S
    scale: np.ndarray | None = None  # [E], G
    weights: np.ndarray | None = None  # [E, K], Σ_b a_bk


Combine = Callable[[Sums], tuple[float, Sums]]
"""F and its slopes in the sums."""


class Slope(NamedTuple):
    """Value of F and its gradient."""

    value: float
    weight: np.ndarray  # [D, C]
    offset: np.ndarray  # [C]


Differentiate = Callable[[np.ndarray, np.ndarray], Slope]
"""F at a predictor `[D, C]`, `[C]`, with its gradient."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryTable:
    """Rows in memory, environment after environment."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    parts: Sequence[slice]  # rows of each environment
    weights: np.ndarray  # [n, K], a_bk; the first column sums to one per environment
    loss: str
    outputs: int
    scale: bool = False  # whether F depends on G

    @cached_property
    def mean(self) -> np.ndarray:  # [D], every environment counted alike
        return self.weights[:, 0] @ self.x / len(self.parts)

    @cached_property
    def covariance(self) -> np.ndarray:  # [D, D]
        share, mean = self.weights[:, 0] / len(self.parts), self.mean
        root = self.x * np.sqrt(share)[:, None]
        return root.T @ root - np.outer(mean, mean)

    @cached_property
    def totals(self) -> np.ndarray:  # [E, K]
        return np.stack([self.weights[own].sum(0) for own in self.parts])

    def _losses(self, weight: np.ndarray, offset: np.ndarray) -> RowLosses:
        outputs = weight.T @ self.x.T
        outputs += offset[:, None]
        return LOSSES[self.loss](outputs, self.y, self.scale)

    def differentiate(self, weight: np.ndarray, offset: np.ndarray, combine: Combine) -> Slope:
        found = self._losses(weight, offset)
        losses = np.empty_like(self.totals)
        for e, own in enumerate(self.parts):
            np.dot(found.loss[own], self.weights[own], out=losses[e])
        sums = Sums(losses, weights=self.totals)
        if found.scale is not None:
            each = found.scale * self.weights[:, 0]
            sums = sums._replace(scale=np.array([each[own].sum() for own in self.parts]))
        value, at = combine(sums)
        rows = np.empty_like(found.loss)
        for own, slope in zip(self.parts, at.losses, strict=True):
            np.dot(self.weights[own], slope, out=rows[own])
        slopes = found.slope * rows
        if found.scale_slope is not None and at.scale is not None:
            counts = [own.stop - own.start for own in self.parts]
            slopes += np.repeat(at.scale, counts) * self.weights[:, 0] * found.scale_slope
        return Slope(value, (slopes @ self.x).T, slopes.sum(1))

    def sum_rows(self, weight: np.ndarray, offset: np.ndarray) -> "ChunkSums":
        """Return the sums with their slopes in all parameters, for tables in chunks."""
        found = self._losses(weight, offset)
        values, slopes = [], []
        for own in self.parts:
            a = self.weights[own]  # [n, K]
            value = a.T @ found.loss[own]
            slope = a[:, :, None] * found.slope[:, own].T[:, None]  # [n, K, C]
            if found.scale is not None and found.scale_slope is not None:
                value = np.append(value, a[:, 0] @ found.scale[own])
                further = a[:, :1] * found.scale_slope[:, own].T
                slope = np.hstack([slope, further[:, None]])
            by_column = np.tensordot(self.x[own], slope, (0, 0))  # [D, K, C]
            values.append(value)
            slopes.append(np.concatenate([by_column, slope.sum(0)[None]]))
        return ChunkSums(np.stack(values), np.stack(slopes), self.totals)


class ChunkSums(NamedTuple):
    """Sums over the rows of a chunk; they add up. G is the last of the K if there is one."""

    values: np.ndarray  # [E, K]
    slopes: np.ndarray  # [E, D + 1, K, C], in W and c
    weights: np.ndarray  # [E, K], without G


SumChunks = Callable[[Callable[[MemoryTable], tuple[np.ndarray, ...]]], tuple[np.ndarray, ...]]
"""The sum over all chunks of the arrays that a function returns for a chunk."""


class ChunkedTable(NamedTuple):
    """Rows that are read chunk by chunk in each evaluation."""

    sum_chunks: SumChunks
    scale: bool = False  # whether F depends on G

    def differentiate(self, weight: np.ndarray, offset: np.ndarray, combine: Combine) -> Slope:
        work = partial(MemoryTable.sum_rows, weight=weight, offset=offset)
        values, slopes, weights = self.sum_chunks(work)
        count = weights.shape[1]
        sums = Sums(values[:, :count], values[:, count] if self.scale else None, weights)
        value, at = combine(sums)
        every = at.losses if at.scale is None else np.column_stack([at.losses, at.scale])
        gradient = np.einsum("ek,edkc->dc", every, slopes[:, :, : every.shape[1]])
        return Slope(value, gradient[:-1], gradient[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """A linear predictor at a minimum."""

    weight: np.ndarray  # [D, C]
    offset: np.ndarray  # [C]
    value: float
    gradient: float  # largest component, in the coordinates of L-BFGS
    evaluations: int


class LinearSolver:
    """L-BFGS for one table and ridge penalty, from any start."""

    def __init__(self, table: MemoryTable, ridge: float) -> None:
        self.ridge, self._table, self._mean = ridge, table, table.mean
        self._shape = len(table.mean), table.outputs
        self._choose_coordinates(CURVATURE[table.loss])

    def _choose_coordinates(self, curvature: float) -> None:
        self._curvature, width = curvature, len(self._mean)
        whole = curvature * self._table.covariance
        whole.flat[:: width + 1] += max(self.ridge, 1e-10)
        self._factor = np.linalg.cholesky(whole).T  # U, in the order of columns as BLAS has it
        self._unit = curvature**-0.5  # of the offset

    def _adapt(self, loss: float) -> None:
        """Choose coordinates for another curvature, if it has changed much."""
        if self._table.loss == "squared":
            return
        chance = np.exp(-np.clip(loss, 1e-5, 5.0))  # of the class that is right; more is penalty
        curvature = chance * (1 - chance)
        if not 0.4 < curvature / self._curvature < 2.5:
            self._choose_coordinates(curvature)

    def solve(
        self,
        differentiate: Differentiate,
        start: Solution | None = None,
        scale: float = 1.0,
        tolerance: float = GRADIENT,
    ) -> Solution:
        """Minimise (F + ridge penalty) / `scale`, from a solution or from zero."""

        def evaluate(at: np.ndarray) -> tuple[float, np.ndarray]:
            weight, offset = self._unpack(at)
            value, gradient = self.at(differentiate(weight, offset), weight)
            return value / scale, gradient / scale

        width, outputs = self._shape
        evaluations = 0
        for steps in STEPS:
            if start is not None:
                self._adapt(start.value)
            found = minimise(
                evaluate,
                np.zeros((width + 1) * outputs) if start is None else self._pack(start),
                max(tolerance / scale, ROUNDING),
                steps,
            )
            weight, offset = self._unpack(found.x)
            evaluations += found.evaluations
            start = Solution(
                weight=weight,
                offset=offset,
                value=found.value * scale,
                gradient=float(np.abs(found.slope).max()),
                evaluations=evaluations,
            )
            if found.is_final:
                break
        assert start is not None  # STEPS is not empty
        return start

    def at(self, slope: Slope, weight: np.ndarray) -> tuple[float, np.ndarray]:
        """Return F + ridge penalty and its gradient in the coordinates of L-BFGS."""
        by_weight = slope.weight - np.outer(self._mean, slope.offset) + self.ridge * weight
        inner = dtrsm(1.0, self._factor, by_weight, trans_a=1)
        gradient = [inner.ravel(), slope.offset * self._unit]
        value = slope.value + self.ridge / 2 * float(np.square(weight).sum())
        return value, np.concatenate(gradient)

    def _pack(self, found: Solution) -> np.ndarray:
        offset = (found.offset + self._mean @ found.weight) / self._unit
        return np.concatenate([(self._factor @ found.weight).ravel(), offset])

    def _unpack(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width, outputs = self._shape
        inner = at[: width * outputs].reshape(width, outputs)
        weight = dtrsm(1.0, self._factor, inner)
        return weight, at[width * outputs :] * self._unit - self._mean @ weight
