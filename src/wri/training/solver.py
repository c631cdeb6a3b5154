"""Solution of linear runs: the minimum of a smooth objective on all rows, along a path of λ.

    λ = 0, then the points of `PATH` below λ, then λ itself, each from the solution before

Risks of linear predictors are convex, penalties need not be. Followed from λ = 0 upwards the
minimum is one well-defined answer, whatever other λ are asked for, and several λ cost little more
than one. There is no seed, no step size and no number of steps; the order of rows and environments
does not matter beyond rounding. The ridge penalty takes the place of weight decay, without the
offset.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf

import numpy as np
import torch

from wri.errors import InputError
from wri.objectives.base import Model, RowForm, StepContext, WeighRows
from wri.progress import Progress
from wri.stacked.linear import (
    GRADIENT,
    ROUNDING,
    ChunkedTable,
    Combine,
    Differentiate,
    LinearSolver,
    MemoryTable,
    Slope,
    Solution,
    SumChunks,
    Sums,
)
from wri.training.evaluation import Evaluator, by_split
from wri.training.runs import Record, Run, Units, cached_for
from wri.training.sampler import Sampler, StackedRows, start_objective

PATH = (10.0, 100.0, 1e3, 1e4, 1e5)
"""λ through which every path goes."""
ON_THE_WAY = 1e-3
"""Largest component of the gradient at points of the path that are not asked for."""


def solve_stack(
    runs: Sequence[Run], measures: Sequence[str], device: str, progress: Progress | None
) -> list[Record]:
    """Solve runs that may share a stack; those with the same rows share a path."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for number, run in enumerate(runs):
        groups[run.split, _without_penalty_weight(run)].append(number)
    found: dict[int, tuple[np.ndarray, Solution, object]] = {}
    steps = runs[0].spec.last_step
    for numbers in groups.values():
        problem = LinearRun(runs[numbers[0]])
        asked = {number: float(runs[number].hyper.get("penalty_weight", 0.0)) for number in numbers}
        exact: dict[float, float] = defaultdict(lambda: inf)
        for number, weight in asked.items():
            exact[weight] = min(exact[weight], runs[number].tolerance)
        solutions = problem.path(exact)
        for number, weight in asked.items():
            found[number] = problem.pack(solutions[weight]), solutions[weight], problem.state
        if progress is not None:
            progress(round(steps * len(found) / len(runs)), steps)
    flat = np.stack([found[number][0] for number in range(len(runs))])
    values = _measure(runs, flat, measures, device)
    return [
        Record(
            steps=np.array([steps - 1]),
            measures=by_split(values[None, :, r], measures, tuple(run.evaluate))
            if run.evaluate
            else {},
            diverged_at=None if np.isfinite(flat[r]).all() else 0,
            network=run.network,
            parameters=flat[r],
            state=found[r][2],
            gradient=found[r][1].gradient,
        )
        for r, run in enumerate(runs)
    ]


def _measure(
    runs: Sequence[Run], flat: np.ndarray, measures: Sequence[str], device: str
) -> np.ndarray:  # [M, R, S]
    if not runs[0].evaluate:
        return np.empty((0, len(runs), 0))
    first = runs[0]
    parameters = torch.as_tensor(flat, device=device)
    return Evaluator(runs, measures, device)(Model(first.network, parameters, first.bank.loss))


def _without_penalty_weight(run: Run) -> Hashable:
    others = {name: value for name, value in run.hyper.items() if name != "penalty_weight"}
    return run.spec.objective, tuple(sorted(others.items()))


@dataclass(frozen=True, kw_only=True)
class RowsAsTable:
    """Rules by which rows, sorted by environment, become a table of the solver."""

    loss: str
    outputs: int
    scale: bool
    weigh: WeighRows | None

    def __call__(
        self, x: np.ndarray, y: np.ndarray, counts: Sequence[int], shares: np.ndarray
    ) -> MemoryTable:  # [n, D], [n], [E], [n]
        ends, weights = np.cumsum([0, *counts]), shares[:, None]
        if self.weigh is not None:
            further = self.weigh(x, np.repeat(np.arange(len(counts)), counts))
            weights = np.hstack([weights, weights * further])
        return MemoryTable(
            x=x,
            y=y.astype(float) if self.loss == "logistic" else y,
            parts=[slice(a, b) for a, b in pairwise(ends)],
            weights=weights,
            loss=self.loss,
            outputs=self.outputs,
            scale=self.scale,
        )


