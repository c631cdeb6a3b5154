"""How much environments overlap: the share of cases that they have in common.

    ρ_ij = ∫ 2 p_i p_j / (p_i + p_j) = E_i[2 w_ij] = E_j[2 w_ji],   w_ij = p_j / (p_i + p_j)

ρ is 1 for equal distributions and 0 for disjoint ones. Weights come from a classifier of
environments that has not seen the row it weighs; a fit takes its own rows for rarer elsewhere than
they are. The mean of both sides is right for equal distributions whatever the fit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from wri.densities import FittedClassifier
from wri.diagnosis.inputs import listed
from wri.diagnosis.weight_quality import effective_sample_size
from wri.diagnosis.weighted_moments import overlap_logs
from wri.errors import InputError
from wri.report import style
from wri.rows import Environments, Scaling, read_sites

GOOD_OVERLAP = 0.3
"""From here on weights are good for learning and for tests."""

LEAST_OVERLAP = 0.1
"""Below, weights are a guess: the classifier's level off, at 0.1 for 0.07 and at 0.01 for 0."""

SAME = 0.98
"""From here on two environments are replicates."""

FEW_ROWS = 30
"""Effective rows below which weighted means say little."""

_ANNOTATED = 20  # beyond, numbers in cells are too many to read


@dataclass(frozen=True, eq=False)
class Overlap:
    """What each pair of environments has in common."""

    labels: np.ndarray  # [E]
    overlap: np.ndarray  # [E, E], ρ_ij
    effective_rows: np.ndarray  # [E, E], of i's towards j; means nothing below LEAST_OVERLAP
    rows: np.ndarray  # [E]

    @property
    def meaning(self) -> str:
        """What was found and what to do, in plain words."""
        i, j = np.triu_indices(len(self.labels), 1)
        names = np.array([f"{first} and {other}" for first, other in self.labels[np.c_[i, j]]])
        shared = self.overlap[i, j]  # [P]
        worth = np.minimum(self.effective_rows[i, j], self.effective_rows[j, i])
        least = int(shared.argmin())
        lowest = f"{names[least]}, which share {shared[least]:.2f} of their cases (1 is all)"
        hardly = (shared < GOOD_OVERLAP) | (worth < FEW_ROWS)
        if hardly.any():
            named = listed(tuple(f"({name})" for name in names[hardly]), 4)
            return (
                f"{hardly.sum()} of {len(names)} pairs of environments have little in common: "
                f"{named}; least of all {lowest}. Weights between them rest on few rows: leave "
                "such an environment out of weighting, merge it with one like it, use fewer "
                "columns, or collect rows in between."
            )
        if shared[least] >= SAME:
            return (
                f"The environments cannot be told apart, not even {lowest}. They are replicates, "
                "which teach nothing about invariance: choose groups between which something "
                "changes, such as hospital, year or device."
            )
        return (
            f"All {len(names)} pairs of environments overlap well, least {lowest}. Weights between "
            f"them can be relied upon: a side of a pair is worth {worth.min():.0f} rows or more."
        )

    def plot(self) -> Figure:
        """Heat maps of overlap and of the share of rows that weights leave."""
        share = self.effective_rows / self.rows[:, None]
        share = np.where(self.overlap < LEAST_OVERLAP, np.nan, share)
        size = max(2.2, (0.42 if len(self.labels) <= _ANNOTATED else 0.2) * len(self.labels))
        margin = 0.08 * max(len(str(label)) for label in self.labels)
        with style.figure(2 * size + margin + 1.3, size + margin + 0.9) as drawn:
            drawn.set_layout_engine("compressed")  # square cells leave no space unused
            left, right = drawn.subplots(1, 2, sharey=True)
            self._heat_map(left, self.overlap, "overlap")
            image = self._heat_map(right, share, "effective share of rows")
            left.set_ylabel("rows of")
            drawn.colorbar(image, ax=[left, right], shrink=0.8)
        return drawn

    def _heat_map(self, ax: Axes, values: np.ndarray, title: str) -> AxesImage:
        image = ax.imshow(values, cmap="Blues", vmin=0, vmax=1)
        places, names = range(len(self.labels)), [str(label) for label in self.labels]
        wide = max(map(len, names)) > 4 or len(names) > _ANNOTATED
        ax.set_xticks(places, names, rotation=90 if wide else 0)
        ax.set_yticks(places, names)
        ax.set_title(title)
        ax.set_xlabel("weighted towards")
        if len(names) <= _ANNOTATED:
            for (i, j), value in np.ndenumerate(values):
                text = "–" if np.isnan(value) else f"{value:.2f}"
                colour = "white" if value > 0.6 else "black"
                ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
        return image


