"""How much memory a stack takes, roughly, and how large stacks may be."""

from collections.abc import Sequence
from math import sqrt

import torch

from wri.training import Run
from wri.training.runs import LARGE_BANK
from wri.training.stacks import MOST_ROWS

COPIES = 12  # numbers that a step keeps for each unit and row of a batch
ADAM = 4  # numbers for each parameter: itself, its gradient and two moments
BANKS = 2  # copies of the rows: to train on and to measure


def stack_memory(runs: Sequence[Run]) -> float:
    """Bytes that a stack takes at most, roughly: a step's batches, parameters, its rows."""
    rows = max(run.batch_rows for run in runs) * len(runs[0].train) * len(runs)
    sources = len({run.source for run in runs})
    return (
        rows * _bytes_per_row(runs[0])
        + len(runs) * _bytes_per_run(runs[0])
        + sources * _bytes_of_bank(runs[0])
    )


def most_rows(runs: Sequence[Run], memory: float) -> int:
    """Rows of a stack's batch, so that as many stacks as there are threads fit into memory."""
    copied = any(run.spec.standardise and not _is_large(run) for run in runs)
    bank = max(map(_bytes_of_bank, runs))
    each = memory / torch.get_num_threads() - (0 if copied else bank)
    extra = max(sqrt(run.objective.overhead) for run in runs)  # `plan_stacks` allows so much more
    fewest = min(run.batch_rows * len(run.train) for run in runs)  # rows that a run brings at least
    own = max(map(_bytes_per_run, runs)) + (bank if copied else 0)
    bytes_per_row = max(map(_bytes_per_row, runs)) + own / fewest
    return max(1, min(MOST_ROWS, int(each / (extra * bytes_per_row))))


def _is_large(run: Run) -> bool:
    """Whether all runs of a stack see the same rows in the same units."""
    return run.bank.features.size > LARGE_BANK


def _bytes(run: Run) -> float:
    return float(run.dtype.itemsize)


def _bytes_per_row(run: Run) -> float:
    return _bytes(run) * COPIES * sum(run.network.widths)


def _bytes_per_run(run: Run) -> float:
    return _bytes(run) * ADAM * run.network.packing.size


def _bytes_of_bank(run: Run) -> float:
    return BANKS * _bytes(run) * run.bank.features.size
