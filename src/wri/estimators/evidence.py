"""Evidence behind predictions: densities and thresholds, and losses at sites left out.

Densities and thresholds are fitted after the predictor, for every objective, on the predictor's
representation of the rows; see `wri.ood.evidence`. Higher scores are more common.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wri.estimators.problem import Problem
from wri.moved import OldName
from wri.ood.evidence import Evidence
from wri.ood.held_out import ColumnRanges, ExpectedLoss, HeldOutRows, LeftOutSites, UnseenCells
from wri.progress import progress_bar, silent
from wri.rows import in_proportion

if TYPE_CHECKING:
    from wri.estimators.base import EnvironmentEstimator


MOST_OPTIMISM = 1e-3  # nats by which the loss on seen rows may be too small


@dataclass(frozen=True, eq=False, kw_only=True)
class Assessment:
    """Prediction and evidence of each row.

    Attributes
    ----------
    predictions : ndarray of shape (n_rows,)
        Predicted classes or numbers.
    probabilities : ndarray of shape (n_rows, n_classes) or None
        Class probabilities; None for a regressor.
    scores : ndarray of shape (n_rows,)
        Log density; higher is more common.
    typicality : ndarray of shape (n_rows,)
        Percentage of held-out rows that score at most as high.
    verdicts : ndarray of shape (n_rows,)
        "supported", "rare" or "outside".
    reasons : ndarray of shape (n_rows,)
        Reasons of the verdict, separated by "; "; empty for supported rows.
    nearest : ndarray of shape (n_rows,)
        Training environment in which the row is most common.
    unseen : tuple of UnseenCells, default=()
        Cells of kinds that training never had, by column.
    """

    predictions: np.ndarray  # [n], classes or numbers
    probabilities: np.ndarray | None  # [n, C], of a classifier
    scores: np.ndarray  # [n], log density, higher = more common
    typicality: np.ndarray  # [n], percentage of held-out rows that score at most as high
    verdicts: np.ndarray  # [n], "supported", "rare" or "outside"
    reasons: np.ndarray  # [n], of the verdicts
    nearest: np.ndarray  # [n], the training environment in which the row is most common
    unseen: tuple[UnseenCells, ...] = ()

    rarity = OldName("typicality")


def fit_evidence(
    model: "EnvironmentEstimator", without: "EnvironmentEstimator", problem: Problem
) -> tuple[Evidence, ColumnRanges, HeldOutRows]:
    """Fit densities, thresholds and ranges of columns; predict the held-out rows `without` them."""
    bank, rows, weights = problem.bank, problem.rows, problem.weights
    prepared = model._prepare(bank.features)
    outputs = model._outputs(prepared)
    z = model._represent(prepared, outputs)
    other_z, other_outputs = z, outputs
    if without is not model:
        others = without._prepare(bank.features)
        other_outputs = without._outputs(others)
        other_z = without._represent(others, other_outputs)
    sure = model._confidence(other_outputs)
    calibrating = [weights[own] for own in rows.calibrating]
    evidence = Evidence.fit(
        [z[own[in_proportion(weights[own])]] for own in rows.fitted],
        [other_z[own] for own in rows.calibrating],
        model.rare,
        model.outside,
        calibrating,
        None if sure is None else [sure[own] for own in rows.calibrating],
    )
    filled = [model._filled(prepared[own]) for own in rows.calibrating]
    kept = np.concatenate(rows.held_out)
    held_out = HeldOutRows.of(
        without._predictions(other_outputs[kept]),
        without._losses(other_outputs[kept], bank.targets[kept]),
        [weights[own] for own in rows.held_out],
    )
    return evidence, ColumnRanges.of(filled, calibrating), held_out


def without_held_out(
    models: Sequence["EnvironmentEstimator"], problem: Problem
) -> list["EnvironmentEstimator"]:
    """Return estimators as they are without the held-out rows: solved ones learn from them too."""
    found = list(models)
    rows, columns = problem.bank.features.shape
    # p parameters lower the loss on seen rows by about p/n nats (Akaike, 1973)
    if not any(map(len, problem.rows.held_out)) or columns <= MOST_OPTIMISM * rows:
        return found
    solved = [k for k, model in enumerate(models) if model.spec_.is_solved]
    every = range(problem.n_environments)
    runs = [problem.run(models[k].spec_, every, held_out=True) for k in solved]
    records = problem.train(runs, 1, silent) if runs else []
    for k, run, record in zip(solved, runs, records, strict=True):
        found[k] = copy(models[k])
        found[k]._take(run, record)
    return found


def leave_sites_out(model: "EnvironmentEstimator", problem: Problem) -> LeftOutSites | None:
    """Measure the loss at each environment when the specification is trained without it."""
    possible = problem.can_leave_one_out and model.n_held_out_ > 0
    # an exact density is given for all environments at once
    density = model.spec_.objective.density
    exact = density is not None and density.learning == "fixed"
    if not (model.site_spread and possible) or exact:
        return None
    rows, environments = problem.rows, range(problem.n_environments)
    losses, expectations = np.empty((2, len(environments)))
    with progress_bar("Leaving sites out", model.verbose) as progress:
        runs = problem.leave_out(model.spec_, progress)
    for fold, run, record in runs:
        if record.diverged_at is not None:
            return None
        without = copy(model)  # the estimator trained without these sites
        without._take(run, record)
        others = [rows.held_out[e] for e in environments if e not in fold]
        known = _predicted(without, problem, others)
        if not len(known.losses):
            return None
        expected = ExpectedLoss.of(known)
        for site in fold:
            every = np.concatenate([rows.fitted[site], rows.held_out[site]])
            new = _predicted(without, problem, [every])
            near = expected.mean(expected.near(new.predictions), expected.losses)
            losses[site], expectations[site] = new.shares @ new.losses, new.shares @ near
    return LeftOutSites(losses, expectations)


def _predicted(
    model: "EnvironmentEstimator", problem: Problem, rows: Sequence[np.ndarray]
) -> HeldOutRows:
    """Return predictions and losses of some rows of each environment."""
    every = np.concatenate(rows)
    outputs = model._outputs(model._prepare(problem.bank.features[every]))
    losses = model._losses(outputs, problem.bank.targets[every])
    weights = [problem.weights[own] for own in rows]
    return HeldOutRows.of(model._predictions(outputs), losses, weights)
