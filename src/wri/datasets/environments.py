"""One environment: rows that were collected under the same circumstances."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Environment(NamedTuple):
    name: str
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]


class Rows(NamedTuple):
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
    site: np.ndarray  # [n], names of environments


def joined(environments: Sequence[Environment]) -> Rows:
    """All rows, one environment after the other, as estimators take them."""
    sizes = [len(environment.y) for environment in environments]
    return Rows(
        np.concatenate([environment.x for environment in environments]),
        np.concatenate([environment.y for environment in environments]),
        np.repeat([environment.name for environment in environments], sizes),
    )
