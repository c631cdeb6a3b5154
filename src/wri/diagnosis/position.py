"""General position: do the environments differ enough to rule out spurious features?

Weighted moments of pairs of environments determine a linear predictor's weighted risks:

    Σ_ij = E_i[α_ij x xᵀ],   κ_ij = E_i[α_ij x y],   c_ij = E_i[α_ij y²]
    R_ij(w) = wᵀ Σ_ij w − 2 wᵀ κ_ij + c_ij,   gap g_ij = R_ij − R_ji,   where α_ij p_i = α_ji p_j

Entry [i, j] belongs to the rows of i weighted towards j, by one of the weights α_ij of `weights`.
The paper's μ^{i,j} is 2 κ_ij.

With ΔΣ_ij, Δμ_ij the spurious blocks of Σ_ij − Σ_ji and of 2(κ_ij − κ_ji), the gap of w is

    g_ij = w_spuᵀ ΔΣ_ij w_spu + γ_ij Δμ_ijᵀ w_spu,   γ_ij = w_invᵀ v_ij / E_q[y²] − 1,

v_ij = E_q[x_inv y] and q the pair's weighted distribution (the paper prints γ = 2 w_invᵀ v − 1).
Stacked over pairs the rows xᵀΔΣ_ij + γ Δμ_ijᵀ make M(x, γ). General position means that M has full
rank d_spu for all x ≠ 0 and γ; then M w_spu ≠ 0, so no w_spu ≠ 0 has equal weighted risks. Counting
equations and unknowns, k environments that differ at random satisfy this if

    weights   γ                                independent rows   M full rank       M w_spu ≠ 0
    ratio     one for all pairs                k − 1              k − 1 ≥ 2 d_spu   k − 1 > d_spu
    density   one per pair, tied by w_inv      C(k, 2)            certifies less    C(k, 2) > d

with d = d_inv + d_spu. A single γ certifies weights with a single q, such as ratio weights. With
density weights some w_inv may lead to different γ_ij and M w_spu = 0 although M(x, γ) keeps its
rank; and with a free γ per pair M never keeps it: γ_ij = −xᵀΔΣ_ij x / Δμ_ijᵀx makes M x = 0.
So the gaps are also searched directly over (w_inv, w_spu), which is valid for every weighting.

Both searches minimise Σ_p r_p², r_p = xᵀA_p z + θᵀL_p z, by the Levenberg–Marquardt method from
several starts. Over unit x, unit z and θ = γ the minimum is M's smallest singular value; with z = x
and θ = (w_inv, s) it is the gap of a predictor of s·y.

Differences are relative to E[α y²], and spurious features have units in which their mean weighted
second moment is the identity: |w_spu| = 1 when the spurious part of a prediction is as large as the
target. Values are divided by √pairs: 0.1 is a tenth of the risk of predicting zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from wri.diagnosis.inputs import Diagnosis
from wri.diagnosis.weights import check_environments, check_shape
from wri.errors import InputError, check_option
from wri.number_text import write_number

ClosedForm = Literal["density", "ratio", "uniform"]

EXACT = 1e-9
"""Values below this count as zero with exact moments."""


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
        columns = self.cross.shape[-1]
        return f"Weighted moments of {self.environments} environments and {columns} columns."

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


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GeneralPosition(Diagnosis):
    """Result of `general_position`: how close environments are to admitting a spurious predictor.

    Attributes
    ----------
    environments : int
        Number of environments k.
    invariant : int
        Number of invariant features d_inv.
    spurious : int
        Number of spurious features d_spu.
    singular_value : float
        Smallest singular value of M.
    x : ndarray of shape (d_spu,)
        Direction of this value, of length one in the features' units.
    gamma : ndarray of shape (1,)
        γ of this value.
    spurious_gap : float
        Smallest gap of a predictor with w_spu ≠ 0.
    spurious_predictor : ndarray of shape (d,)
        Weights of that predictor.
    tolerance : float
        Largest value that counts as zero.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import gaussian_moments, general_position
    >>> moments = gaussian_moments(
    ...     weights=np.ones(1),
    ...     noise_sd=1.0,
    ...     invariant_mean=np.array([[0.0], [1.0], [-1.0]]),
    ...     invariant_covariance=np.ones((3, 1, 1)),
    ...     spurious_slope=np.array([[1.0], [0.5], [-1.0]]),
    ...     spurious_covariance=np.ones((3, 1, 1)),
    ...     weighting="ratio",
    ... )
    >>> found = general_position(moments, spurious=[1], starts=5)
    >>> found.holds, found.excludes_spurious
    (True, True)
    """

    environments: int
    invariant: int  # d_inv
    spurious: int  # d_spu
    singular_value: float  # M's smallest, at
    x: np.ndarray  # [d_spu], of length one in the features' own units, and
    gamma: np.ndarray  # [1]
    spurious_gap: float  # the smallest of a predictor with w_spu ≠ 0, and
    spurious_predictor: np.ndarray  # [d], that predictor
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether M has full rank."""
        return self.singular_value > self.tolerance

    @property
    def excludes_spurious(self) -> bool:
        """Whether equal weighted risks mean that the spurious features are ignored."""
        return self.spurious_gap > self.tolerance

    @property
    def meaning(self) -> str:
        """The result and what to do, in plain words."""
        gap = write_number(self.spurious_gap, 2)
        if not self.excludes_spurious:
            return (
                f"These {self.environments} environments differ too little: a predictor that uses "
                "the spurious features has equal weighted risks, up to a relative gap of "
                f"{gap}. Add environments (with ratio weights "
                f"{self.spurious + 2} that differ at random are enough), or assume fewer features "
                "to be spurious."
            )
        where = "in general position, and" if self.holds else "not in general position, but they"
        return (
            f"These {self.environments} environments are {where} differ enough: if the spurious "
            "part of a linear predictor is as large as the target, its weighted risks differ by at "
            f"least {gap} of the risk of predicting zero. So a linear predictor with equal "
            "weighted risks ignores the spurious features."
        )


