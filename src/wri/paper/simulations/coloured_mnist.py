"""ColoredMNIST: the digit causes the label, the label causes the colour.

    y = 1[digit < 5], flipped with probability ε(digit)
    colour = y, flipped with probability 0.1, 0.2, 0.9 in the three environments

The last environment, in which the colour misleads, is the test environment. An image has one
channel per colour; the channel of the other colour is zero. There are three data sets:

    cmnist       ε = 0.25                                        (Arjovsky et al., 2019)
    hcmnist      ε = 0.05 for the easy digits 0, 1, 5, 6 and 0.25 for the others
    hcmnist-cs   hcmnist with 65, 5 and 30 % of the easy digits in the three environments; the
                 others fill each up to a third of all

Labels and the order of the environments are those of the published runs. The paper's text has the
classes exchanged and names the 80 % environment first, which matters for hcmnist-cs only.

Mirrored digits are shapes that no environment has, for tests out of distribution: 3, 4, 7 and 9 are
flipped left to right, 4, 6, 7 and 9 upside down, digits that do not look like another digit
afterwards, as in the paper. So 4, 7 and 9 occur twice, once per direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wri.datasets.mnist import Mnist, load_mnist
from wri.errors import InputError, check_option

COLOUR_FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
EASY = (0, 1, 5, 6)
DIGIT_COUNTS = (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958)
"""Number of rows of each digit in MNIST's 70,000."""
FLIPS = {"horizontal": (3, 4, 7, 9), "vertical": (4, 6, 7, 9)}
_AXES = {"horizontal": 2, "vertical": 1}  # of grey, [n, 28, 28]


class Colouring(NamedTuple):
    """Label noise of a data set, and the shares of easy digits."""

    easy_noise: float
    hard_noise: float
    easy_shares: tuple[float, ...] | None = None  # of all easy digits; None: at random

    @property
    def label_noise(self) -> np.ndarray:  # [10]
        """ε of each digit."""
        return np.where(is_easy(np.arange(10)), self.easy_noise, self.hard_noise)


COLOURED_MNIST = {
    "cmnist": Colouring(0.25, 0.25),
    "hcmnist": Colouring(0.05, 0.25),
    "hcmnist-cs": Colouring(0.05, 0.25, (0.65, 0.05, 0.30)),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ColouredDigits:
    """One environment of ColoredMNIST.

    Attributes
    ----------
    name : str
        Name of the environment.
    grey : ndarray of shape (n, 28, 28)
        Grey images, uint8.
    digits : ndarray of shape (n,)
        Digits, 0 to 9.
    y : ndarray of shape (n,)
        Labels, 0 or 1.
    colour : ndarray of shape (n,)
        Number of the coloured channel, 0 or 1.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist
    >>> digits = Mnist(np.ones((60, 28, 28), np.uint8), (np.arange(60) % 10).astype(np.uint8))
    >>> environment = coloured_mnist("cmnist", mnist=digits)[0]
    >>> environment.name, environment.images.shape
    ('+90%', (20, 2, 28, 28))
    """

    name: str
    grey: np.ndarray  # [n, 28, 28], uint8
    digits: np.ndarray  # [n], 0–9
    y: np.ndarray  # [n], 0 or 1
    colour: np.ndarray  # [n], 0 or 1: which channel

    def __len__(self) -> int:
        return len(self.y)

    @property
    def images(self) -> np.ndarray:  # [n, 2, 28, 28], uint8
        """Images with two channels: the grey image in its colour's channel, zeros in the other."""
        images = np.zeros((len(self), 2, *self.grey.shape[1:]), np.uint8)
        images[np.arange(len(self)), self.colour] = self.grey
        return images

    def take(self, rows: np.ndarray) -> "ColouredDigits":
        """Return some of the rows.

        Parameters
        ----------
        rows : ndarray
            Numbers or mask of the rows.

        Returns
        -------
        environment : ColouredDigits
            The rows.
        """
        chosen = {key: getattr(self, key)[rows] for key in ("grey", "digits", "y", "colour")}
        return replace(self, **chosen)


def coloured_mnist(
    name: str, seed: int = 0, mnist: Mnist | None = None, rows: int | None = None
) -> list[ColouredDigits]:
    """Make the three environments of a ColoredMNIST data set, each in random order.

    Parameters
    ----------
    name : {"cmnist", "hcmnist", "hcmnist-cs"}
        Key of `COLOURED_MNIST`.
    seed : int, default=0
        Seed of the order, the flips and the colours.
    mnist : Mnist or None, default=None
        Digits to colour. None: `load_mnist()`.
    rows : int or None, default=None
        Number of digits of all environments together: the first after shuffling. None: all.

    Returns
    -------
    environments : list of ColouredDigits
        Environments "+90%", "+80%" and "-90%".

    Raises
    ------
    InputError
        If the name is unknown or `rows` is out of range.

    References
    ----------
    M. Arjovsky, L. Bottou, I. Gulrajani and D. Lopez-Paz, "Invariant Risk Minimization",
    arXiv:1907.02893, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.datasets import Mnist
    >>> from wri.paper.simulations import coloured_mnist
    >>> digits = Mnist(np.ones((60, 28, 28), np.uint8), (np.arange(60) % 10).astype(np.uint8))
    >>> [(each.name, len(each)) for each in coloured_mnist("hcmnist", mnist=digits)]
    [('+90%', 20), ('+80%', 20), ('-90%', 20)]
    """
    check_option("name", name, tuple(COLOURED_MNIST))
    spec = COLOURED_MNIST[name]
    mnist = load_mnist() if mnist is None else mnist
    count = len(mnist.digits) if rows is None else rows
    if not len(COLOUR_FLIPS) <= count <= len(mnist.digits):
        raise InputError(
            f"rows must lie in {len(COLOUR_FLIPS)} (one per environment) to {len(mnist.digits)} "
            f"(all digits), not {count}"
        )
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(mnist.digits))[:count]
    digits = mnist.digits[chosen]
    homes = np.arange(count) % len(COLOUR_FLIPS)
    if spec.easy_shares is not None:
        homes = _shifted(is_easy(digits), spec.easy_shares, np.bincount(homes))
    y = (digits < 5) ^ (random.random(count) < spec.label_noise[digits])
    flip = np.array([*COLOUR_FLIPS.values()])[homes]
    colour = y ^ (random.random(count) < flip)
    environments = []
    for e, environment in enumerate(COLOUR_FLIPS):
        own = random.permutation(np.flatnonzero(homes == e))
        grey = mnist.images[chosen[own]]
        labels = {"digits": digits[own], "y": y[own].astype(int), "colour": colour[own].astype(int)}
        environments.append(ColouredDigits(name=environment, grey=grey, **labels))
    return environments