class LinearRun:
    """The linear problem of a run, for any λ."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.objective = run.objective
        self.count = len(run.train)
        rows = run.training_rows()
        rows = rows._replace(all_x=rows.all_x.astype(np.float64, copy=False))
        self.form = self.objective.row_form(rows, lambda key, make: cached_for(run, key, make))
        self.state = self._automatic.state if self.form is None else self.form.state
        # two classes: one log-odds, with half the penalty of two outputs of opposite sign
        self.halved = self.form is not None and run.bank.n_classes == run.bank.outputs == 2
        form = self.form or RowForm()
        self.as_table = RowsAsTable(
            loss="logistic" if self.halved else run.bank.loss.name,
            outputs=1 if self.halved else run.bank.outputs,
            scale=form.scale,
            weigh=form.weigh,
        )
        shares = np.concatenate([own / own.sum() for own in rows.weight])
        self.table = self.as_table(rows.all_x, rows.all_y, rows.counts, shares)

    def path(self, tolerances: Mapping[float, float]) -> dict[float, Solution]:
        """Solve for each λ to its largest gradient, from 0 upwards."""
        found: dict[float, Solution] = {}
        at: Solution | None = None
        for weight in self._points(tolerances):
            exact = tolerances.get(weight, ON_THE_WAY)
            at = self.solver.solve(self._differentiate(weight), at, self.scale(weight), exact)
            found[weight] = at
        return {weight: found[weight] for weight in tolerances}

    @cached_property
    def solver(self) -> LinearSolver:
        """The solver in the coordinates of this table."""
        ridge = float(self.run.hyper["weight_decay"]) / (2 if self.halved else 1)
        return LinearSolver(self.table, ridge)

    def scale(self, weight: float) -> float:
        """Return the divisor of the objective for L-BFGS."""
        return 1.0 if self.objective.divided else max(1.0, weight)

    def _points(self, weights: Collection[float]) -> list[float]:
        """Return λ through which the path goes."""
        largest = max(weights)
        return sorted({0.0, *weights, *(point for point in PATH if point < largest)})

    def _differentiate(self, weight: float) -> Differentiate:
        if self.form is None:
            return self._automatic.at(weight)
        return partial(self.table.differentiate, combine=self.combine(weight))

    def combine(self, weight: float) -> Combine:
        """Return mean_e R_e + λ · penalty with its slopes."""
        divisor, form = max(1.0, weight) if self.objective.divided else 1.0, self.form or RowForm()

        def combine(sums: Sums) -> tuple[float, Sums]:
            value, slopes = float(sums.losses[:, 0].mean()), np.zeros_like(sums.losses)
            slopes[:, 0] = 1 / self.count
            scale = None
            if form.penalty is not None and weight:
                penalty, at = form.penalty(sums)
                value += weight * penalty
                slopes[:, : at.losses.shape[1]] += weight * at.losses
                scale = None if at.scale is None else weight / divisor * at.scale
            return value / divisor, Sums(slopes / divisor, scale)

        return combine

    @cached_property
    def _automatic(self) -> "AutomaticLoss":
        return AutomaticLoss(self.run)

    def pack(self, found: Solution) -> np.ndarray:  # [P]
        """Return a solution as parameters of the network."""
        weight, offset = found.weight.T, found.offset  # [C, D], [C]
        if self.halved:
            weight, offset = np.vstack([-weight, weight]) / 2, np.append(-offset, offset) / 2
        return np.concatenate([weight.ravel(), offset])


class AutomaticLoss:
    """Loss of a smooth objective on all rows, differentiated automatically."""

    def __init__(self, run: Run) -> None:
        self._run = run
        features = StackedRows([run], "cpu")
        rows = max(map(len, run.train))
        sampler = Sampler([run], features, [rows], "batches", torch.float64)
        drawn = next(iter(sampler.stream(1)))
        self._batch = features.drawn(drawn)
        self._state, _, self._random = start_objective([run], features, torch.float64)
        self.state = run.objective.state_of(self._state, 0)

    def at(self, weight: float) -> Differentiate:
        """Return the loss with its gradient for one λ, after every schedule."""
        run = self._run
        hyper = {name: torch.tensor([value]).double() for name, value in run.hyper.items()}
        hyper["penalty_weight"] = torch.tensor([weight]).double()
        late = sum(run.hyper.get(name, 0) for name in ("anneal_steps", "ramp_steps"))
        context = StepContext(int(late) if late < inf else 0, hyper, self._random)

        def differentiate(slopes: np.ndarray, offset: np.ndarray) -> Slope:
            packed = np.concatenate([slopes.T.ravel(), offset])[None]
            flat = torch.as_tensor(packed).requires_grad_()
            model = Model(run.network, flat, run.bank.loss)
            losses, _ = run.objective.loss(model, self._batch, self._state, context)
            (gradient,) = torch.autograd.grad(losses.sum(), flat)
            found = gradient[0].numpy()
            split = slopes.size
            return Slope(
                losses[0].item(), found[:split].reshape(slopes.shape[::-1]).T, found[split:]
            )

        return differentiate


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
    """Solve a run on all rows, of which its own are a sample; chunks become tables by its rules.

        w ← argmin  F_s(w) + (∇F(w₀) − ∇F_s(w₀)) · w,     again from w₀ = w

    F is the objective on all rows, which need not fit into memory, F_s on a sample in memory, at
    whose minimum w₀ starts. One pass over the chunks gives ∇F(w₀). Where the sample's gradient is
    corrected to that of all rows the curvature of the sample suffices: the error shrinks by about
    √(D/n) of the sample in each pass, and the result does not depend on the sample (Jordan, Lee and
    Yang, 2019). Where it does not shrink, L-BFGS goes on with all rows.
    """
    sample = LinearRun(run)
    if sample.form is None:
        raise InputError(
            f"{run.objective.name} with these options is not a sum over rows, so it cannot be "
            "solved in chunks; use its defaults, or erm"
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
