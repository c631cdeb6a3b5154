"""What `fit` is given: parameters, the environment of each row, rows held out, and warnings.

Environments come from `groups=` or from a column of the table. The column reaches `fit` everywhere:
through cross-validation and, with `wri.make_pipeline`, through preprocessing. `predict` takes
tables with and without it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from wri.errors import LARGEST, InputError, check_size, shorten, warn_caller
from wri.number_text import write_number
from wri.rows import (
    Environments,
    hash_rows,
    name_unreadable_cells,
    number_environments,
    without_gradient,
)
from wri.stacked import SQUARED
from wri.training.runs import FEWEST_ROWS

if TYPE_CHECKING:
    from wri.estimators.base import EnvironmentEstimator
    from wri.estimators.problem import Problem

LARGEST_WHOLE = 2**31 - 1
FEWEST_SPLIT = 25  # rows of an environment from which some are held out
FEWEST_HELD = 5  # smallest number of rows to hold out
MOST_LIGHT = 1.5  # most held-out rows, as a multiple of the share, if they weigh little
SMALL = 0.1  # mean weight below which weights are probably not meant as counts
NOTHING_SHARED = 0.05  # overlap below which a pair counts as separate
SHOWN = 4  # pairs in a warning


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


WIDTHS = "a tuple of widths such as (32, 16)"
KINDS: Mapping[str, Callable[[Any], bool]] = {
    WIDTHS: lambda value: _is_list(value) and all(map(_is_whole, value)),
    "the name of a column": lambda value: isinstance(value, str | int),
    "a whole number": _is_whole,
    "a number": _is_number,
    "a number or 'auto'": lambda value: _is_number(value) or value == "auto",
    "True or False": lambda value: isinstance(value, bool),
    "a dict of numbers by name": _is_named,
    "a dict of options by name": _is_named,
    "a list of dicts": lambda value: _is_list(value) and all(map(_is_named, value)),
}
PARAMETERS: Mapping[str, str] = {
    "environment": "the name of a column",
    "hidden": WIDTHS,
    "penalty_weight": "a number or 'auto'",
    "hyper": "a dict of numbers by name",
    "options": "a dict of options by name",
    "candidates": "a list of dicts",
    **dict.fromkeys(("steps", "stop_after", "n_jobs"), "a whole number"),
    **dict.fromkeys(("learning_rate", "weight_decay", "batch_size"), "a number"),
    **dict.fromkeys(("validation_fraction", "rare", "outside"), "a number"),
    **dict.fromkeys(("site_spread", "compare_erm"), "True or False"),
}
"""Types of parameters of constructors; their ranges are checked where they are used."""
REQUIRED = ("validation_fraction", "rare", "outside", "site_spread", "compare_erm")


def check_parameters(model: Any) -> None:
    """Refuse parameters of the wrong type by name."""
    for name, value in model.get_params(deep=False).items():
        kind = PARAMETERS.get(name)
        if kind is None or (value is None and name not in REQUIRED):
            continue
        check_size(name, value, LARGEST_WHOLE if kind == "a whole number" else LARGEST)
        if not KINDS[kind](value):
            shown = f"{shorten(repr(value))}, of the type {type(value).__name__}"
            raise InputError(f"{name} must be {kind}, not {shown}")
    for place, candidate in enumerate(model.candidates or ()):
        hidden = candidate.get("hidden")
        if not (hidden is None or KINDS[WIDTHS](hidden)):
            raise InputError(
                f"hidden in candidate {place} must be {WIDTHS}, not {shorten(repr(hidden))}"
            )


def read_seed(random_state: Any) -> int:
    """Return an integer `random_state` as the seed; draw a seed from anything else."""
    try:
        random = check_random_state(random_state)
    except ValueError as error:
        shown = shorten(repr(random_state))
        raise InputError(
            f"random_state must be None, a RandomState or a whole number from 0 to {2**32 - 1}, "
            f"not {shown}"
        ) from error
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(random.randint(2**31 - 1))


def without_column(X: Any, column: str | None) -> Any:
    """Return the table without its environment column, if it has one."""
    if column is not None and isinstance(X, pd.DataFrame) and column in X.columns:
        return X.drop(columns=column)
    return X


def read_environments(
    X: Any, n_rows: int, groups: Iterable[Any] | None, column: str | None
) -> Environments:
    """Read the environments from a column of X or from `groups`; without either there is one."""
    there = isinstance(X, pd.DataFrame) and column in X.columns
    if column is not None and not there and groups is None:
        if not isinstance(X, pd.DataFrame):
            raise InputError(
                f"environment={shorten(repr(column))} names a column, but X is a "
                f"{type(X).__name__}; give a DataFrame, or the environments as groups=. With "
                "preprocessing use wri.make_pipeline, which reads the column before it"
            )
        raise InputError(f"X has no column {shorten(repr(column))}, which environment= names")
    if column is not None and there:
        found = number_environments(X[column], f"column {column!r}", n_rows)
        # with metadata routing on, cross-validation passes groups as well
        if groups is not None and not found.same_as(number_environments(groups, "groups", n_rows)):
            raise InputError(
                f"groups and the column {column!r} name different environments; give one of them"
            )
        return found
    if groups is None:
        return Environments(np.array(["all"], dtype=object), np.zeros(n_rows, int))
    return number_environments(groups, "groups", n_rows)


def read_rows(
    model: "EnvironmentEstimator",
    X: Any,
    y: Any,
    groups: Iterable[Any] | None,
    sample_weight: Any,
) -> tuple[np.ndarray, np.ndarray, Environments, np.ndarray | None]:
    """Return checked arrays and environments of the rows with positive weight."""
    X, y = without_gradient(X), without_gradient(y)
    table, X = X, model._encode_columns(without_column(X, model.environment), fit=True)
    with name_unreadable_cells(X=X, y=y):
        X, y = validate_data(
            model,
            X,
            y,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=FEWEST_ROWS,
            y_numeric=model._loss is SQUARED,
        )
    model._check_cells(X)
    environments = read_environments(table, len(X), groups, model.environment)
    if sample_weight is None:
        return X, y, environments, None
    given = without_gradient(sample_weight)
    with name_unreadable_cells(sample_weight=given):
        weights = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    warn_of_small_weights(weights)
    present = weights > 0
    return X[present], y[present], environments.take(present), weights[present]


class RowSplit(NamedTuple):
    """Row numbers of each environment: fitted and held out."""

    fitted: list[np.ndarray]  # training rows
    held_out: list[np.ndarray]  # other rows; empty if an environment is small

    @property
    def calibrating(self) -> list[np.ndarray]:
        """Rows that set thresholds: the held-out rows, or the fitted ones if none were held out."""
        pairs = zip(self.held_out, self.fitted, strict=True)
        return [held if len(held) else fitted for held, fitted in pairs]

    @property
    def every(self) -> list[np.ndarray]:
        """All rows of each environment."""
        pairs = zip(self.fitted, self.held_out, strict=True)
        return [np.sort(np.concatenate(both)) for both in pairs]


def hold_out(
    environments: Sequence[np.ndarray],
    columns: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    share: float,
    seed: int,
) -> RowSplit:
    """Hold out a random share of the rows of each environment.

    Rows are drawn in the order of `hash_rows`. Rows with the same contents stay together, so that a
    repeated row is in one part only and counts like one row with weight 2.
    """
    held = np.zeros(len(targets), bool)
    for rows in environments:
        numbers = hash_rows(columns[rows], targets[rows], seed)
        distinct, lots = np.unique(numbers, return_inverse=True)
        n = len(distinct)
        weight = np.bincount(lots, None if weights is None else weights[rows])
        middle = (weight.cumsum() - weight / 2) / weight.sum()
        # neither a few heavy rows nor many light ones
        chosen = (middle < share) & (np.arange(n) < min(share * n * MOST_LIGHT, n - FEWEST_ROWS))
        if n >= FEWEST_SPLIT and chosen.sum() >= FEWEST_HELD:
            held[rows] = chosen[lots]
    return RowSplit(
        [rows[~held[rows]] for rows in environments], [r[held[r]] for r in environments]
    )


def check_environments(
    model: "EnvironmentEstimator", environments: Environments, targets: np.ndarray
) -> None:
    """Refuse environments that are too small; warn of a single environment or a single class."""
    for label, rows in zip(environments.labels, environments.rows, strict=True):
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"environment {shorten(label)!r} has {len(rows)} row; at least {FEWEST_ROWS} "
                "are needed: drop or merge it"
            )
        if model._loss is not SQUARED and len(np.unique(targets[rows])) == 1:
            warn_caller(
                f"site {shorten(label)!r} holds a single class, so its risk says little about the "
                "other classes"
            )
    if len(environments.labels) == 1 and model._kind.least_environments > 1:
        warn_caller(
            f"{type(model).__name__} compares environments but was given only one, so it trains "
            "plain ERM. Give groups= to fit, or environment='column', a column of X, to the "
            "constructor. cross_validate(groups=...) and GridSearchCV.fit(groups=...) pass groups "
            "to the splitter only: use environment='column' there"
        )


def warn_of_small_weights(weights: np.ndarray) -> None:
    """Warn of small weights, for instance weights that sum to one.

    The weight decay of the predictor would then outweigh all rows.
    """
    total = weights.sum()
    if 0 < total < SMALL * len(weights):
        warn_caller(
            f"sample_weight sums to {write_number(total)} for {len(weights)} rows, which is too "
            "little to train on: a weight says how often a row counts. Multiply the weights by "
            f"{write_number(len(weights) / total)} to count every row once on average"
        )


def overlap_by_means(inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """Return ρ_ij `[E, E]` of Gaussians with the environments' means and a common covariance.

    With Mahalanobis distance Δ, estimated without bias, log p_j/p_i at the rows of i is
    N(−Δ²/2, Δ²), so

        ρ = E_i[2 p_j / (p_i + p_j)] = 2 E[σ(Δ·z − Δ²/2)],   z ~ N(0, 1)

    Return None if there are too few rows. A classifier with weight decay, as WRI uses, would
    separate environments less than they are.
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


def check_overlap(model: "EnvironmentEstimator", problem: "Problem") -> None:
    """Warn if an objective compares environments by weights and most pairs hardly overlap."""
    spec, labels, features = model.spec_, model.environments_, problem.bank.features
    if spec.objective.weighted_columns(None, 1) is None:
        return
    seen = [model._view(model._prepare(features[rows])) for rows in problem.learned(spec)]
    used = spec.objective.weighted_columns(getattr(model, "state_", None), seen[0].shape[1])
    if used is None or not used.any():
        return  # every row has the same weight
    overlap = overlap_by_means([own[:, used] for own in seen])
    if overlap is None:
        return
    pairs = list(combinations(range(len(labels)), 2))
    apart = sorted((overlap[i, j], i, j) for i, j in pairs if overlap[i, j] < NOTHING_SHARED)
    if 2 * len(apart) <= len(pairs):
        return
    names = [f"{shorten(labels[i])} and {shorten(labels[j])}" for _, i, j in apart]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    warn_caller(
        f"{len(apart)} of {len(pairs)} pairs of sites hardly overlap "
        f"({'; '.join(names[:SHOWN])}{more}). WRI has little to compare there, and is closer to "
        "ERM. wri diagnose, or environment_overlap in Python, shows these pairs"
    )
