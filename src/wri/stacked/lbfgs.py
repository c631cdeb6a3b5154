"""L-BFGS in coordinates in which the curvature is about one.

    x ← x − t · H g,   H g = γ·g + S a − γ·Y b
    b = R⁻¹ Sᵀg,   a = R⁻ᵀ ((D + γ·YᵀY) b − γ·Yᵀg)        (Byrd, Nocedal and Schnabel, 1994)

with the last `MEMORY` steps S and changes of the gradient Y, R the upper triangle of SᵀY, D its
diagonal, γ = sᵀy / yᵀy. The first step has H = 1, because coordinates are chosen so that it is
nearly Newton's; SciPy's first step has length one, and its calls take longer than small sums over
rows. A step is accepted by Wolfe's conditions, near the minimum by those of Hager and Zhang (2005),
which look at slopes: there values differ by rounding only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dtrsv

MEMORY = 20
DESCENT, CURVATURE = 1e-4, 0.9  # of Wolfe's conditions
MOST_TRIES = 30  # of a step length
ROUNDING = 1e-14  # relative, of values

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
    """Minimise a smooth function until no component of its gradient exceeds the tolerance."""
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
            if not falls and new_value <= value + ROUNDING * abs(value):
                falls = along <= (2 * DESCENT - 1) * descent
            if not falls:
                high = length
                rise = new_value - value - length * descent
                # the minimum of a parabola through the three numbers, not too near to an end
                guess = -descent * length**2 / (2 * rise) if np.isfinite(rise) and rise > 0 else low
                length = min(max(guess, low + 0.1 * (high - low)), low + 0.9 * (high - low))
            elif along < CURVATURE * descent:
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
