"""What is trained: banks of rows, and runs that point to rows of a bank."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.objectives import Objective
from wri.objectives.hyperparameters import complete
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED, Loss, Network

FEWEST_ROWS = 2  # IRM's half-batches and CORAL's covariances need two rows


@dataclass(frozen=True, eq=False)
class Bank:
    """Rows that runs share: features, targets and what is predicted from them.

    Parameters
    ----------
    features
        `[N, D]`.
    targets
        `[N]`: class numbers from 0 for "cross_entropy", 0 or 1 for "logistic", any number for
        "squared".
    loss
        One of the losses in `wri.stacked`.
    classes
        Number of classes for "cross_entropy"; counted from the targets when not given.
    weights
        How much each row counts among those of its environment, `[N]`, positive; equal when not
        given.
    """

    features: np.ndarray
    targets: np.ndarray
    loss: Loss = CROSS_ENTROPY
    classes: int | None = None
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        features, targets = np.asarray(self.features), np.asarray(self.targets)
        if features.dtype.kind not in "fiub" or targets.dtype.kind not in "fiub":
            raise InputError(
                f"features and targets must be numbers, not {features.dtype} and {targets.dtype}; "
                "encode texts and categories first"
            )
        if features.ndim != 2 or targets.ndim != 1:
            raise InputError(
                f"features must be a table [rows, columns] and targets a list, not shapes "
                f"{features.shape} and {targets.shape}"
            )
        if len(features) != len(targets):
            raise InputError(
                f"features have {len(features)} rows and targets {len(targets)}; "
                "they must be equally many"
            )
        bad = np.argwhere(~np.isfinite(features))
        if len(bad):
            row, column = bad[0]
            raise InputError(
                f"features hold NaN or infinity: row {row}, column {column} is "
                f"{features[row, column]} ({len(bad)} such cells); fill or drop them first"
            )
        lost = np.flatnonzero(~np.isfinite(targets))
        if len(lost):
            raise InputError(f"the target in row {lost[0]} is {targets[lost[0]]}; drop such rows")
        self._check_classes(targets)
        if self.weights is not None:
            object.__setattr__(self, "weights", self._checked_weights(len(features)))
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)

    def tensors(
        self, dtype: torch.dtype, device: str, rows: np.ndarray | slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """Features and targets of some rows, targets as class numbers or as floats."""
        x = torch.as_tensor(self.features[rows], dtype=dtype, device=device)
        y = torch.as_tensor(self.targets[rows], device=device)
        return x, y.to(torch.long if self.loss.classes else dtype)

    def _checked_weights(self, n_rows: int) -> np.ndarray:
        weights = np.asarray(self.weights, np.float64)
        if weights.shape != (n_rows,):
            raise InputError(
                f"weights must be a list of {n_rows}, not of the shape {weights.shape}"
            )
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
        if len(wrong):
            raise InputError(
                f"the weight of row {wrong[0]} is {weights[wrong[0]]}; weights must be positive: "
                "drop rows that do not count"
            )
        return weights

    def _check_classes(self, targets: np.ndarray) -> None:
        if self.loss is SQUARED:
            return
        most = 2 if self.loss is LOGISTIC else self.outputs
        wrong = np.flatnonzero((targets != targets.astype(int)) | (targets < 0) | (targets >= most))
        if len(wrong):
            raise InputError(
                f"the target in row {wrong[0]} is {targets[wrong[0]]}; {self.loss.name} needs "
                f"class numbers 0 to {most - 1}"
            )

    @property
    def outputs(self) -> int:
        """Outputs of a network that predicts these targets."""
        if not self.loss.classes:
            return 1
        return self.classes or int(np.max(self.targets, initial=0)) + 1


@dataclass(frozen=True, eq=False)
class Run:
    """One training: an objective with its numbers, a seed, and rows of a bank.

    Parameters
    ----------
    objective
        What is minimised.
    bank
        The rows it learns from.
    train
        Rows of the bank for each training environment.
    hyper
        Hyper-parameters; what is missing is taken from `preset`.
    seed
        Decides the initial weights and the batches, and nothing else does.
    evaluate
        Named sets of rows that are measured at every checkpoint; no row in two of them.
    hidden
        Widths of the hidden layers; `(D/2, D/4)`, as the paper ran, when not given.
    """

    objective: Objective
    bank: Bank
    train: Sequence[np.ndarray]
    hyper: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    evaluate: Mapping[str, np.ndarray] = field(default_factory=dict)
    hidden: tuple[int, ...] | None = None
    preset: str = "domainbed"

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed must not be negative, not {self.seed}")
        if self.hidden is not None and min(self.hidden, default=1) < 1:
            raise InputError(f"hidden layers need at least one unit each, not {self.hidden}")
        name = self.objective.name
        hyper = complete(self.objective.hyperparameters(), self.hyper, self.preset)
        self.objective.check(hyper)
        object.__setattr__(self, "hyper", hyper)
        object.__setattr__(
            self,
            "train",
            [self._rows(f"environment {e}", rows) for e, rows in enumerate(self.train)],
        )
        object.__setattr__(
            self,
            "evaluate",
            {split: self._rows(f"split {split!r}", rows) for split, rows in self.evaluate.items()},
        )
        if len(self.train) < self.objective.least_environments:
            raise InputError(
                f"{name} compares environments and needs at least "
                f"{self.objective.least_environments}, not {len(self.train)}; use erm for one"
            )
        for e, rows in enumerate(self.train):
            if len(rows) < FEWEST_ROWS:
                raise InputError(
                    f"environment {e} has {len(rows)} training rows; at least {FEWEST_ROWS} are "
                    "needed: drop or merge it"
                )
            if self.bank.loss is not SQUARED and len(np.unique(self.bank.targets[rows])) == 1:
                warnings.warn(
                    f"environment {e} holds a single class; its risk says little about the others",
                    stacklevel=3,
                )
        every = np.concatenate(list(self.evaluate.values()) or [np.empty(0, int)])
        if len(np.unique(every)) < len(every):
            raise InputError("a row stands in two evaluation splits; make them disjoint")

    def _rows(self, what: str, rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows)
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise InputError(f"{what}: rows must be a list of row numbers")
        outside = rows[(rows < 0) | (rows >= len(self.bank.features))]
        if len(outside):
            raise InputError(
                f"{what}: row {outside[0]} does not exist; the bank has "
                f"{len(self.bank.features)} rows, counted from 0"
            )
        return rows.astype(np.int64)

    @property
    def network(self) -> Network:
        width = self.bank.features.shape[1]
        hidden = self.hidden
        if hidden is None:
            hidden = (max(1, width // 2), max(1, width // 4))
        return Network((width, *hidden, self.bank.outputs))

    @property
    def batch_rows(self) -> int:
        """Rows that a step takes from the largest environment."""
        return min(int(self.hyper["batch_size"]), max(len(rows) for rows in self.train))

    @property
    def bucket(self) -> tuple[Any, ...]:
        """Runs with equal buckets may share a stack."""
        return (
            self.objective,
            len(self.train),
            self.network,
            self.bank.loss.name,
            tuple(self.evaluate),
        )