def is_easy(digits: np.ndarray) -> np.ndarray:
    """Return which digits keep their label more often."""
    return np.isin(digits, EASY)


def _shifted(easy: np.ndarray, shares: Sequence[float], sizes: np.ndarray) -> np.ndarray:  # [n]
    """Return the environment of each row: shares of the easy rows, the others up to the sizes."""
    ends = np.rint(np.cumsum(shares) * easy.sum()).astype(int)
    easy_sizes = np.diff(ends, prepend=0)
    if (easy_sizes > sizes).any():
        raise InputError(
            f"{easy.sum()} of {len(easy)} digits are easy, so shares of {shares} do not fit into "
            f"environments of {sizes.max()}; use more rows, or fewer of {EASY}"
        )
    homes = np.empty(len(easy), int)
    numbers = np.arange(len(sizes))
    homes[easy] = np.repeat(numbers, easy_sizes)
    homes[~easy] = np.repeat(numbers, sizes - easy_sizes)
    return homes


def digit_shares(name: str, counts: Sequence[int] = DIGIT_COUNTS) -> np.ndarray:  # [E, 10]
    """Compute p_e(digit) from the counts of each digit in all environments together.

    Parameters
    ----------
    name : {"cmnist", "hcmnist", "hcmnist-cs"}
        Key of `COLOURED_MNIST`.
    counts : sequence of int, default=DIGIT_COUNTS
        Number of rows of each digit; by default that of MNIST.

    Returns
    -------
    shares : ndarray of shape (E, 10)
        Share of each digit in each environment.

    Examples
    --------
    >>> from wri.paper.simulations import digit_shares
    >>> digit_shares("hcmnist-cs", [1] * 10)[:, 0].round(3)
    array([0.195, 0.015, 0.09 ])
    """
    check_option("name", name, tuple(COLOURED_MNIST))
    spec, number = COLOURED_MNIST[name], len(COLOUR_FLIPS)
    overall = np.array(counts) / sum(counts)
    if spec.easy_shares is None:
        return np.tile(overall, (number, 1))
    easy = is_easy(np.arange(10))
    total = overall[easy].sum()
    easy_share = np.array(spec.easy_shares)[:, None] * number * total  # [E, 1], of an environment
    return np.where(easy, easy_share / total, (1 - easy_share) / (1 - total)) * overall


def ideal_accuracy(name: str, counts: Sequence[int] = DIGIT_COUNTS) -> np.ndarray:  # [E]
    """Compute the expected accuracy of predicting 1[digit < 5]: Σ_d p_e(d)·(1 − ε(d)).

    Parameters
    ----------
    name : {"cmnist", "hcmnist", "hcmnist-cs"}
        Key of `COLOURED_MNIST`.
    counts : sequence of int, default=DIGIT_COUNTS
        Number of rows of each digit; by default that of MNIST.

    Returns
    -------
    accuracy : ndarray of shape (E,)
        Accuracy in each environment.

    Examples
    --------
    >>> from wri.paper.simulations import ideal_accuracy
    >>> ideal_accuracy("cmnist").round(6)
    array([0.75, 0.75, 0.75])
    """
    shares = digit_shares(name, counts)
    accuracy: np.ndarray = shares @ (1 - COLOURED_MNIST[name].label_noise)
    return accuracy


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
