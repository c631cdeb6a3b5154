"""What a run leaves: its predictor and its measures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wri.stacked import Network


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """Result of a run.

    Attributes
    ----------
    steps : ndarray of shape (T,)
        Step of each checkpoint, counted from 0, after its update.
    measures : dict of str to dict of str to ndarray
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

    steps: np.ndarray  # [T], step of each checkpoint, counted from 0, after its update
    measures: dict[str, dict[str, np.ndarray]]  # measure -> split -> [T]
    diverged_at: int | None  # step whose loss, gradient or update was not finite
    network: Network
    parameters: np.ndarray  # [P], for `network.packing`
    state: Any  # what the objective keeps, WRI's densities
    gradient: float | None = None  # where a solved run ended
