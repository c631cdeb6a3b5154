"""Weighted moments of pairs of environments: all that a linear predictor's weighted risks need.

    Σ_ij = E_i[α_ij x xᵀ],   κ_ij = E_i[α_ij x y],   c_ij = E_i[α_ij y²]
    R_ij(w) = wᵀ Σ_ij w − 2 wᵀ κ_ij + c_ij,   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Entry [i, j] belongs to i's rows weighted towards j. The paper's μ^{i,j} is 2 κ_ij. Weights α_ij:

    density   p_j
    overlap   p_j / (p_i + p_j)
    ratio     p_1 / p_i for every j: all environments are weighted to look like the first
    uniform   1
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from wri.errors import InputError, check_option

Weighting = Literal["density", "overlap", "ratio", "uniform"]
ClosedForm = Literal["density", "ratio", "uniform"]


class MomentDifferences(NamedTuple):
    """What separates the two sides of each pair i < j, in units of the pair's E[α y²]."""

    second: np.ndarray  # [..., P, d, d], (Σ_ij − Σ_ji) / c
    cross: np.ndarray  # [..., P, d], (κ_ij − κ_ji) / c
    target: np.ndarray  # [..., P], (c_ij − c_ji) / c


class WeightedMoments(NamedTuple):
    second: np.ndarray  # [..., k, k, d, d], Σ_ij
    cross: np.ndarray  # [..., k, k, d], κ_ij
    target: np.ndarray  # [..., k, k], c_ij

    @property
    def environments(self) -> int:
        return int(self.target.shape[-1])

    def __repr__(self) -> str:
        sets = int(np.prod(self.target.shape[:-2]))
        of = f"{sets} sets of " if sets > 1 else ""
        return (
            f"Weighted moments of {of}{self.environments} environments and "
            f"{self.cross.shape[-1]} columns."
        )

    def differences(self) -> MomentDifferences:
        """Relative, so that a pair's unit of weight does not count."""
        first, other = np.triu_indices(self.environments, 1)
        scale = (self.target[..., first, other] + self.target[..., other, first]) / 2  # [..., P]
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            pair = np.argwhere(~(np.isfinite(scale) & (scale > 0)))[0][-1]
            raise InputError(
                f"environments {first[pair] + 1} and {other[pair] + 1} have no weight in common: "
                "leave one out, or choose weights under which they overlap"
            )
        return MomentDifferences(
            (self.second[..., first, other, :, :] - self.second[..., other, first, :, :])
            / scale[..., None, None],
            (self.cross[..., first, other, :] - self.cross[..., other, first, :])
            / scale[..., None],
            (self.target[..., first, other] - self.target[..., other, first]) / scale,
        )

    def gaps(self, weights: np.ndarray) -> np.ndarray:  # [..., d] -> [..., P]
        """Relative gaps of the predictor wᵀx; 1 is the weighted risk of predicting zero."""
        second, cross, target = self.differences()
        w = weights[..., None, :]  # [..., 1, d]
        return ((second @ w[..., None])[..., 0] * w - 2 * cross * w).sum(-1) + target


def gaussian_moments(
    weights: np.ndarray,
    noise_sd: float,
    invariant_mean: np.ndarray,
    invariant_covariance: np.ndarray,
    spurious_slope: np.ndarray,
    spurious_covariance: np.ndarray,
    weighting: ClosedForm = "density",
) -> WeightedMoments:
    """Closed form for the paper's regression (equation 5), for any leading axes.

        X_inv ~ N(m_e, C_e),   Y = wᵀX_inv + N(0, σ²),   X_spu = s_e Y + N(0, S_e)

    Parameters
    ----------
    weights
        w, `[..., d_inv]`.
    noise_sd
        σ.
    invariant_mean, invariant_covariance
        m_e `[..., k, d_inv]` and C_e `[..., k, d_inv, d_inv]`.
    spurious_slope, spurious_covariance
        s_e `[..., k, d_spu]` and S_e `[..., k, d_spu, d_spu]`.
    weighting
        "density", "ratio" or "uniform", of the invariant features; "overlap" has no closed form.

    Returns
    -------
    WeightedMoments
        Of the columns (X_inv, X_spu).
    """
    check_option("weighting", weighting, get_args(ClosedForm))
    k, d_spu = spurious_slope.shape[-2:]
    d_inv = weights.shape[-1]
    _check_shape("invariant_mean", invariant_mean, (k, d_inv))
    _check_shape("invariant_covariance", invariant_covariance, (k, d_inv, d_inv))
    _check_shape("spurious_covariance", spurious_covariance, (k, d_spu, d_spu))
    mass, mean, covariance = _weighted_normal(invariant_mean, invariant_covariance, weighting)
    invariant = covariance + mean[..., :, None] * mean[..., None, :]
    invariant = mass[..., None, None] * invariant  # [..., k, k, d_inv, d_inv], E[α x xᵀ]
    w = weights[..., None, None, :]
    correlation = (invariant @ w[..., None])[..., 0]  # [..., k, k, d_inv], E[α x y]
    target = (correlation * w).sum(-1) + mass * noise_sd**2  # [..., k, k], E[α y²]
    slope = spurious_slope[..., :, None, :]  # [..., k, 1, d_spu]
    mixed = correlation[..., :, None] * slope[..., None, :]
    spurious = (
        target[..., None, None] * slope[..., :, None] * slope[..., None, :]
        + mass[..., None, None] * spurious_covariance[..., :, None, :, :]
    )
    top = np.concatenate([invariant, mixed], -1)
    below = np.concatenate([mixed.swapaxes(-1, -2), spurious], -1)
    cross = np.concatenate([correlation, target[..., None] * slope], -1)
    return WeightedMoments(np.concatenate([top, below], -2), cross, target)


