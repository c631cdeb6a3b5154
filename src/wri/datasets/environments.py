"""One environment: rows that were collected under the same circumstances."""

from typing import NamedTuple

import numpy as np


class Environment(NamedTuple):
    name: str
    x: np.ndarray  # [n, D]
    y: np.ndarray  # [n]
