"""Mirrored digits: shapes that no training environment has, for tests of what is out of domain.

Flipped left to right are 3, 4, 7 and 9, upside down are 4, 6, 7 and 9: digits that are not taken
for another one afterwards, as the paper has it. So 4, 7 and 9 occur twice, once in each direction.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wri.datasets.coloured_mnist import ColouredDigits

FLIPS = {"horizontal": (3, 4, 7, 9), "vertical": (4, 6, 7, 9)}
_AXES = {"horizontal": 2, "vertical": 1}  # of grey, [n, 28, 28]


class Mirrored(NamedTuple):
    """The mirrored digits of an environment, those of the first direction first."""

    digits: ColouredDigits  # [m]; all but the grey images as before
    rows: np.ndarray  # [m], which rows of the environment they were
    direction: np.ndarray  # [m], a key of FLIPS


def mirror(environment: ColouredDigits) -> Mirrored:
    """Every digit of the environment that FLIPS names, mirrored in each direction it stands in."""
    rows = {name: np.flatnonzero(np.isin(environment.digits, each)) for name, each in FLIPS.items()}
    grey = [np.flip(environment.grey[own], _AXES[name]) for name, own in rows.items()]
    every = np.concatenate(list(rows.values()))
    direction = np.repeat(list(rows), [len(own) for own in rows.values()])
    digits = replace(environment.take(every), grey=np.concatenate(grey))
    return Mirrored(digits, every, direction)
