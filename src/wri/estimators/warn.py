"""Warnings and errors of `fit` about environments, weights and overlap."""

import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.special import expit

from wri.errors import InputError, shorten
from wri.number_text import write_number
from wri.rows import Environments
from wri.training.runs import FEWEST_ROWS

SMALL = 0.1  # mean weight below which weights are probably not meant as counts
NOTHING_SHARED = 0.05  # overlap below which a pair counts as separate
SHOWN = 4  # pairs in a warning


def check_environments(
    environments: Environments, targets: np.ndarray, classes: bool, stacklevel: int
) -> None:
    """Refuse environments that are too small; warn of those with a single class."""
    for label, rows in zip(environments.labels, environments.rows, strict=True):
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"environment {shorten(label)!r} has {len(rows)} row; at least {FEWEST_ROWS} "
                "are needed: drop or merge it"
            )
        if classes and len(np.unique(targets[rows])) == 1:
            warnings.warn(
                f"site {shorten(label)!r} holds a single class; its risk says little "
                "about the others",
                stacklevel=stacklevel + 1,
            )


def warn_of_one_environment(name: str, stacklevel: int) -> None:
    """Warn that one environment cannot be compared with others."""
    warnings.warn(
        f"{name} compares environments and was given one: it trains plain ERM. Give fit groups=, "
        "or the constructor environment='column'",
        stacklevel=stacklevel + 1,
    )


def warn_of_small_weights(weights: np.ndarray, stacklevel: int) -> None:
    """Warn of small weights, for instance weights that sum to one.

    The weight decay of the predictor would then outweigh all rows.
    """
    total = weights.sum()
    if 0 < total < SMALL * len(weights):
        warnings.warn(
            f"sample_weight sums to {write_number(total)} for {len(weights)} rows: a weight is how "
            "often a row counts, and so few rows hardly train a predictor; multiply the weights by "
            f"{write_number(len(weights) / total)} to count every row once on average",
            stacklevel=stacklevel + 1,
        )


def overlap_by_means(inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return ρ_ij `[E, E]` of Gaussians with the environments' means and a common covariance.

    With Mahalanobis distance Δ, estimated without bias, log p_j/p_i at the rows of i is
    N(−Δ²/2, Δ²), so

        ρ = E_i[2 p_j / (p_i + p_j)] = 2 E[σ(Δ·z − Δ²/2)],   z ~ N(0, 1)

    Return None if there are too few rows. A classifier with weight decay, as WRI uses, would
    separate environments less than they are.

    Parameters
    ----------
    inputs : sequence of ndarray of shape (n_e, D)
        Rows of each environment.
    """
    counts = np.array([len(rows) for rows in inputs])
    width, freedom = inputs[0].shape[1], counts.sum() - len(inputs)
    if freedom <= width + 1:
        return None
    means = np.stack([rows.mean(0) for rows in inputs])  # [E, D]
    spread = np.concatenate(inputs).var(0)
    within = sum((rows - mean).T @ (rows - mean) for rows, mean in zip(inputs, means, strict=True))
    # a column that is constant within every site still separates the sites
    covariance = within / freedom + np.diag(1e-6 * spread + (spread == 0))
    apart = means[:, None] - means  # [E, E, D]
    squared = (apart * np.linalg.solve(covariance, apart[..., None])[..., 0]).sum(-1)
    chance = width * (1 / counts[:, None] + 1 / counts)
    squared = np.maximum(squared * (freedom - width - 1) / freedom - chance, 0.0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    ratio = np.sqrt(squared)[..., None] * nodes - squared[..., None] / 2
    return 2 * (expit(ratio) * weights).sum(-1) / weights.sum()


def warn_of_little_overlap(overlap: np.ndarray | None, labels: np.ndarray, stacklevel: int) -> None:
    """Warn if most pairs of environments hardly overlap, and name them."""
    if overlap is None:
        return
    pairs = list(combinations(range(len(labels)), 2))
    apart = sorted((overlap[i, j], i, j) for i, j in pairs if overlap[i, j] < NOTHING_SHARED)
    if 2 * len(apart) <= len(pairs):
        return
    names = [f"{shorten(labels[i])} and {shorten(labels[j])}" for _, i, j in apart]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    warnings.warn(
        f"{len(apart)} of {len(pairs)} pairs of sites hardly overlap "
        f"({'; '.join(names[:SHOWN])}{more}), so WRI has little to compare there and is closer "
        "to ERM; wri diagnose, or environment_overlap in Python, shows them",
        stacklevel=stacklevel + 1,
    )
