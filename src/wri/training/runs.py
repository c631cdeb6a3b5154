"""Banks of rows, runs that train on rows of a bank, and what a run leaves."""

import hashlib
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from wri.errors import InputError
from wri.objectives import Objective
from wri.objectives.base import TrainingRows
from wri.rows import Scaling, find_missing, refuse_missing
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED, Loss, Network
from wri.stacked.linear import GRADIENT
from wri.training.spec import ModelSpec

FEWEST_ROWS = 2  # IRM's half-batches and CORAL's covariances need two rows
LARGE_BANK = 2**22  # size of a bank of which a stack holds at most one standardised copy


@dataclass(frozen=True, eq=False)
class Bank:
    """Rows that runs share: features, targets and the loss of predictions.

    Parameters
    ----------
    features : ndarray of shape (N, D)
        Numbers without missing values.
    targets : ndarray of shape (N,)
        Class numbers from 0 for "cross_entropy", 0 or 1 for "logistic", any number for "squared".
    loss : Loss, default=CROSS_ENTROPY
        One of the losses in `wri.stacked`.
    classes : int or None, default=None
        Number of classes for "cross_entropy". None: counted from the targets.
    weights : ndarray of shape (N,) or None, default=None
        Positive weight of each row within its environment. None: equal.
    gaps : bool, default=False
        Whether features may be missing (NaN), for predictors that accept missing values.

    Raises
    ------
    InputError
        If shapes or values do not fit. The message names the row.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank
    >>> bank = Bank(np.zeros((4, 2)), np.array([0, 1, 2, 0]))
    >>> bank.outputs, bank.n_classes
    (3, 3)
    """

    features: np.ndarray
    targets: np.ndarray
    _: KW_ONLY
    loss: Loss = CROSS_ENTROPY
    classes: int | None = None
    weights: np.ndarray | None = None
    gaps: bool = False

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
                "the numbers must be equal"
            )
        if not self.gaps:
            refuse_missing(features, None, "features")
        lost = find_missing(targets)
        if lost is not None:
            raise InputError(f"the target in row {lost.row} is {targets[lost.row]}; drop such rows")
        self._check_classes(targets)
        if self.weights is not None:
            object.__setattr__(self, "weights", self._checked_weights(len(features)))
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)

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
        """Number of outputs of a network that predicts these targets."""
        if not self.loss.classes:
            return 1
        return self.classes or int(np.max(self.targets, initial=0)) + 1

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None if numbers are predicted."""
        if self.loss is SQUARED:
            return None
        return 2 if self.loss is LOGISTIC else self.outputs


class Units(NamedTuple):
    """Units in which a run sees inputs and target.

    Attributes
    ----------
    inputs : Scaling
        Mean and scale of the inputs.
    target : Scaling
        Mean and scale of the target.

    Examples
    --------
    >>> from wri.training import Units
    >>> Units.plain(2).inputs.scale
    array([1., 1.])
    """

    inputs: Scaling
    target: Scaling

    @classmethod
    def plain(cls, width: int) -> "Units":
        """Return units that change nothing.

        Parameters
        ----------
        width : int
            Number of inputs.

        Returns
        -------
        units : Units
            Means 0 and scales 1.
        """
        zero, one = np.zeros(width), np.ones(width)
        return cls(Scaling(zero, one), Scaling(np.zeros(()), np.ones(())))


@dataclass(frozen=True, eq=False)
class Run:
    """One training: a model specification, rows of a bank, and a seed.

    Parameters
    ----------
    spec : ModelSpec
        What is trained. The run completes it by the size of its training rows.
    bank : Bank
        The rows.
    train : sequence of ndarray of int
        Row numbers of each training environment.
    seed : int, default=0
        Seed of the initial weights and the batches.
    evaluate : mapping of str to ndarray of int, default={}
        Named sets of row numbers that are measured at each checkpoint; a row counts as often as it
        is listed.
    tolerance : float, default=1e-8
        Largest component of the gradient at which a solved run ends.

    Raises
    ------
    InputError
        If rows do not exist or environments are too few or too small.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run
    >>> bank = Bank(np.zeros((6, 2)), np.array([0, 1] * 3))
    >>> run = Run(ModelSpec.of("erm"), bank, [np.arange(3), np.arange(3, 6)])
    >>> run.network.widths, run.batch_rows
    ((2, 16, 8, 2), 3)
    """

    spec: ModelSpec
    bank: Bank
    train: Sequence[np.ndarray]
    _: KW_ONLY
    seed: int = 0
    evaluate: Mapping[str, np.ndarray] = field(default_factory=dict)
    tolerance: float = GRADIENT

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed must not be negative, not {self.seed}")
        train = [self._rows(f"environment {e}", rows) for e, rows in enumerate(self.train)]
        splits = {name: self._rows(f"split {name!r}", rows) for name, rows in self.evaluate.items()}
        object.__setattr__(self, "train", train)
        object.__setattr__(self, "evaluate", splits)
        self._check_environments()
        learned = self.learned
        weight = len(learned) if self.bank.weights is None else self.bank.weights[learned].sum()
        width, largest = self.bank.features.shape[1], max(map(len, train))
        object.__setattr__(self, "spec", self.spec.complete(width, float(weight), largest))

    def _check_environments(self) -> None:
        least = self.objective.least_environments
        if len(self.train) < least:
            raise InputError(
                f"{self.objective.name} compares environments and needs at least "
                f"{least}, not {len(self.train)}; use erm for one"
            )
        for e, rows in enumerate(self.train):
            if len(rows) < FEWEST_ROWS:
                raise InputError(
                    f"environment {e} has {len(rows)} training rows; at least {FEWEST_ROWS} are "
                    "needed: drop or merge it"
                )
            if self.bank.loss is not SQUARED and len(np.unique(self.bank.targets[rows])) == 1:
                warnings.warn(
                    f"environment {e} holds a single class, so its risk says little about the "
                    "other classes",
                    stacklevel=4,
                )

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
        return rows.astype(np.int64, copy=False)

    @property
    def objective(self) -> Objective:
        """Objective of the specification."""
        return self.spec.objective

    @property
    def hyper(self) -> Mapping[str, float]:
        """Hyper-parameters of the specification."""
        return self.spec.hyper

    @property
    def learned(self) -> np.ndarray:
        """Training rows of all environments."""
        return np.concatenate(list(self.train))

    @property
    def dtype(self) -> torch.dtype:
        """Number type of the training."""
        return torch.float64 if self.spec.precision == "double" else torch.float32

    @property
    def network(self) -> Network:
        """Architecture of the predictor."""
        hidden = self.spec.hidden or ()
        return Network((self.bank.features.shape[1], *hidden, self.bank.outputs))

    @cached_property
    def units(self) -> Units:
        """Units of the training rows, if the specification standardises."""
        if not self.spec.standardise:
            return Units.plain(self.bank.features.shape[1])
        return cached_for(self, (type(self), "units"), self._find_units)

    def _find_units(self) -> Units:
        bank, learned = self.bank, self.learned
        weights = None if bank.weights is None else bank.weights[learned]
        target = Units.plain(1).target
        if bank.loss is SQUARED:
            target = Scaling.of(bank.targets[learned].astype(np.float64), weights)
        return Units(self._find_inputs(learned, weights), target)

    def _find_inputs(self, learned: np.ndarray, weights: np.ndarray | None) -> Scaling:
        features = self.bank.features[learned].astype(np.float64, copy=False)
        return Scaling.of(features, weights, overwrite=True)

    @cached_property
    def split(self) -> Hashable:
        """Key that is equal for runs with the same training rows."""
        digest = hashlib.blake2b(digest_size=16)
        for rows in self.train:
            digest.update(len(rows).to_bytes(8, "little"))
            digest.update(rows.tobytes())
        return id(self.bank), digest.digest()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out `split`, which names the bank of this process."""
        return {name: value for name, value in self.__dict__.items() if name != "split"}

    @property
    def source(self) -> Hashable:
        """Key that is equal for runs that see the same numbers in the same rows."""
        return self.split if self.spec.standardise else id(self.bank)

    def view(self, rows: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return features and targets of some rows in the units of the run.

        Parameters
        ----------
        rows : ndarray of int or slice, default=slice(None)
            Rows of the bank; by default all.

        Returns
        -------
        features : ndarray of shape (n, D)
            Features.
        targets : ndarray of shape (n,)
            Targets.
        """
        features, targets = self.bank.features[rows], self.bank.targets[rows]
        if not self.spec.standardise:
            return features, targets
        if self.bank.loss is SQUARED:
            targets = self.units.target.apply(targets)
        is_own = features.dtype == np.float64 and not isinstance(rows, slice)
        return self.units.inputs.apply(features, overwrite=is_own), targets

    def training_rows(self) -> TrainingRows:
        """Return all training rows by environment, in the units of the run.

        Returns
        -------
        rows : TrainingRows
            Features, targets and weights.
        """
        kind = np.float64 if self.bank.n_classes is None else np.int64
        learned, weights = self.learned, self.bank.weights
        x, y = self.view(learned)
        return TrainingRows(
            x,
            y.astype(kind, copy=False),
            np.ones(len(learned)) if weights is None else weights[learned],
            [*map(len, self.train)],
        )

    def tensors(self, device: str, rows: np.ndarray | slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Return features and targets of some rows on a device, in the units of the run.

        Parameters
        ----------
        device : str
            PyTorch device.
        rows : ndarray of int or slice, default=slice(None)
            Rows of the bank; by default all.

        Returns
        -------
        features : Tensor of shape (n, D)
            Features.
        targets : Tensor of shape (n,)
            Class numbers or floats.
        """
        features, targets = self.view(rows)
        x = torch.as_tensor(features, dtype=self.dtype, device=device)
        y = torch.as_tensor(targets, device=device)
        return x, y.to(torch.long if self.bank.loss.classes else self.dtype)

    @property
    def batch_rows(self) -> int:
        """Number of rows that a step takes from the largest environment."""
        return min(int(self.hyper["batch_size"]), max(len(rows) for rows in self.train))

    @property
    def bucket(self) -> tuple[Any, ...]:
        """Key that is equal for runs that may share a stack."""
        spec = self.spec
        large = spec.standardise and self.bank.features.size > LARGE_BANK
        return (
            spec.objective,
            len(self.train),
            self.network,
            self.bank.loss.name,
            tuple(self.evaluate),
            (spec.steps, spec.stop_after, spec.precision, spec.is_solved),
            self.source if large else None,
        )


Kept = TypeVar("Kept")
_KEPT: WeakKeyDictionary[Bank, dict[Hashable, Any]] = WeakKeyDictionary()
"""Results of fits on a bank's rows, kept for later stacks."""


def cached_for(run: Run, key: Hashable, make: Callable[[], Kept]) -> Kept:
    """Return the result of `make` for the rows of a run, kept for later stacks."""
    kept = _KEPT.setdefault(run.bank, {})
    key = (key, run.split, run.spec.standardise, run.spec.is_solved)
    if key not in kept:  # stacks that start together may compute the same value twice
        kept[key] = make()
    return kept[key]


@dataclass(frozen=True, eq=False, kw_only=True)
class RunResult:
    """Checkpoints of a run, whatever was trained."""

    steps: np.ndarray  # [T], step of each checkpoint, counted from 0, after its update
    measures: Mapping[str, Mapping[str, np.ndarray]]  # measure -> split -> [T]
    diverged_at: int | None  # step whose loss, gradient or update was not finite


@dataclass(frozen=True, eq=False, kw_only=True)
class Record(RunResult):
    """Result of a run of networks.

    Attributes
    ----------
    steps : ndarray of shape (T,)
        Step of each checkpoint, counted from 0, after its update.
    measures : mapping of str to mapping of str to ndarray
        Values `[T]` by measure and split.
    diverged_at : int or None
        Step whose loss, gradient or update was not finite.
    network : Network
        Architecture of the predictor.
    parameters : ndarray of shape (P,)
        Trained parameters, for `network.packing`.
    state : Any
        State that the objective keeps, for instance WRI's densities.
    gradient : float or None, default=None
        Largest component of the gradient where a solved run ended; None for a trained one.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, train_stack
    >>> bank = Bank(np.arange(8.0)[:, None] / 8, np.array([0, 1] * 4))
    >>> rows = {"all": np.arange(8)}
    >>> run = Run(ModelSpec.of("erm", steps=5), bank, [np.arange(8)], evaluate=rows)
    >>> (record,) = train_stack([run])
    >>> record.steps, record.measures["accuracy"]["all"].shape, record.diverged_at
    (array([0, 4]), (2,), None)
    """

    network: Network
    parameters: np.ndarray  # [P], for `network.packing`
    state: Any  # what the objective keeps, WRI's densities
    gradient: float | None = None  # where a solved run ended
