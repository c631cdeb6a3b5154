"""Division of runs into stacks.

Runs of one bucket differ in batch size, and a stack pads every batch to its largest. Sorted by
size, the bucket is cut where the cost is smallest:

    cost of a stack = overhead + runs · rows of its largest batch + rows of side steps

The overhead of a step does not grow with the rows, so small batches form large stacks and large
batches small stacks. More rows than fit the cache do not pay, unless the overhead is large. Runs
whose side steps (WRI's density steps) have different batch sizes are in different stacks, because
these are padded too. No stack has more than a given share of all work, so that processors finish at
the same time. The numbers were fitted to measured times.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import sqrt

import numpy as np

from wri.training.runs import Run

OVERHEAD = 2_500  # rows whose arithmetic takes as long as a step's fixed cost
SIDE_OVERHEAD = 0.2  # fixed cost of a side step, relative to that of a step
SIDE_ROW = 0.4  # cost of a row in a side step, relative to a row in a step
MOST_ROWS = 32_768  # rows of a batch over all runs of a stack
SHARES = 5  # no stack has more than one fifth of all work,
WORTH = 4  # unless its work is less than 4 times its overhead


def plan_stacks(runs: Sequence[Run], most_rows: int = MOST_ROWS) -> list[list[int]]:
    """Divide runs into stacks of small total cost.

    Parameters
    ----------
    runs : sequence of Run
        Runs to train.
    most_rows : int, default=32768
        Largest number of rows of a batch over all runs of a stack.

    Returns
    -------
    stacks : list of list of int
        Numbers of the runs in each stack; each run is in one.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.training import Bank, ModelSpec, Run, plan_stacks
    >>> bank = Bank(np.zeros((8, 1)), np.array([0, 1] * 4))
    >>> sites = [np.arange(4), np.arange(4, 8)]
    >>> runs = [Run(ModelSpec.of(name), bank, sites) for name in ("erm", "vrex", "erm")]
    >>> sorted(plan_stacks(runs))
    [[0, 2], [1]]
    """
    buckets: dict[tuple[Hashable, Hashable, int], list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        side_rows = run.objective.side_steps(run.hyper).rows
        # solved runs with the same rows share a path of λ
        path = run.split if run.spec.is_solved else None
        buckets[run.bucket, path, (side_rows - 1).bit_length()].append(number)
    share = sum(_rows(run) + _side_rows(run) for run in runs) / SHARES
    stacks = []
    for (_, path, _), numbers in buckets.items():
        if path is not None:
            stacks.append(numbers)
            continue
        numbers.sort(key=lambda n: (-runs[n].batch_rows, n))
        alike = [runs[n] for n in numbers]
        overhead = overhead_of(alike)
        cuts = cheapest_cuts(
            [_rows(run) for run in alike],
            overhead * OVERHEAD,
            sqrt(overhead) * most_rows,
            [_side_rows(run) for run in alike],
            max(share, WORTH * overhead * OVERHEAD),
        )
        stacks += [sorted(numbers[start:stop]) for start, stop in cuts]
    return sorted(stacks, key=lambda stack: -stack_cost([runs[n] for n in stack]))


def stack_cost(runs: Sequence[Run]) -> float:
    """Return the work of a stack's step; the largest stack starts first."""
    padded = len(runs) * max(map(_rows, runs))
    return overhead_of(runs) * OVERHEAD + padded + sum(map(_side_rows, runs))


def overhead_of(runs: Sequence[Run]) -> float:
    """Return the fixed cost of a stack's step, in steps of ERM."""
    sides = [run.objective.side_steps(run.hyper) for run in runs]
    due = np.zeros(max(side.every for side in sides))  # steps of the stack at each phase
    for side in sides:
        np.maximum.at(due, np.arange(0, len(due), side.every), side.steps)
    return max(run.objective.overhead for run in runs) + SIDE_OVERHEAD * float(due.mean())


def _rows(run: Run) -> int:
    """Return the rows of a step."""
    return run.batch_rows * len(run.train)


def _side_rows(run: Run) -> float:
    """Return the rows of side steps, in rows of a step."""
    side = run.objective.side_steps(run.hyper)
    return SIDE_ROW * side.rows * len(run.train) * side.steps / side.every


def cheapest_cuts(
    rows: Sequence[int],
    overhead: float,
    most_rows: float,
    side: Sequence[float] | None = None,
    most_work: float = float("inf"),
) -> list[tuple[int, int]]:
    """Cut a descending list into groups `[start, stop)` of smallest total cost.

    A group of several has at most `most_rows` rows, padded, and with its `side` rows at most
    `most_work`.
    """
    side = [0.0] * len(rows) if side is None else side
    cost = [0.0]  # of the first k runs
    start_of: list[int] = [0]  # where the last group of the first k runs starts
    for stop in range(1, len(rows) + 1):
        best, best_start = float("inf"), stop - 1
        beside = 0.0
        for start in range(stop - 1, -1, -1):
            padded = (stop - start) * rows[start]
            beside += side[start]
            too_much = padded > most_rows or padded + beside > most_work
            if too_much and start < stop - 1:
                break
            if cost[start] + overhead + padded < best:
                best, best_start = cost[start] + overhead + padded, start
        cost.append(best)
        start_of.append(best_start)
    groups, stop = [], len(rows)
    while stop:
        groups.append((start_of[stop], stop))
        stop = start_of[stop]
    return groups[::-1]
