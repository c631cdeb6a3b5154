"""Weighted moments of pairs of environments, which determine a linear predictor's weighted risks.

    Σ_ij = E_i[α_ij x xᵀ],   κ_ij = E_i[α_ij x y],   c_ij = E_i[α_ij y²]
    R_ij(w) = wᵀ Σ_ij w − 2 wᵀ κ_ij + c_ij,   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Entry [i, j] belongs to the rows of i weighted towards j, by one of the weights α_ij of `weights`.
The paper's μ^{i,j} is 2 κ_ij.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np

from wri.diagnosis.weights import check_environments, check_shape
from wri.errors import InputError, check_option

ClosedForm = Literal["density", "ratio", "uniform"]


class WeightedMoments(NamedTuple):
    """Weighted second moments of pairs of environments.

    Attributes
    ----------
    second : ndarray of shape (..., k, k, d, d)
        Σ_ij = E_i[α_ij x xᵀ].
    cross : ndarray of shape (..., k, k, d)
        κ_ij = E_i[α_ij x y].
    target : ndarray of shape (..., k, k)
        c_ij = E_i[α_ij y²].

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import WeightedMoments
    >>> moments = WeightedMoments(np.ones((2, 2, 1, 1)), np.ones((2, 2, 1)), np.ones((2, 2)))
    >>> moments.environments, moments.gaps(np.array([0.5]))
    (2, array([0.]))
    """

    second: np.ndarray  # [..., k, k, d, d], Σ_ij
    cross: np.ndarray  # [..., k, k, d], κ_ij
    target: np.ndarray  # [..., k, k], c_ij

    @property
    def environments(self) -> int:
        """Number of environments."""
        return int(self.target.shape[-1])

    def __repr__(self) -> str:
        sets = int(np.prod(self.target.shape[:-2]))
        of = f"{sets} sets of " if sets > 1 else ""
        return (
            f"Weighted moments of {of}{self.environments} environments and "
            f"{self.cross.shape[-1]} columns."
        )

    def differences(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the relative differences of the two sides of each pair.

        Relative differences do not depend on the unit of the weights.

        Returns
        -------
        second : ndarray of shape (..., P, d, d)
            (Σ_ij − Σ_ji) / c of each pair i < j, c the mean of c_ij and c_ji.
        cross : ndarray of shape (..., P, d)
            (κ_ij − κ_ji) / c.
        target : ndarray of shape (..., P)
            (c_ij − c_ji) / c.

        Raises
        ------
        InputError
            If two environments have no weight in common.
        """
        first, other = np.triu_indices(self.environments, 1)
        scale = (self.target[..., first, other] + self.target[..., other, first]) / 2  # [..., P]
        empty = np.argwhere(~(np.isfinite(scale) & (scale > 0)))
        if len(empty):
            pair = empty[0][-1]
            raise InputError(
                f"environments {first[pair] + 1} and {other[pair] + 1} have no weight in common: "
                "leave one out, or choose weights under which they overlap"
            )
        second = self.second[..., first, other, :, :] - self.second[..., other, first, :, :]
        cross = self.cross[..., first, other, :] - self.cross[..., other, first, :]
        target = self.target[..., first, other] - self.target[..., other, first]
        return second / scale[..., None, None], cross / scale[..., None], target / scale

    def gaps(self, weights: np.ndarray) -> np.ndarray:  # [..., d] -> [..., P]
        """Return the relative gaps of the predictor wᵀx.

        Parameters
        ----------
        weights : ndarray of shape (..., d)
            w.

        Returns
        -------
        gaps : ndarray of shape (..., P)
            Gaps; 1 is the weighted risk of predicting zero.
        """
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
    """Compute the moments of the paper's regression (equation 5) in closed form.

        X_inv ~ N(m_e, C_e),   Y = wᵀX_inv + N(0, σ²),   X_spu = s_e Y + N(0, S_e)

    Leading axes are allowed.

    Parameters
    ----------
    weights : ndarray of shape (..., d_inv)
        w.
    noise_sd : float
        σ.
    invariant_mean : ndarray of shape (..., k, d_inv)
        m_e.
    invariant_covariance : ndarray of shape (..., k, d_inv, d_inv)
        C_e.
    spurious_slope : ndarray of shape (..., k, d_spu)
        s_e.
    spurious_covariance : ndarray of shape (..., k, d_spu, d_spu)
        S_e.
    weighting : {"density", "ratio", "uniform"}, default="density"
        Weights of the invariant features; "overlap" has no closed form.

    Returns
    -------
    moments : WeightedMoments
        Moments of the columns (X_inv, X_spu).

    Raises
    ------
    InputError
        If shapes do not fit.

    References
    ----------
    G. Wong, J. Gleason, R. Chellappa, Y. Wald and A. Liu, "Weighted Risk Invariance: Domain
    Generalization under Invariant Feature Shift", TMLR, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import gaussian_moments
    >>> moments = gaussian_moments(
    ...     weights=np.ones(1),
    ...     noise_sd=1.0,
    ...     invariant_mean=np.zeros((2, 1)),
    ...     invariant_covariance=np.ones((2, 1, 1)),
    ...     spurious_slope=np.array([[1.0], [2.0]]),
    ...     spurious_covariance=np.ones((2, 1, 1)),
    ...     weighting="uniform",
    ... )
    >>> moments.target
    array([[2., 2.],
           [2., 2.]])
    """
    check_option("weighting", weighting, get_args(ClosedForm))
    k, d_spu = spurious_slope.shape[-2:]
    d_inv = weights.shape[-1]
    check_shape("invariant_mean", invariant_mean, (k, d_inv))
    check_shape("invariant_covariance", invariant_covariance, (k, d_inv, d_inv))
    check_shape("spurious_covariance", spurious_covariance, (k, d_spu, d_spu))
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
    """Return mass, mean and covariance of α_ij p_i, an unnormalised Gaussian: `[..., k, k, …]`."""
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


