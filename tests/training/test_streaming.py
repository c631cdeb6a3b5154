"""Sums over chunks are the sums over the table, and so are the minima."""

import numpy as np
import pytest
from test_solver import SMOOTH, make_run, sites

from wri.errors import InputError
from wri.stacked.linear import GRADIENT, ChunkedTable
from wri.training import ModelSpec, Run
from wri.training.solver import ACCURACY, LinearRun, SampleRun, solve_in_chunks


def in_chunks(run, size=70):
    """A function that sums over chunks of a run's rows, in another order than by site."""
    rows = run.training_rows()
    x, y = np.concatenate(rows.x), np.concatenate(rows.y)
    share = np.concatenate([own / own.sum() for own in rows.weight])
    site = np.repeat(np.arange(len(rows.x)), [len(own) for own in rows.x])
    mixed = np.random.default_rng(5).permutation(len(y))

    def open_chunks(as_table):
        def add(work):
            parts = []
            for start in range(0, len(y), size):
                own = mixed[start : start + size]
                own = own[np.argsort(site[own], kind="stable")]
                counts = np.bincount(site[own], minlength=len(rows.x)).tolist()
                parts.append(work(as_table(x[own], y[own], counts, share[own])))
            return tuple(np.sum(same, axis=0) for same in zip(*parts, strict=True))

        return add

    return open_chunks


@pytest.mark.parametrize("classes", [2, 3, None])
@pytest.mark.parametrize("objective", SMOOTH)
def test_sums_of_chunks_are_those_of_the_table(objective, classes):
    run = make_run(objective, classes, weights=True)
    problem, random = LinearRun(run), np.random.default_rng(1)
    shape = problem.table.x.shape[1], problem.table.outputs
    table = ChunkedTable(in_chunks(run)(problem.as_table), problem.as_table.scale)
    for weight in (0.0, 2.0):
        at = random.normal(size=shape), random.normal(size=shape[1])
        here = problem.table.differentiate(*at, problem.combine(weight))
        there = table.differentiate(*at, problem.combine(weight))
        np.testing.assert_allclose(there.value, here.value, rtol=1e-12)
        np.testing.assert_allclose(there.weight, here.weight, atol=1e-10)
        np.testing.assert_allclose(there.offset, here.offset, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3, None])
@pytest.mark.parametrize("objective", SMOOTH)
@pytest.mark.slow
def test_the_minimum_on_chunks_is_that_of_all_rows_whatever_the_sample(objective, classes):
    bank, rows = sites(classes, rows=300)
    whole = Run(ModelSpec.of(objective, preset="table"), bank, rows)
    some = [own[::3] for own in rows]
    sample = SampleRun(whole.spec, bank, some, units_of_all=whole.units)
    record = solve_in_chunks(sample, in_chunks(whole))
    assert record.gradient <= ACCURACY
    problem, every = LinearRun(sample), whole.training_rows()  # weights are those of the sample
    shares = np.concatenate([own / own.sum() for own in every.weight])
    counts, weight = [len(own) for own in every.y], whole.hyper.get("penalty_weight", 0.0)
    (start,) = problem.path({weight: GRADIENT}).values()
    problem.table = problem.as_table(
        np.concatenate(every.x), np.concatenate(every.y), counts, shares
    )
    (known,) = problem.path({weight: GRADIENT}).values()
    np.testing.assert_allclose(record.parameters, problem.pack(known), atol=1e-6)
    assert np.abs(start.weight - known.weight).max() > 1e-3  # the sample's minimum is elsewhere


def test_options_that_are_no_sums_over_rows_are_refused():
    bank, rows = sites(2)
    spec = ModelSpec.of("wri", preset="table", options={"scaling": "relative"})
    with pytest.raises(InputError, match="is not a sum over rows"):
        solve_in_chunks(Run(spec, bank, rows), None)
