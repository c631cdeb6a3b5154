"""Which runs share a stack.

Runs of one bucket differ in batch size, and a stack pads every batch to its largest. Sorted by
size, the bucket is cut where that costs least:

    cost of a stack = OVERHEAD + runs · rows of its largest batch

The overhead of a step's operations does not grow with the rows, so small batches gather in large
stacks and large ones in small stacks. More rows at once than fit the cache do not pay, unless the
objective's own overhead is large.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt

from wri.training.runs import Run

OVERHEAD = 2_500  # rows whose arithmetic takes as long as a step's fixed cost
MOST_ROWS = 32_768  # rows of a batch over all runs of a stack


def plan_stacks(runs: Sequence[Run], most_rows: int = MOST_ROWS) -> list[list[int]]:
    """Numbers of the runs in each stack; every run is in one."""
    buckets = defaultdict(list)
    for number, run in enumerate(runs):
        buckets[run.bucket].append(number)
    stacks = []
    for numbers in buckets.values():
        numbers.sort(key=lambda n: (-runs[n].batch_rows, n))
        rows = [runs[n].batch_rows * len(runs[n].train) for n in numbers]
        overhead = runs[numbers[0]].objective.overhead
        for start, stop in cheapest_cuts(rows, overhead * OVERHEAD, sqrt(overhead) * most_rows):
            stacks.append(sorted(numbers[start:stop]))
    return sorted(stacks, key=lambda stack: -stack_cost(runs, stack))


def stack_cost(runs: Sequence[Run], stack: Sequence[int]) -> float:
    """Work of a stack's step; the largest goes first, so that none is waited for at the end."""
    rows = max(runs[n].batch_rows * len(runs[n].train) for n in stack)
    return runs[stack[0]].objective.overhead * OVERHEAD + len(stack) * rows


def cheapest_cuts(rows: Sequence[int], overhead: float, most_rows: float) -> list[tuple[int, int]]:
    """Cut a descending list into groups `[start, stop)` of least total cost."""
    cost = [0.0]  # of the first k runs
    start_of: list[int] = [0]  # where the last group of the first k runs starts
    for stop in range(1, len(rows) + 1):
        best, best_start = float("inf"), stop - 1
        for start in range(stop - 1, -1, -1):
            padded = (stop - start) * rows[start]
            if padded > most_rows and start < stop - 1:
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
