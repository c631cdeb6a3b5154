"""Random streams per run.

The numbers of a run come from its own seed and a purpose, never from its place in a stack, so a run
in a stack equals the run alone. NumPy draws them on every device.
"""

from collections.abc import Sequence
from copy import copy
from typing import Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Make the random generator of one run and one purpose.

    Parameters
    ----------
    seed : int
        Seed of the run.
    purpose : str
        Purpose, for instance "weights" or "batches".

    Returns
    -------
    generator : numpy.random.Generator
        The generator.

    Examples
    --------
    >>> from wri.stacked import generator
    >>> int(generator(0, "weights").integers(100)) == int(generator(0, "weights").integers(100))
    True
    """
    return np.random.default_rng([seed, crc32(purpose.encode())])


class Streams:
    """One random generator per run of a stack.

    Parameters
    ----------
    seeds : sequence of int
        Seed of each run.
    purpose : str
        Purpose of the draws.
    dtype : torch.dtype
        Type of drawn numbers.
    device : str
        Device of drawn tensors.

    Attributes
    ----------
    generators : list of numpy.random.Generator
        Generator of each run.

    Examples
    --------
    >>> import torch
    >>> from wri.stacked import Streams
    >>> Streams([0, 1], "circle", torch.float32, "cpu").permutations(3).shape
    torch.Size([2, 3])
    """

    def __init__(self, seeds: Sequence[int], purpose: str, dtype: torch.dtype, device: str) -> None:
        self.generators = [generator(seed, purpose) for seed in seeds]
        self._dtype = dtype
        self._device = device

    def take(self, runs: Sequence[int]) -> Self:
        """Return the same generators of some runs only.

        Parameters
        ----------
        runs : sequence of int
            Numbers of the runs.

        Returns
        -------
        streams : Streams
            Streams that share the generators.
        """
        taken = copy(self)
        taken.generators = [self.generators[run] for run in runs]
        return taken

    def permutations(self, n: int) -> Tensor:  # [R, n]
        """Draw one permutation per run.

        Parameters
        ----------
        n : int
            Number of elements.

        Returns
        -------
        permutations : Tensor of shape (R, n)
            Permutations of 0 to n − 1.
        """
        rows = np.stack([g.permutation(n) for g in self.generators])
        return torch.from_numpy(rows).to(self._device)

    def beta(self, alpha: Tensor, n: int) -> Tensor:  # [R] -> [R, n]
        """Draw from Beta(α, α) with each run's own α.

        Parameters
        ----------
        alpha : Tensor of shape (R,)
            α of each run.
        n : int
            Draws per run.

        Returns
        -------
        values : Tensor of shape (R, n)
            Draws.
        """
        rows = [g.beta(a, a, n) for g, a in zip(self.generators, alpha.tolist(), strict=True)]
        return torch.from_numpy(np.stack(rows)).to(self._device, self._dtype)
