"""Solved linear runs are minima of the objectives that the loop trains."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge

from wri.errors import InputError
from wri.stacked import CROSS_ENTROPY, SQUARED
from wri.stacked.linear import GRADIENT
from wri.training import Bank, ModelSpec, Run, train
from wri.training.solver import PATH, AutomaticLoss, LinearRun

SMOOTH = ("erm", "irm", "vrex", "wri")


def sites(classes, count=4, rows=80, weights=False, seed=0):
    """A bank with a cause, a marker whose strength changes, and noise; rows of each site."""
    random = np.random.default_rng(seed)
    parts = []
    for e in range(count):
        cause = random.normal(0.7 * e - 1, 1, rows + 10 * e)
        y = cause + random.normal(size=len(cause))
        if classes:
            y = np.searchsorted(np.linspace(-1, 1, classes + 1)[1:-1], y)
        marker = random.normal((0.2 + 0.5 * e) * y, 1)
        parts.append((np.column_stack([cause, marker, random.normal(size=len(y))]), y))
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    ends = np.cumsum([0, *(len(part[1]) for part in parts)])
    bank = Bank(
        x,
        y,
        loss=CROSS_ENTROPY if classes else SQUARED,
        weights=random.integers(1, 4, len(y)).astype(float) if weights else None,
    )
    return bank, [np.arange(a, b) for a, b in pairwise(ends)]


def make_run(objective, classes, hyper=None, **options):
    bank, rows = sites(classes, **options)
    return Run(ModelSpec.of(objective, preset="table", hyper=hyper), bank, rows)


def solve(run):
    (record,) = train([run], side_by_side=False)
    return record


@pytest.mark.parametrize("classes", [2, 3, None])
@pytest.mark.parametrize("objective", SMOOTH)
def test_slopes_by_hand_equal_automatic_differentiation(objective, classes):
    run = make_run(objective, classes, weights=True)
    problem, random = LinearRun(run), np.random.default_rng(1)
    width, outputs = run.bank.features.shape[1], run.bank.outputs
    for weight in (0.0, 2.0):
        slopes, offset = random.normal(size=(width, outputs)), random.normal(size=outputs)
        known = AutomaticLoss(run).at(weight)(slopes, offset)
        by_hand = problem._differentiate(weight)
        if not problem.halved:
            mine = by_hand(slopes, offset)
            np.testing.assert_allclose(mine.weight, known.weight, atol=1e-10)
            np.testing.assert_allclose(mine.offset, known.offset, atol=1e-10)
        else:  # one log-odds is the difference of two outputs
            mine = by_hand(slopes[:, 1:] - slopes[:, :1], offset[1:] - offset[:1])
            np.testing.assert_allclose(mine.weight, known.weight[:, 1:], atol=1e-10)
            np.testing.assert_allclose(mine.weight, -known.weight[:, :1], atol=1e-10)
        np.testing.assert_allclose(mine.value, known.value, rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, None])
@pytest.mark.parametrize("objective", SMOOTH)
def test_an_independent_solver_finds_the_same_minimum(objective, classes):
    run = make_run(objective, classes)
    record, automatic = solve(run), AutomaticLoss(run)
    weight, decay = run.hyper.get("penalty_weight", 0.0), run.hyper["weight_decay"]
    shape = run.bank.features.shape[1], run.bank.outputs
    loss, size = automatic.at(weight), shape[0] * shape[1]

    def total(flat):  # offsets are not penalised
        found = loss(flat[:size].reshape(shape[::-1]).T, flat[size:])
        slope = np.concatenate([found.weight.T.ravel() + decay * flat[:size], found.offset])
        return found.value + decay / 2 * np.square(flat[:size]).sum(), slope

    here = minimize(total, record.parameters, jac=True, method="BFGS", options={"gtol": 1e-10})
    outputs = [
        run.network.outputs(
            torch.as_tensor(flat)[None], torch.as_tensor(run.view()[0], dtype=torch.float64)[None]
        )[0]
        for flat in (record.parameters, here.x)
    ]
    if classes:
        outputs = [each.softmax(-1) for each in outputs]
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-6)
    assert record.gradient <= GRADIENT


def test_erm_is_logistic_regression():
    bank, rows = sites(2, rows=100, count=1)
    record = solve(Run(ModelSpec.of("erm", preset="table", standardise=False), bank, rows))
    decay = 3 / len(bank.targets)
    model = LogisticRegression(C=2 / (decay * len(bank.targets)), tol=1e-12, max_iter=10_000)
    model.fit(bank.features, bank.targets)
    weight, offset = record.parameters[:6].reshape(2, 3), record.parameters[6:]
    np.testing.assert_allclose(weight[1] - weight[0], model.coef_[0], atol=1e-6)
    np.testing.assert_allclose(offset[1] - offset[0], model.intercept_[0], atol=1e-6)


def test_erm_of_numbers_is_ridge_regression():
    bank, rows = sites(None, rows=100, count=1)
    record = solve(Run(ModelSpec.of("erm", preset="table", standardise=False), bank, rows))
    model = Ridge(alpha=3 / 2).fit(bank.features, bank.targets)  # mean square + decay/2
    np.testing.assert_allclose(record.parameters[:3], model.coef_, atol=1e-6)
    np.testing.assert_allclose(record.parameters[3], model.intercept_, atol=1e-6)


@pytest.mark.parametrize("objective", ["irm", "vrex", "wri"])
def test_a_solution_does_not_depend_on_the_other_penalty_weights_asked_for(objective):
    bank, rows = sites(2)
    runs = [
        Run(ModelSpec.of(objective, preset="table", hyper={"penalty_weight": weight}), bank, rows)
        for weight in (0.0, 0.7, PATH[1], 20.0)
    ]
    together = train(runs, side_by_side=False)
    for run, record in zip(runs, together, strict=True):
        np.testing.assert_allclose(record.parameters, solve(run).parameters, atol=1e-6)
    erm = solve(Run(ModelSpec.of("erm", preset="table"), bank, rows))
    np.testing.assert_allclose(together[0].parameters, erm.parameters, atol=1e-7)


def test_the_seed_does_not_matter():
    bank, rows = sites(2)
    spec = ModelSpec.of("wri", preset="table")
    first, second = (solve(Run(spec, bank, rows, seed=seed)) for seed in (0, 7))
    np.testing.assert_array_equal(first.parameters, second.parameters)


@pytest.mark.parametrize("objective", SMOOTH)
def test_weight_two_counts_a_row_twice(objective):
    bank, rows = sites(2, weights=True)
    times = bank.weights.astype(int)
    repeated = Bank(bank.features.repeat(times, 0), bank.targets.repeat(times))
    starts = np.cumsum([0, *times])
    again = [np.concatenate([np.arange(starts[r], starts[r + 1]) for r in own]) for own in rows]
    spec = ModelSpec.of(objective, preset="table")
    weighted, doubled = solve(Run(spec, bank, rows)), solve(Run(spec, repeated, again))
    np.testing.assert_allclose(weighted.parameters, doubled.parameters, atol=1e-6)


@pytest.mark.slow
def test_the_loop_approaches_the_solution():
    bank, rows = sites(2, rows=150)
    solved = solve(Run(ModelSpec.of("vrex", preset="table"), bank, rows))
    spec = ModelSpec.of("vrex", preset="table", solver="adam", steps=1500)
    trained = solve(Run(spec, bank, rows))
    assert trained.gradient is None
    difference = [each[3:6] - each[:3] for each in (solved.parameters, trained.parameters)]
    np.testing.assert_allclose(*difference, atol=0.02)


def test_what_cannot_be_solved_is_refused_or_trained():
    with pytest.raises(InputError, match="solver='adam'"):
        ModelSpec.of("groupdro", preset="table", solver="lbfgs")
    with pytest.raises(InputError, match=r"hidden=\(\)"):
        ModelSpec.of("erm", preset="table", hidden=(4,), solver="lbfgs")
    assert not ModelSpec.of("groupdro", preset="table").is_solved
    assert not ModelSpec.of("wri", preset="table", hidden=(4,)).is_solved
    assert not ModelSpec.of("wri", preset="domainbed", hidden=()).is_solved
    assert ModelSpec.of("wri", preset="table").is_solved


def test_perfectly_separated_and_constant_columns_are_solved():
    x = np.column_stack([np.linspace(-1, 1, 60), np.ones(60)])
    bank = Bank(x, (x[:, 0] > 0).astype(int))
    rows = [np.arange(0, 60, 2), np.arange(1, 60, 2)]
    for objective in SMOOTH:
        record = solve(Run(ModelSpec.of(objective, preset="table"), bank, rows))
        assert np.isfinite(record.parameters).all()
        assert record.diverged_at is None
