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
    """Make the random generator of one run and one purpose."""
    return np.random.default_rng([seed, crc32(purpose.encode())])


class Streams:
    """One random generator per run of a stack."""

    def __init__(self, seeds: Sequence[int], purpose: str, dtype: torch.dtype, device: str) -> None:
        self.generators = [generator(seed, purpose) for seed in seeds]
        self._dtype = dtype
        self._device = device

    def take(self, runs: Sequence[int]) -> Self:
        """Return the same generators of some runs only."""
        taken = copy(self)
        taken.generators = [self.generators[run] for run in runs]
        return taken

    def permutations(self, n: int) -> Tensor:  # [R, n]
        """Draw one permutation per run."""
        rows = np.stack([g.permutation(n) for g in self.generators])
        return torch.from_numpy(rows).to(self._device)

    def beta(self, alpha: Tensor, n: int) -> Tensor:  # [R] -> [R, n]
        """Draw from Beta(α, α) with each run's own α."""
        rows = [g.beta(a, a, n) for g, a in zip(self.generators, alpha.tolist(), strict=True)]
        return torch.from_numpy(np.stack(rows)).to(self._device, self._dtype)
