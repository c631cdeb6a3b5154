"""One environment: rows that were collected under the same circumstances."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Environment(NamedTuple):
    name: str
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]


class SiteRows(NamedTuple):
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    site: np.ndarray  # [n], names of environments


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledFile:
    """A file's environments, and what its columns and class numbers are called.

    Parameters
    ----------
    x, y
        Rows of all environments, one after the other, each in the file's order; y holds class
        numbers from 0, or numbers.
    names, sizes
        Of the environments, in the natural order of names.
    features
        Names of the columns of x.
    classes
        Names of the class numbers; None where y holds numbers.
    """

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...] | None

    @property
    def environments(self) -> list[Environment]:
        """Views of the rows."""
        ends = np.cumsum(self.sizes)
        return [
            Environment(name, self.x[end - size : end], self.y[end - size : end])
            for name, size, end in zip(self.names, self.sizes, ends, strict=True)
        ]


def joined(environments: Sequence[Environment]) -> SiteRows:
    """All rows, one environment after the other, as estimators take them."""
    sizes = [len(environment.y) for environment in environments]
    return SiteRows(
        np.concatenate([environment.x for environment in environments]),
        np.concatenate([environment.y for environment in environments]),
        np.repeat([environment.name for environment in environments], sizes),
    )