def environment_overlap(X: Any, groups: Iterable[Any], seed: int = 0) -> Overlap:
    """How much of their cases environments have in common, pair by pair.

    Parameters
    ----------
    X
        Rows of numbers without gaps; the columns that weights shall see, a DataFrame or an array.
        More columns overlap less.
    groups
        The environment of every row, any hashable labels.
    seed
        Of the split into folds.

    Returns
    -------
    Overlap
        Its `meaning` says what was found and what to do, its `plot()` draws it.
    """
    x, _, environments = read_sites(X, groups)
    logs = overlap_logs(environment_logs(x, environments, seed=seed), environments.number)
    counts = np.array([len(rows) for rows in environments.rows])
    return Overlap(environments.labels, *pair_overlap(logs, environments), counts)


def environment_logs(
    z: np.ndarray, environments: Environments, folds: int = 5, seed: int = 0
) -> np.ndarray:
    """Log of each environment's density relative to their sum, at rows that the fit has not seen.

    Parameters
    ----------
    z
        Rows without gaps, `[n, F]`.
    environments
        Of these rows.
    folds
        Into which the rows of each environment are split; one with fewer rows has as many folds.
    seed
        Of the split.

    Returns
    -------
    ndarray
        `[n, E]`, as if all environments were equally large.
    """
    if folds < 2:
        raise InputError(f"folds must be at least 2, not {folds}")
    random = np.random.default_rng(seed)
    fold = np.empty(len(z), int)
    for label, rows in zip(environments.labels, environments.rows, strict=True):
        if len(rows) < 2:
            raise InputError(
                f"environment {label} in groups has one row; weights need two or more, one to fit "
                "and one to weigh: merge it with another environment or leave it out"
            )
        fold[random.permutation(rows)] = np.arange(len(rows)) % folds
    # a penalty that stays as rows grow keeps weights too even, by more than chance explains
    decay = min(1e-2, 5 / min(map(len, environments.rows)))
    classifier = FittedClassifier(weight_decay=decay)
    logs = np.empty((len(z), len(environments.labels)))
    for left in np.unique(fold):
        out = fold == left
        scaling = Scaling.of(z[~out])
        fitted = classifier.fit([scaling.apply(z[rows[~out[rows]]]) for rows in environments.rows])
        flat, seen = torch.as_tensor(fitted)[None], torch.as_tensor(scaling.apply(z[out]))[None]
        logs[out] = classifier.log_density(flat, seen, logs.shape[1], {})[0].T
    return logs


def pair_overlap(logs: np.ndarray, environments: Environments) -> tuple[np.ndarray, np.ndarray]:
    """ρ_ij and the effective rows of i towards j, both `[E, E]`, from log w_ij `[n, E]`."""
    each = [logs[rows].T for rows in environments.rows]  # E of [E, n_i]
    sides = np.stack([2 * np.exp(own).mean(1) for own in each])  # [E, E]
    worth = [effective_sample_size(np.exp(own - own.max(1, keepdims=True))) for own in each]
    return np.minimum((sides + sides.T) / 2, 1), np.stack(worth)  # chance may pass the bound of 1
