"""Environments: rows that were collected under the same circumstances."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Environment(NamedTuple):
    """Rows of one environment.

    Attributes
    ----------
    name : str
        Name of the environment.
    x : ndarray of shape (n, D)
        Features.
    y : ndarray of shape (n,)
        Targets.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Environment
    >>> Environment("north", np.zeros((5, 2)), np.zeros(5)).name
    'north'
    """

    name: str
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]


class SiteRows(NamedTuple):
    """Rows of several environments."""

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    site: np.ndarray  # [n], names of environments


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledFile:
    """Environments of a file, with the names of its columns and classes.

    Parameters
    ----------
    x : ndarray of shape (n, D)
        Rows of all environments, one after the other, each in the order of the file.
    y : ndarray of shape (n,)
        Class numbers from 0, or numbers.
    names : tuple of str
        Names of the environments in natural order.
    sizes : tuple of int
        Number of rows of each environment.
    features : tuple of str
        Names of the columns of x.
    classes : tuple of str or None
        Names of the class numbers; None if y holds numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import LabelledFile
    >>> file = LabelledFile(
    ...     x=np.zeros((3, 1)),
    ...     y=np.array([0, 1, 0]),
    ...     names=("a", "b"),
    ...     sizes=(1, 2),
    ...     features=("age",),
    ...     classes=("well", "ill"),
    ... )
    >>> [(each.name, each.y.tolist()) for each in file.environments]
    [('a', [0]), ('b', [1, 0])]
    """

    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    features: tuple[str, ...]
    classes: tuple[str, ...] | None

    @property
    def environments(self) -> list[Environment]:
        """The environments, as views of the rows."""
        ends = np.cumsum(self.sizes)
        return [
            Environment(name, self.x[end - size : end], self.y[end - size : end])
            for name, size, end in zip(self.names, self.sizes, ends, strict=True)
        ]


def joined(environments: Sequence[Environment]) -> SiteRows:
    """Join the rows of several environments for an estimator.

    Parameters
    ----------
    environments : sequence of Environment
        Environments with the same columns, or any objects with `name`, `x` and `y`.

    Returns
    -------
    rows : SiteRows
        `x`, `y` and `site`, one environment after the other.

    Examples
    --------
    >>> from wri.datasets import hospitals, joined
    >>> X, y, site = joined(hospitals(50, seed=0))
    >>> X.shape, sorted(set(site.tolist()))
    ((200, 3), ['east', 'north', 'south', 'west'])
    """
    sizes = [len(environment.y) for environment in environments]
    return SiteRows(
        np.concatenate([environment.x for environment in environments]),
        np.concatenate([environment.y for environment in environments]),
        np.repeat([environment.name for environment in environments], sizes),
    )
