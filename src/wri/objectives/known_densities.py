"""Log densities at all training rows, for densities that are fitted once and see x.

They do not change while the predictor trains, so they are computed once per row and looked up.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from wri.objectives.base import Draws
from wri.objectives.pairs import ComparedPairs, arrange, rows_around

MOST = 2**24  # largest number of entries of a table


class KnownDensities(NamedTuple):
    """Log densities of all environments at the training rows of a stack's runs."""

    logs: Tensor  # [S, T, E], for each split
    split: Tensor  # [R], number of a run's split

    @classmethod
    def of(
        cls,
        splits: Sequence[Hashable],
        environments: int,
        draws: Draws,
        log_density: Callable[[int, Tensor], Tensor],
    ) -> Self | None:
        """Compute the table once per split; return None if it would be too large.

        Parameters
        ----------
        splits
            Of the runs; equal for those with the same training rows.
        environments
            E.
        draws
            Where rows come from.
        log_density
            Of a run's environments at rows `[1, N, D]`, `[1, E, N]`.
        """
        one_run = {split: run for run, split in enumerate(splits)}
        longest = max(map(draws.n_learned, one_run.values()))
        if len(one_run) * longest * environments > MOST:
            return None
        tables = []
        for run in one_run.values():
            pieces = [log_density(run, draws.batch(rows).x) for rows in draws.learned([run])]
            logs = torch.cat(pieces, -1)[0].T  # [T, E]
            tables.append(torch.cat([logs, logs.new_zeros(longest - len(logs), environments)]))
        numbers = {split: n for n, split in enumerate(one_run)}
        split = torch.tensor([numbers[each] for each in splits], device=tables[0].device)
        return cls(torch.stack(tables), split)

    def compare(self, places: Tensor, after: Tensor | None) -> ComparedPairs:
        """Look up rows by their places `[R, E, B]`, like `pairs.compare`."""
        if after is None:
            found = self.logs[self.split[:, None, None], places]  # [R, E rows, B, E]
            return arrange(found.movedim(-1, 1), None)
        around = rows_around(places, after)  # [R, E, 3, B]
        split = self.split.view(-1, 1, 1, 1)
        own = torch.arange(places.shape[1], device=places.device).view(1, -1, 1, 1)
        return arrange(self.logs[split, around, own], after)
