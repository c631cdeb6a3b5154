"""Mirrored digits: shapes that no training environment has, for tests out of distribution.

3, 4, 7 and 9 are flipped left to right, 4, 6, 7 and 9 upside down: digits that do not look like
another digit afterwards, as in the paper. So 4, 7 and 9 occur twice, once per direction.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wri.paper.simulations.coloured_mnist import ColouredDigits

FLIPS = {"horizontal": (3, 4, 7, 9), "vertical": (4, 6, 7, 9)}
_AXES = {"horizontal": 2, "vertical": 1}  # of grey, [n, 28, 28]


class Mirrored(NamedTuple):
    """Mirrored digits of an environment, those of the first direction first.

    Attributes
    ----------
    digits : ColouredDigits
        m mirrored digits; all but the grey images are unchanged.
    rows : ndarray of shape (m,)
        Their rows in the environment.
    direction : ndarray of shape (m,)
        "horizontal" or "vertical".

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist, mirror
    >>> digits = Mnist(np.ones((60, 28, 28), np.uint8), np.full(60, 3, np.uint8))
    >>> mirrored = mirror(coloured_mnist("cmnist", mnist=digits)[0])
    >>> len(mirrored.rows), set(mirrored.direction.tolist())
    (20, {'horizontal'})
    """

    digits: ColouredDigits  # [m]; all but the grey images as before
    rows: np.ndarray  # [m], which rows of the environment they were
    direction: np.ndarray  # [m], a key of FLIPS


def mirror(environment: ColouredDigits) -> Mirrored:
    """Mirror the digits of an environment that do not look like another digit afterwards.

    Parameters
    ----------
    environment : ColouredDigits
        The digits.

    Returns
    -------
    mirrored : Mirrored
        3, 4, 7 and 9 flipped left to right, and 4, 6, 7 and 9 upside down.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist, mirror
    >>> digits = Mnist(np.ones((60, 28, 28), np.uint8), np.full(60, 4, np.uint8))
    >>> mirrored = mirror(coloured_mnist("cmnist", mnist=digits)[0])
    >>> len(mirrored.digits)
    40
    """
    rows = {name: np.flatnonzero(np.isin(environment.digits, each)) for name, each in FLIPS.items()}
    grey = [np.flip(environment.grey[own], _AXES[name]) for name, own in rows.items()]
    every = np.concatenate(list(rows.values()))
    direction = np.repeat(list(rows), [len(own) for own in rows.values()])
    digits = replace(environment.take(every), grey=np.concatenate(grey))
    return Mirrored(digits, every, direction)
