"""Weights of rows towards other environments, and the number of rows that they are worth.

    log p_e(x) − log Σ_k p_k(x) = a_e + b_eᵀφ(x)                        odds of environments

φ are the columns, cut at four standard deviations, their normal scores (ranks mapped to a Gaussian)
with squares and products, and a spline of the score for a single column. All environments have the
same weight; scores limit the influence of single extreme rows. Odds of a row come from a fit
without the row and its block, because a fit takes its own rows for rarer elsewhere than they are.

Weights α_ij of the rows of i towards j, with α_ij p_i = α_ji p_j:

    density   p_j
    overlap   p_j / (p_i + p_j)
    ratio     p_1 / p_i for every j: all environments are weighted to look like the first
    uniform   1

Their worth (appendix B), for losses in [0, 1], M the largest weight and σ² the variance of α·l:

    n_eff = (Σ α)² / Σ α²                                                    (Kish)
    |R − R̂| ≤ 2·M·log(2/δ)/(3n) + √(2·σ²·log(2/δ)/n)     with probability 1 − δ   (Bernstein)

The paper uses M = max(1, sup α); sup α is enough, since |α·l − R| ≤ sup α, and does not depend on a
unit. The paper prints log(1/δ), which bounds one side only.
"""

from math import log, sqrt
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, ndtri

from wri.errors import InputError, check_option
from wri.rows import Environments, Scaling

Weighting = Literal["density", "overlap", "ratio", "uniform"]
FIT_ROWS = 24_000
"""Largest number of rows per fit, all environments together; more rows add little."""
PRODUCTS = 10
"""Largest number of columns for which products are among the terms."""
FOLDS = 5  # of the blocks of each environment
GRID = 10_000  # rows that ranks are taken among
SINGULAR = 1e-6  # terms that follow from others, relative to the largest variance
CUT = 4.0  # standard deviations
KNOTS = (-1.3, -0.4, 0.4, 1.3)
_CHUNK = 50_000  # rows brought to terms at once


class SmoothTerms:
    """Smooth terms φ of columns, fixed by rows without their environments; order 1: no products."""

    def __init__(self, z: np.ndarray, random: np.random.Generator, order: int = 2) -> None:
        self._order = order
        chosen = random.permutation(len(z))[:GRID]
        self._units = Scaling.of(z[chosen])
        self._grid = np.sort(z[chosen], 0)  # [m, F]
        raw = self._raw(z[chosen])
        self._scaling = Scaling.of(raw)
        terms = self._scaling.apply(raw)
        values, directions = np.linalg.eigh(terms.T @ terms / len(terms))
        kept = values > SINGULAR * values[-1]
        self._whitening = directions[:, kept] / np.sqrt(values[kept])  # [p, q]

    @property
    def width(self) -> int:
        return int(self._whitening.shape[1])

    def apply(self, z: np.ndarray) -> np.ndarray:  # [n, F] -> [n, q]
        """Return terms with mean 0, variance 1 and no correlation on the rows that fixed them."""
        return np.asarray(self._scaling.apply(self._raw(z)) @ self._whitening)

    def _raw(self, z: np.ndarray) -> np.ndarray:
        m = len(self._grid)
        scores: np.ndarray = np.empty((len(z), z.shape[1]))
        for k, known in enumerate(self._grid.T):
            below = np.searchsorted(known, z[:, k], "left")
            below += np.searchsorted(known, z[:, k], "right")
            scores[:, k] = ndtri((below + 1) / (2 * m + 2))
        if self._order == 1:
            return scores
        values = self._units.apply(z).clip(-CUT, CUT)
        if scores.shape[1] == 1:
            bends = [np.maximum(scores - knot, 0) ** 3 for knot in KNOTS]
            return np.concatenate([values, scores, scores**2, scores**3, *bends], 1)
        terms = [values, scores, scores**2]
        if scores.shape[1] <= PRODUCTS:
            first, second = np.triu_indices(scores.shape[1], 1)
            terms.append(scores[:, first] * scores[:, second])
        return np.concatenate(terms, 1)


