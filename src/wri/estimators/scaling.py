"""Columns in their own units to columns of mean 0 and variance 1, and back."""

from typing import Any, NamedTuple, Self

import numpy as np

from wri.errors import InputError


class Scaling(NamedTuple):
    """z = (x − mean) / scale; constant columns keep their scale."""

    mean: np.ndarray  # [D], or a number
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        mean, scale = values.mean(0), values.std(0)
        # a column that differs by rounding only is constant
        flat = scale <= 10 * np.finfo(float).eps * np.abs(mean)
        return cls(mean, np.where(flat | (scale == 0), 1.0, scale))

    def apply(self, values: np.ndarray) -> np.ndarray:
        return (values - self.mean) / self.scale

    def undo(self, values: np.ndarray) -> np.ndarray:
        return values * self.scale + self.mean


def refuse_gaps(X: np.ndarray, names: Any) -> None:
    """NaN or infinity in X is an error that names its first cell."""
    finite = np.isfinite(X)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    where = f"column {column}" if names is None else f"column {str(names[column])!r}"
    kind = "NaN" if np.isnan(X[row, column]) else "infinity"
    raise InputError(
        f"X contains {kind}: row {row}, {where} ({np.sum(~finite)} cells that are NaN or infinity "
        "in all); fill them first, for example with sklearn.impute.SimpleImputer, or drop the rows"
    )
