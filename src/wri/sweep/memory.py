"""Memory of a stack, estimated, and the largest size of stacks.

    rows as tensors, to train on and to measure
    + the larger of the doubles while they are standardised, and a step's batches
    + parameters + memory for fitting the densities

Freed memory stays in the process while stacks train, so parts that follow one another add up unless
they have the same size.
"""

from collections.abc import Sequence
from math import sqrt

import torch

from wri.training import Run
from wri.training.runs import LARGE_BANK
from wri.training.scheduling import MOST_ROWS, overhead_of

COPIES = 12  # numbers per unit and row of a batch that a step keeps
INPUTS = 3  # numbers per input and row of a batch
ADAM = 4  # numbers per parameter: itself, its gradient and two moments
BANKS = 2  # copies of the rows: to train on and to measure
DOUBLES = 2  # copies of the rows while they are standardised
DOUBLE, SINGLE = 8, 4  # bytes
FITTED = 3  # copies of a batch while a density is fitted, in single precision


def stack_memory(runs: Sequence[Run]) -> float:
    """Estimate the peak memory of a stack in bytes."""
    first = runs[0]
    rows = max(run.batch_rows for run in runs) * len(first.train) * len(runs)
    sources = 1 if len(runs) == 1 else len({run.source for run in runs})
    return (
        max(rows * _bytes_per_row(first), _bytes_of_doubles(first))
        + len(runs) * _bytes_per_run(first)
        + sources * _bytes_of_bank(first)
        + _bytes_of_fit(first)
    )


def most_rows(runs: Sequence[Run], memory: float) -> int:
    """Return the rows of a stack's batch such that one stack per thread fits into memory."""
    copied = any(run.spec.standardise and not _is_large(run) for run in runs)
    bank = max(map(_bytes_of_bank, runs))
    each = memory / torch.get_num_threads() - (0 if copied else bank)
    each -= max(map(_bytes_of_fit, runs))
    extra = sqrt(overhead_of(runs))  # `plan_stacks` allows this factor more
    fewest = min(run.batch_rows * len(run.train) for run in runs)  # rows per run
    own = max(map(_bytes_per_run, runs)) + (bank if copied else 0)
    bytes_per_row = max(map(_bytes_per_row, runs)) + own / fewest
    return max(1, min(MOST_ROWS, int(each / (extra * bytes_per_row))))


def count_side_by_side(peaks: Sequence[float], memory: float) -> int:
    """Return how many stacks may train at the same time: one per thread, if they fit."""
    largest = sorted(peaks, reverse=True)[: torch.get_num_threads()]
    fitting = [n for n in range(1, len(largest) + 1) if sum(largest[:n]) <= memory]
    return max(fitting, default=1)


def _is_large(run: Run) -> bool:
    """Return whether all runs of a stack see the same rows in the same units."""
    return run.bank.features.size > LARGE_BANK


def _bytes(run: Run) -> float:
    return float(run.dtype.itemsize)


def _bytes_per_row(run: Run) -> float:
    inputs, *units = run.network.widths
    return _bytes(run) * (INPUTS * inputs + COPIES * sum(units))


def _bytes_per_run(run: Run) -> float:
    return _bytes(run) * ADAM * run.network.packing.size


def _bytes_of_bank(run: Run) -> float:
    return BANKS * _bytes(run) * run.bank.features.size


def _bytes_of_doubles(run: Run) -> float:
    return DOUBLES * DOUBLE * run.bank.features.size if run.spec.standardise else 0.0


def _bytes_of_fit(run: Run) -> float:
    """Return the memory of fitting a density to whole environments: rows and batches."""
    density = run.objective.density
    if density is None or density.learning != "refit":
        return 0.0
    width = run.network.view_width(run.objective.density_on)
    drawn = density.batch_size * len(run.train)
    kept = SINGLE * len(run.learned) * len(run.train)  # log densities at all rows
    return kept + width * (len(run.learned) * (DOUBLE + SINGLE) + FITTED * SINGLE * drawn)