def environment_logs(
    z: np.ndarray,
    environments: Environments,
    seed: int = 0,
    block: np.ndarray | None = None,
) -> np.ndarray:
    """Estimate the log density of each environment relative to their sum, by cross-fitting.

    Each row's values come from a fit that has not seen the row.

    Parameters
    ----------
    z : ndarray of shape (n_rows, n_features)
        Rows without missing values.
    environments : Environments
        Environments of these rows.
    seed : int, default=0
        Seed of the split.
    block : ndarray of shape (n_rows,) or None, default=None
        Block number of each row, from 0. None: each row is its own block. Weights
        are not taken: repeat rows and let `block` be the number of the original row.

    Returns
    -------
    logs : ndarray of shape (n_rows, E)
        Log densities relative to their sum, as if all environments had the same size.

    Raises
    ------
    InputError
        If an environment cannot be split into folds.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import environment_logs
    >>> from wri.rows import number_environments
    >>> z = np.random.default_rng(0).normal(size=(100, 1))
    >>> sites = number_environments(np.repeat(["a", "b"], 50), "groups", 100)
    >>> logs = environment_logs(z, sites)
    >>> logs.shape, np.exp(logs).sum(1).round(6).min().item()
    ((100, 2), 1.0)
    """
    random = np.random.default_rng(seed)
    fold = split_blocks(environments, block, random)
    terms, each = SmoothTerms(z, random), FIT_ROWS // len(environments.labels)
    learned = [random.permutation(rows)[: max(each, 200)] for rows in environments.rows]
    known = [terms.apply(z[rows]) for rows in learned]  # E of [n_e, p]
    start = _fit(known, None)
    logs = np.empty((len(z), len(environments.labels)))
    for left in np.unique(fold):
        parts = [x[fold[rows] != left] for x, rows in zip(known, learned, strict=True)]
        weights = _fit(parts, start)
        out = np.flatnonzero(fold == left)
        for at in range(0, len(out), _CHUNK):
            rows = out[at : at + _CHUNK]
            logs[rows] = log_softmax(_outputs(terms.apply(z[rows]), weights), 1)
    return logs


def split_blocks(
    environments: Environments, block: np.ndarray | None, random: np.random.Generator
) -> np.ndarray:  # [n]
    """Return the fold of each row: whole blocks, spread evenly over folds in each environment."""
    own = np.arange(len(environments.number)) if block is None else block
    fold = np.full(own.max() + 1, -1)
    names = [np.unique(own[rows]) for rows in environments.rows]
    for e in np.argsort([len(blocks) for blocks in names], kind="stable"):
        if len(names[e]) < 2:
            what = "row" if block is None else "block"
            raise InputError(
                f"environment {environments.labels[e]} in groups has one {what}; weights need two "
                "or more: merge it with another environment or leave it out"
            )
        new = random.permutation(names[e][fold[names[e]] < 0])
        taken = np.bincount(fold[names[e]][fold[names[e]] >= 0], minlength=FOLDS)
        fold[new] = np.argsort(taken, kind="stable")[np.arange(len(new)) % FOLDS]
        if np.ptp(fold[names[e]]) == 0:
            raise InputError(
                f"environment {environments.labels[e]} shares all its blocks with others and they "
                "cannot be split: give more blocks or leave it out"
            )
    return fold[own]


def _fit(environments: list[np.ndarray], start: np.ndarray | None) -> np.ndarray:  # [p + 1, E]
    """Fit weights of the terms, and offsets in the last row, by penalised likelihood."""
    x = np.concatenate(environments)
    sizes = [len(rows) for rows in environments]
    number = np.repeat(np.arange(len(sizes)), sizes)
    share = 1 / (len(sizes) * np.repeat(sizes, sizes))  # environments count the same
    own = (number, np.arange(len(x)))
    pull = 1 / len(x)
    shape = (x.shape[1] + 1, len(sizes))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        outputs = weights[:-1].T @ x.T + weights[-1][:, None]  # [E, n]: fast sums over E
        outputs -= outputs.max(0)
        reached = outputs[own]
        error = np.exp(outputs)
        total = error.sum(0)  # [n]
        height = share @ (np.log(total) - reached) + pull / 2 * np.square(weights[:-1]).sum()
        error *= share / total
        error[own] -= share
        slope = np.concatenate([(error @ x).T + pull * weights[:-1], error.sum(1)[None]])
        return float(height), slope.ravel()

    at = np.zeros(shape) if start is None else start
    found = minimize(
        loss, at.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-7}
    )
    return np.asarray(found.x).reshape(shape)


def _outputs(x: np.ndarray, weights: np.ndarray) -> np.ndarray:  # [n, p], [p + 1, E] -> [n, E]
    return np.asarray(x @ weights[:-1] + weights[-1])


