"""Mixtures of table 3: densities of the training environments, fitted by likelihood."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wri.densities import Mixture
from wri.ood import Densities, combine, common_scaling
from wri.ood.evidence import Combination
from wri.paper.experiments.coloured import TRAINING
from wri.progress import Progress
from wri.sweep import SweepData

COMPONENTS = {"x": (3, 10, 30, 60), "phi": (1, 3, 10, 30)}
MOST_ROWS = 10_000  # per environment, for a mixture
TOLERANCE = 1e-2  # of a log-likelihood of tens

OfRows = Callable[[np.ndarray], np.ndarray]  # [n, D] -> [n], a score, or [n, F], a view


class TrainingSplits(NamedTuple):
    """Rows of the training environments in one draw, `[n_e, D]` each."""

    train: list[np.ndarray]
    held_back: list[np.ndarray]


def split_training(data: SweepData, draw: int) -> TrainingSplits:
    splits, x = data.splits(draw), data.bank.features
    return TrainingSplits(
        *([x[splits[f"env{e}_{kind}"]] for e in TRAINING] for kind in ("in", "out"))
    )


def as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def ladder(what: str, full: bool) -> tuple[int, ...]:
    """Return the numbers of components to choose from; a quick run leaves out the largest."""
    return COMPONENTS[what] if full else COMPONENTS[what][:-1]


def fit_densities(environments: Sequence[np.ndarray], view: OfRows, components: int) -> Densities:
    """Fit mixtures to a view of the rows of each environment."""
    rows = [view(own[:MOST_ROWS]).astype(np.float32) for own in environments]  # EM is faster
    distinct = min(len(np.unique(own, axis=0)) for own in rows)  # one where Φ is dead
    form = Mixture(min(components, distinct), tolerance=TOLERANCE)
    return Densities.fit(rows, form, common_scaling(rows))


def mean_likelihood(
    densities: Densities, view: OfRows, environments: Sequence[np.ndarray]
) -> float:
    """Return the mean log density of the environments' rows under their own mixtures."""
    own = [densities.logs(view(rows))[:, e].mean() for e, rows in enumerate(environments)]
    return float(np.mean(own))


def fit_best(
    rows: TrainingSplits, view: OfRows, components: Sequence[int], progress: Progress
) -> Densities:
    """Fit mixtures with the number of components that held-back rows choose."""
    tried = []
    for n, number in enumerate(components, 1):
        tried.append(fit_densities(rows.train, view, number))
        progress(n, len(components))
    return max(tried, key=lambda each: mean_likelihood(each, view, rows.held_back))


def mixed(densities: Densities, view: OfRows, by: Combination, x: np.ndarray) -> np.ndarray:
    """Return the scores of rows seen through a view."""
    return combine(densities.logs(view(x)), by)