def general_position(
    moments: WeightedMoments,
    spurious: Sequence[int],
    starts: int = 50,
    seed: int = 0,
    tolerance: float = EXACT,
) -> GeneralPosition:
    """Test whether environments differ enough to rule out predictors with spurious features.

    Parameters
    ----------
    moments : WeightedMoments
        Moments of one set of environments, from `gaussian_moments` or `empirical_moments`.
    spurious : sequence of int
        Columns assumed spurious; the others are invariant.
    starts : int, default=50
        Number of random starts of each search.
    seed : int, default=0
        Seed of the starts.
    tolerance : float, default=1e-9
        Largest value that counts as zero. The default is for exact moments. Moments of n rows per
        environment differ by chance, mostly by less than 5/√n of effective rows; use that.

    Returns
    -------
    result : GeneralPosition
        Result with `meaning`.

    Raises
    ------
    InputError
        If moments or columns do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import empirical_moments, general_position
    >>> random = np.random.default_rng(0)
    >>> site = np.repeat([0, 1, 2], 1000)
    >>> y = random.normal(size=3000)
    >>> x = np.array([1.0, 0.5, -1.0])[site] * y + random.normal(size=3000)
    >>> moments = empirical_moments(x[:, None], y, site, np.ones((3000, 3)))
    >>> general_position(moments, spurious=[0], starts=5, tolerance=0.1).excludes_spurious
    True
    """
    if moments.target.ndim != 2:
        raise InputError("general_position takes one set of environments: moments [k, k, ...]")
    singular_value, x, gamma = smallest_singular_value(moments, spurious, starts, seed)
    gap, predictor = smallest_spurious_gap(moments, spurious, starts, seed)
    return GeneralPosition(
        environments=moments.environments,
        invariant=moments.cross.shape[-1] - len(spurious),
        spurious=len(spurious),
        singular_value=float(singular_value),
        x=x,
        gamma=gamma,
        spurious_gap=float(gap),
        spurious_predictor=predictor,
        tolerance=tolerance,
    )