def row_weights(
    log_densities: np.ndarray, environment: np.ndarray, weighting: Weighting = "density"
) -> np.ndarray:
    """Return the weights α_ij of each row of i for every j.

    Parameters
    ----------
    log_densities : ndarray of shape (n_rows, k)
        Log density of each environment at each row.
    environment : ndarray of shape (n_rows,)
        Environment of each row, 0 to k − 1.
    weighting : {"density", "overlap", "ratio", "uniform"}, default="density"
        Kind of weights: p_j, p_j / (p_i + p_j), p_1 / p_i or 1.

    Returns
    -------
    weights : ndarray of shape (n_rows, k)
        α_ij.

    Raises
    ------
    InputError
        If shapes do not fit or an environment has no row.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import row_weights
    >>> logs = np.log([[0.2, 0.6], [0.5, 0.5]])
    >>> row_weights(logs, np.array([0, 1]), "overlap").round(2)
    array([[0.5 , 0.75],
           [0.5 , 0.5 ]])
    """
    check_option("weighting", weighting, get_args(Weighting))
    if log_densities.ndim != 2:
        raise InputError(f"log_densities must be a table [n, k], not {log_densities.shape}")
    check_environments(environment, *log_densities.shape)
    own = np.take_along_axis(log_densities, environment[:, None], 1)  # [n, 1]
    if weighting == "density":
        return np.exp(log_densities)
    if weighting == "overlap":
        return np.exp(overlap_logs(log_densities, environment))
    towards = log_densities[:, :1] if weighting == "ratio" else own
    return np.broadcast_to(np.exp(towards - own), log_densities.shape)


def overlap_logs(log_densities: np.ndarray, environment: np.ndarray) -> np.ndarray:
    """Return log overlap weights of the rows of i for every j, `[n, k]`; log ½ for j = i."""
    own = np.take_along_axis(log_densities, environment[:, None], 1)  # [n, 1]
    return log_densities - np.logaddexp(log_densities, own)


def pair_overlap(logs: np.ndarray, environments: Environments) -> tuple[np.ndarray, np.ndarray]:
    """Return ρ_ij and the effective rows of i towards j, both `[E, E]`, from log w_ij `[n, E]`."""
    each = [logs[rows].T for rows in environments.rows]  # E of [E, n_i]
    sides = np.stack([2 * np.exp(own).mean(1) for own in each])  # [E, E]
    worth = [effective_sample_size(np.exp(own - own.max(1, keepdims=True))) for own in each]
    return np.minimum((sides + sides.T) / 2, 1), np.stack(worth)  # chance may pass the bound of 1


def effective_sample_size(weights: np.ndarray) -> np.ndarray:  # [..., n] -> [...]
    """Return Kish's effective sample size of weights.

    Parameters
    ----------
    weights : ndarray of shape (..., n)
        Finite weights, not negative, not all zero.

    Returns
    -------
    size : ndarray of shape (...)
        Number of rows with equal weights that have the same information; n for equal weights.

    Raises
    ------
    InputError
        If weights are negative, not finite or all zero.

    References
    ----------
    L. Kish, "Survey Sampling", Wiley, 1965.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.diagnosis import effective_sample_size
    >>> float(effective_sample_size(np.array([1.0, 1.0, 0.0, 0.0])))
    2.0
    """
    if weights.shape[-1] == 0 or (weights < 0).any() or not np.isfinite(weights).all():
        raise InputError("weights must be finite, not negative, and at least one")
    largest = weights.max(-1, keepdims=True)
    if (largest == 0).any():
        raise InputError("all weights are zero: these environments have nothing in common")
    relative = weights / largest
    return np.asarray(relative.sum(-1) ** 2 / np.square(relative).sum(-1))


def bernstein_bound(largest: float, variance: float, n: int, probability: float = 0.05) -> float:
    """Bound the distance between a weighted risk of n rows and its expectation.

    Parameters
    ----------
    largest : float
        M, the largest weight. Truncate weights without a bound.
    variance : float
        σ² of weight times loss, for losses in [0, 1].
    n : int
        Number of rows.
    probability : float, default=0.05
        δ, the probability that the bound fails.

    Returns
    -------
    bound : float
        Largest distance with probability 1 − δ.

    Raises
    ------
    InputError
        If `probability` or `n` is out of range.

    Examples
    --------
    >>> from wri.diagnosis import bernstein_bound
    >>> round(bernstein_bound(largest=2.0, variance=0.25, n=1000), 4)
    0.0479
    """
    if not 0 < probability < 1:
        raise InputError(f"probability must lie between 0 and 1, not {probability}")
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")
    chance = log(2 / probability)
    return 2 * largest * chance / (3 * n) + sqrt(2 * variance * chance / n)


def check_environments(environment: np.ndarray, n: int, k: int) -> None:
    check_shape("environment", environment, (n,))
    if environment.dtype.kind not in "iu" or not np.array_equal(
        np.unique(environment), np.arange(k)
    ):
        raise InputError(
            f"environment must hold each number from 0 to {k - 1}, one per row: "
            f"there are {k} columns of weights or densities"
        )


def check_shape(name: str, values: np.ndarray, shape: tuple[int, ...]) -> None:
    found = values.shape[values.ndim - len(shape) :] if values.ndim >= len(shape) else values.shape
    if found != shape:
        raise InputError(f"{name} must have the shape {shape} at the end, not {values.shape}")