def _weighted_normal(
    mean: np.ndarray, covariance: np.ndarray, weighting: ClosedForm
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, mean and covariance of α_ij p_i, an unnormalised Gaussian: `[..., k, k, …]`."""
    pairs = (*mean.shape[:-1], mean.shape[-2])
    if weighting != "density":
        chosen = slice(0, 1) if weighting == "ratio" else slice(None)  # p_1, or i's own
        return (
            np.ones(pairs),
            np.broadcast_to(mean[..., chosen, None, :], (*pairs, mean.shape[-1])),
            np.broadcast_to(covariance[..., chosen, None, :, :], (*pairs, *covariance.shape[-2:])),
        )
    precision = np.linalg.inv(covariance)
    pull = (precision @ mean[..., None])[..., 0]
    joined = np.linalg.inv(precision[..., :, None, :, :] + precision[..., None, :, :, :])
    centre = (joined @ (pull[..., :, None, :] + pull[..., None, :, :])[..., None])[..., 0]
    spread = covariance[..., :, None, :, :] + covariance[..., None, :, :, :]
    apart = mean[..., :, None, :] - mean[..., None, :, :]
    distance = (apart * np.linalg.solve(spread, apart[..., None])[..., 0]).sum(-1)
    logarithm = np.linalg.slogdet(2 * np.pi * spread)[1]
    return np.exp(-(distance + logarithm) / 2), centre, joined  # ∫ p_i p_j = N(m_i; m_j, C_i + C_j)


def row_weights(
    log_densities: np.ndarray, environment: np.ndarray, weighting: Weighting = "density"
) -> np.ndarray:
    """α_ij for each of i's rows and every j.

    Parameters
    ----------
    log_densities
        Every environment's log density at every row, `[n, k]`.
    environment
        Each row's environment, 0 to k − 1, `[n]`.
    weighting
        "density", "overlap", "ratio" or "uniform"; see the head of the file.

    Returns
    -------
    ndarray
        `[n, k]`.
    """
    check_option("weighting", weighting, get_args(Weighting))
    if log_densities.ndim != 2:
        raise InputError(f"log_densities must be a table [n, k], not {log_densities.shape}")
    _check_environments(environment, *log_densities.shape)
    own = np.take_along_axis(log_densities, environment[:, None], 1)  # [n, 1]
    if weighting == "density":
        return np.exp(log_densities)
    if weighting == "overlap":
        return np.exp(overlap_logs(log_densities, environment))
    towards = log_densities[:, :1] if weighting == "ratio" else own
    return np.broadcast_to(np.exp(towards - own), log_densities.shape)


def overlap_logs(log_densities: np.ndarray, environment: np.ndarray) -> np.ndarray:
    """Overlap weights of i's rows for every j in logarithms, `[n, k]`; for j = i that of a half."""
    own = np.take_along_axis(log_densities, environment[:, None], 1)  # [n, 1]
    return log_densities - np.logaddexp(log_densities, own)


def empirical_moments(
    x: np.ndarray, y: np.ndarray, environment: np.ndarray, weights: np.ndarray
) -> WeightedMoments:
    """Weighted moments of rows, under any weighting.

    Parameters
    ----------
    x, y
        Rows `[n, d]` and targets `[n]`. Centre them, or give x a column of ones.
    environment
        Each row's environment, 0 to k − 1, `[n]`.
    weights
        α_ij of each of i's rows for every j, `[n, k]`; see `row_weights`. Sample weights multiply
        them, scaled to a mean of one within each environment.
    """
    if weights.ndim != 2:
        raise InputError(f"weights must be a table [n, k], not {weights.shape}")
    n, k = weights.shape
    _check_environments(environment, n, k)
    _check_shape("x", x, (n, *x.shape[1:2]))
    _check_shape("y", y, (n,))
    columns = np.concatenate([x, y[:, None]], 1)  # [n, d + 1]
    joint = np.empty((k, k, columns.shape[1], columns.shape[1]))
    for i in range(k):
        rows = environment == i
        for j in range(k):
            joint[i, j] = (columns[rows] * weights[rows, j, None]).T @ columns[rows] / rows.sum()
    return WeightedMoments(joint[..., :-1, :-1], joint[..., :-1, -1], joint[..., -1, -1])


def _check_environments(environment: np.ndarray, n: int, k: int) -> None:
    _check_shape("environment", environment, (n,))
    if environment.dtype.kind not in "iu" or not np.array_equal(
        np.unique(environment), np.arange(k)
    ):
        raise InputError(
            f"environment must hold every number from 0 to {k - 1}, one a row: "
            f"there are {k} columns of weights or densities"
        )


def _check_shape(name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    found = values.shape[values.ndim - len(shape) :] if values.ndim >= len(shape) else values.shape
    if found != shape:
        raise InputError(f"{name} must have the shape {shape} at the end, not {values.shape}")