def smallest_singular_value(
    moments: WeightedMoments,
    spurious: Sequence[int],
    starts: int = 50,
    seed: int = 0,
    one_gamma: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return M's smallest singular value over all x `[..., d_spu]` and γ `[..., 1 or P]`, and both.

    The moments may have any leading axes. With a free γ per pair the value is always zero.
    """
    leading = moments.target.shape[:-2]
    quadratic, _, slope, units = _blocks(moments, spurious)
    if not one_gamma:
        slope = np.eye(slope.shape[1])[:, :, None] * slope  # [N, P, P, d_spu]
    value, x, gamma = minimise(BilinearProblems(quadratic, slope, same=False), starts, seed)
    x = (units @ x[..., None])[..., 0]
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    x, gamma = (part.reshape(*leading, -1) for part in (x / length, gamma / length))
    return value.reshape(leading), x, gamma


def smallest_spurious_gap(
    moments: WeightedMoments, spurious: Sequence[int], starts: int = 50, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest gap of predictors with w_spu ≠ 0, and the weights `[..., d]` of one.

    The part of a gap from w_inv alone is left out: with the right weights it is zero up to chance.
    The moments may have any leading axes.
    """
    leading = moments.target.shape[:-2]
    quadratic, mixed, slope, units = _blocks(moments, spurious)
    linear = np.concatenate([mixed, -slope], 2)  # [N, P, d_inv + 1, d_spu]
    value, x, theta = minimise(BilinearProblems(quadratic, linear, same=True), starts, seed)
    share = theta[:, -1:]  # w predicts s·y, so w/s predicts y
    share = np.where(np.abs(share) > np.finfo(float).eps, share, 1)  # equal slopes leave s free
    weights = np.empty((len(x), moments.cross.shape[-1]))
    weights[:, list(spurious)] = (units @ x[..., None])[..., 0] / share
    weights[:, _invariant(moments, spurious)] = theta[:, :-1] / share
    return value.reshape(leading), weights.reshape(*leading, -1)


def _blocks(
    moments: WeightedMoments, spurious: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return ΔΣ, twice the mixed block, Δμ, all in the units of the search, and these units."""
    invariant, chosen = _invariant(moments, spurious), list(spurious)
    leading = moments.target.ndim - 2
    flat = WeightedMoments(*(part.reshape(-1, *part.shape[leading:]) for part in moments))
    second, cross, _ = flat.differences()
    sizes = (flat.second / flat.target[..., None, None]).mean((1, 2))  # [N, d, d]
    sizes = sizes[:, chosen][..., chosen]
    if (np.linalg.matrix_rank(sizes, hermitian=True) < len(chosen)).any():
        raise InputError("a spurious column is constant or follows from the others: leave it out")
    units = np.linalg.inv(np.linalg.cholesky(sizes)).swapaxes(1, 2)
    each = units[:, None]  # [N, 1, d_spu, d_spu]
    rows = second[..., chosen] @ each  # [N, P, d, d_spu]
    return (
        each.swapaxes(2, 3) @ rows[:, :, chosen],  # [N, P, d_spu, d_spu]
        2 * rows[:, :, invariant],  # [N, P, d_inv, d_spu]
        2 * cross[:, :, None, chosen] @ each,  # [N, P, 1, d_spu]
        units,  # [N, d_spu, d_spu], from the units of the search to the features' own
    )


def _invariant(moments: WeightedMoments, spurious: Sequence[int]) -> list[int]:
    """Return the columns that are not spurious; check the spurious ones."""
    columns = range(moments.cross.shape[-1])
    spurious = [int(column) for column in spurious]
    if not spurious or len(set(spurious)) < len(spurious) or not set(spurious) <= set(columns):
        raise InputError(
            f"spurious must name different columns from 0 to {len(columns) - 1}, not {spurious}"
        )
    if moments.environments < 2:
        raise InputError("the moments hold one environment; at least two are needed to compare")
    return [column for column in columns if column not in spurious]


class BilinearProblems(NamedTuple):
    """Residuals r_p = xᵀA_p z + θᵀL_p z of N problems with P pairs each; `same` sets z = x."""

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