def empirical_moments(
    x: np.ndarray, y: np.ndarray, environment: np.ndarray, weights: np.ndarray
) -> WeightedMoments:
    """Compute weighted moments of rows, for any weights.

    Parameters
    ----------
    x : ndarray of shape (n_rows, d)
        Rows. Centre them, or include a column of ones.
    y : ndarray of shape (n_rows,)
        Targets.
    environment : ndarray of shape (n_rows,)
        Environment of each row, 0 to k − 1.
    weights : ndarray of shape (n_rows, k)
        α_ij of each row of i for every j; see `row_weights`. To weight
        rows, multiply by weights with a mean of one per environment.

    Returns
    -------
    moments : WeightedMoments
        Moments of the columns of x.

    Raises
    ------
    InputError
        If shapes do not fit or an environment has no row.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import empirical_moments
    >>> x, y = np.array([[1.0], [2.0], [3.0]]), np.array([1.0, 1.0, 2.0])
    >>> moments = empirical_moments(x, y, np.array([0, 0, 1]), np.ones((3, 2)))
    >>> moments.cross[:, 0]
    array([[1.5],
           [6. ]])
    """
    if weights.ndim != 2:
        raise InputError(f"weights must be a table [n, k], not {weights.shape}")
    n, k = weights.shape
    check_environments(environment, n, k)
    check_shape("x", x, (n, *x.shape[1:2]))
    check_shape("y", y, (n,))
    columns = np.concatenate([x, y[:, None]], 1)  # [n, d + 1]
    joint = np.empty((k, k, columns.shape[1], columns.shape[1]))
    for i in range(k):
        rows = environment == i
        for j in range(k):
            joint[i, j] = (columns[rows] * weights[rows, j, None]).T @ columns[rows] / rows.sum()
    return WeightedMoments(joint[..., :-1, :-1], joint[..., :-1, -1], joint[..., -1, -1])
