"""Least squares of bilinear residuals, many problems at once; used by general position.

    min Σ_p r_p²,   r_p = xᵀA_p z + θᵀL_p z

over unit x, any θ and unit z, or with z = x.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class BilinearProblems(NamedTuple):
    """Residuals of N problems with P pairs each; `same` sets z = x."""

    quadratic: np.ndarray  # [N, P, d, d], A
    linear: np.ndarray  # [N, P, g, d], L
    same: bool

    def residuals(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return residuals and their Jacobian at points."""
        g, d = self.linear.shape[-2:]
        x, theta = points[..., :d], points[..., d : d + g]
        z = x if self.same else points[..., d + g :]
        by_z = _over(self.quadratic, x) + _over(self.linear, theta)  # [N, S, P, d]
        by_x = _over(self.quadratic.swapaxes(-1, -2), z)
        by_theta = _over(self.linear.swapaxes(-1, -2), z)  # [N, S, P, g]
        r = (by_z @ z[..., None])[..., 0]
        if self.same:
            return r, np.concatenate([_tangent(by_x + by_z, x), by_theta], -1)
        return r, np.concatenate([_tangent(by_x, x), by_theta, _tangent(by_z, z)], -1)

    def retract(self, points: np.ndarray) -> np.ndarray:
        """Return points with unit x and z."""
        g, d = self.linear.shape[-2:]
        length = np.linalg.norm(points[..., :d], axis=-1, keepdims=True)
        first = points[..., : d + g] / length  # r is homogeneous in (x, θ)
        return first if self.same else np.concatenate([first, _unit(points[..., d + g :])], -1)


def minimise(
    search: BilinearProblems, starts: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the smallest root mean square of r, and x and θ at the minimum."""
    n, pairs, g, d = search.linear.shape
    sizes = np.linalg.norm(search.linear, axis=(1, 3))  # [N, g]
    sizes = np.where(sizes > 0, sizes, 1)  # θ in comparable units
    search = _only_span(search._replace(linear=search.linear / sizes[:, None, :, None]))
    random = np.random.default_rng(seed)
    x, z = _unit(random.normal(size=(2, n, starts, d)))
    z = x if search.same else z
    by_theta = _over(search.linear.swapaxes(-1, -2), z)  # r is linear in θ: start at its minimum
    at_zero = (_over(search.quadratic, x) @ z[..., None])[..., 0]
    theta = -(np.linalg.pinv(by_theta, rcond=1e-10) @ at_zero[..., None])[..., 0]
    if search.same:  # half of the starts are far away: some predictors are found only from there
        theta[:, ::2] *= random.standard_cauchy((n, len(theta[0, ::2]), 1))
    points = np.concatenate([x, theta] if search.same else [x, theta, z], -1)
    points, squares = least_squares(search.residuals, points, search.retract, steps=20)
    few = np.take_along_axis(points, squares.argsort(1)[:, :5, None], 1)  # [N, 5, q]
    few, squares = least_squares(search.residuals, few, search.retract)
    best = np.take_along_axis(few, squares.argmin(1)[:, None, None], 1)[:, 0]  # [N, q]
    return np.sqrt(squares.min(1) / pairs), best[:, :d], best[:, d : d + g] / sizes


def _only_span(search: BilinearProblems) -> BilinearProblems:
    """Return problems with the same Σ_p r_p² and fewer rows: with ratio weights k − 1."""
    n, pairs, g, d = search.linear.shape
    rows = [part.reshape(n, pairs, -1) for part in (search.quadratic, search.linear)]
    _, values, directions = np.linalg.svd(np.concatenate(rows, -1), full_matrices=False)
    rank = max(1, int((values > 1e-14 * values[:, :1]).sum(-1).max()))
    kept = values[:, :rank, None] * directions[:, :rank]
    return search._replace(
        quadratic=kept[..., : d * d].reshape(n, rank, d, d),
        linear=kept[..., d * d :].reshape(n, rank, g, d),
    )


def _over(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vᵀA_p: `[N, P, a, b]` and `[N, S, a]` to `[N, S, P, b]`."""
    n, pairs, a, b = matrices.shape
    product = vectors @ matrices.transpose(0, 2, 1, 3).reshape(n, a, pairs * b)
    return product.reshape(n, -1, pairs, b)


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _tangent(jacobian: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Remove the direction in which only the length of `at` changes."""
    return jacobian - (jacobian @ at[..., None]) * at[..., None, :]


def least_squares(
    residuals: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    retract: Callable[[np.ndarray], np.ndarray] = lambda point: point,
    steps: int = 200,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise Σ_p r_p² of many problems at once with the Levenberg–Marquardt method.

    `residuals` takes points `[..., q]` to residuals `[..., P]` and their Jacobian `[..., P, q]`;
    `retract` brings a point back to the allowed set. Return the points and Σ_p r_p² there.
    """
    point, identity = retract(start), np.eye(start.shape[-1])
    r, jacobian = residuals(point)
    squares = (r**2).sum(-1)
    damping = np.full_like(squares, 1e-2)
    for _ in range(steps):
        across = jacobian.swapaxes(-1, -2)
        normal = across @ jacobian
        size = damping * normal.trace(axis1=-2, axis2=-1) + np.finfo(float).tiny
        step = np.linalg.solve(normal + size[..., None, None] * identity, across @ r[..., None])
        trial = retract(point - step[..., 0])
        trial_r, trial_jacobian = residuals(trial)
        trial_squares = (trial_r**2).sum(-1)
        better = trial_squares < squares
        settled = better & (squares - trial_squares < 1e-14 * squares)
        point = np.where(better[..., None], trial, point)
        r = np.where(better[..., None], trial_r, r)
        jacobian = np.where(better[..., None, None], trial_jacobian, jacobian)
        squares = np.where(better, trial_squares, squares)
        damping = np.clip(np.where(better, damping / 5, damping * 5), 1e-10, 1e10)
        if (settled | (squares < 1e-28) | (damping >= 1e10)).all():
            break
    return point, squares
