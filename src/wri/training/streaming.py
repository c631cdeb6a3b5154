"""Solution of a linear run on a table in chunks, which need not fit into memory.

    w ← argmin  F_s(w) + (∇F(w₀) − ∇F_s(w₀)) · w,     again from w₀ = w

F is the objective on all rows, F_s on a sample in memory, at whose minimum w₀ starts. One pass over
the chunks gives ∇F(w₀). Where the sample's gradient is corrected to that of all rows the curvature
of the sample suffices: the error shrinks by about √(D/n) of the sample in each pass, and the
result does not depend on the sample (Jordan, Lee and Yang, 2019). Where it does not shrink,
L-BFGS goes on with all rows.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial

import numpy as np

from wri.errors import InputError
from wri.stacked.linear import GRADIENT, ROUNDING, ChunkedTable, Slope, Solution, SumChunks
from wri.training.runs import Record, Run, Units
from wri.training.solver import LinearRun, RowsAsTable

ACCURACY = 1e-7
"""Largest component of the gradient of all rows, in the coordinates of L-BFGS."""


@dataclass(frozen=True, eq=False)
class SampleRun(Run):
    """Run on a sample of rows, in the units of all rows."""

    _: KW_ONLY
    units_of_all: Units

    @cached_property
    def units(self) -> Units:
        return self.units_of_all


def solve_in_chunks(run: SampleRun, open_chunks: Callable[[RowsAsTable], SumChunks]) -> Record:
    """Solve a run on all rows, of which its own are a sample; chunks become tables by its rules."""
    sample = LinearRun(run)
    if sample.form is None:
        raise InputError(
            f"{run.objective.name} with these options is no sum over rows, so tables in chunks "
            "cannot be solved; use its defaults, or erm"
        )
    weight = float(run.hyper.get("penalty_weight", 0.0))
    table = ChunkedTable(open_chunks(sample.as_table), sample.as_table.scale)
    found = _correct(sample, table, weight)
    return Record(
        steps=np.array([run.spec.last_step - 1]),
        measures={},
        diverged_at=None,
        network=run.network,
        parameters=sample.pack(found),
        state=sample.state,
        gradient=found.gradient,
    )


def _correct(sample: LinearRun, table: ChunkedTable, weight: float) -> Solution:
    """Correct the sample's minimum to that of all rows."""
    at, solver = sample.path({weight: GRADIENT})[weight], sample.solver
    combine, scale = sample.combine(weight), sample.scale(weight)
    enough = max(ACCURACY / scale, ROUNDING)
    last, before = at, np.inf
    while True:
        whole = table.differentiate(at.weight, at.offset, combine)
        value, gradient = solver.at(whole, at.weight)
        size = float(np.abs(gradient).max()) / scale
        if size <= enough:
            return replace(at, value=value, gradient=size)
        if not size < before / 2:
            full = partial(table.differentiate, combine=combine)
            return solver.solve(full, at if size < before else last, scale, ACCURACY)
        last, before = at, size
        own = sample.table.differentiate(at.weight, at.offset, combine)
        shift = Slope(0.0, whole.weight - own.weight, whole.offset - own.offset)

        def corrected(slopes: np.ndarray, offset: np.ndarray, shift: Slope = shift) -> Slope:
            found = sample.table.differentiate(slopes, offset, combine)
            added = float((shift.weight * slopes).sum() + shift.offset @ offset)
            return Slope(
                found.value + added, found.weight + shift.weight, found.offset + shift.offset
            )

        at = solver.solve(corrected, at, scale)
