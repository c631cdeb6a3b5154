"""Density steps: what the predictor gives, whether looked up or asked for."""

from typing import get_args

import numpy as np
import pytest
import torch

from helpers import make_bank, make_run, train_steps
from wri.densities import (
    Bounded,
    EnvironmentClassifier,
    Exact,
    FittedClassifier,
    Gaussian,
    LabelAwareClassifier,
    Mixture,
)
from wri.errors import InputError
from wri.objectives import WRI
from wri.objectives.base import Model
from wri.objectives.density_steps import StandingPredictor
from wri.objectives.weighted_risks import Scaling, Weighting
from wri.training.sampler import StackDraws, StackedRows

STEPS = [40, 9, 1]  # the first two runs draw more rows than they have


@pytest.fixture
def stack():
    """Runs with 60, 60 and 80 training rows, and their draws."""
    bank = make_bank()
    trains = [[np.arange(30), np.arange(40, 70)]] * 2 + [[np.arange(50), np.arange(70, 100)]]
    hyper = {"density_batch_size": 8}
    runs = [make_run(WRI(), bank, train, hyper, seed) for seed, train in enumerate(trains)]
    features = StackedRows(runs, "cpu")
    return runs, features, StackDraws(runs, features, torch.float64)


@pytest.mark.parametrize("seen", ["x", "phi", "outputs"])
def test_rows_are_seen_and_lost_on_as_the_predictor_says(stack, seen):
    runs, features, draws = stack
    network = runs[0].network
    flat = torch.as_tensor(network.initial([0, 1, 2])).to(features.x.dtype)
    model = Model(network, flat, runs[0].bank.loss)
    predictor = StandingPredictor(model, seen, [0, 1, 2], STEPS, draws)
    steps = 0
    for drawn in draws.density_rows([0, 1, 2], STEPS):
        n = len(drawn.rows)
        shown, losses = predictor.at(drawn)
        batch = features.batch(drawn.rows)
        alone = model._replace(flat=flat[:n])
        torch.testing.assert_close(losses, alone.losses(batch.x, batch.y))
        for step in range(losses.shape[1]):
            expected = alone.views(batch.x).view(seen)[:, step]
            torch.testing.assert_close(shown(step), expected)
        steps += losses.shape[1]
    assert steps == STEPS[0]


def test_places_count_a_runs_own_rows(stack):
    runs, features, draws = stack
    drawn = next(draws.density_rows([2, 0], [3, 3]))
    for k, run in enumerate([2, 0]):
        expected = runs[run].learned[drawn.indices[k]]
        np.testing.assert_array_equal(drawn.rows[k], expected + features.starts[run])
    (rows,) = draws.learned([2, 0])
    assert rows.shape == (2, 80)
    assert rows[1, 60:].unique().tolist() == [int(rows[1, 0])]  # padding


@pytest.mark.parametrize("environments", [3, 10], ids=["all pairs", "circle"])
def test_densities_that_are_looked_up_are_those_that_are_computed(environments, monkeypatch):
    """A classifier that is fitted once, in a stack of two splits of unequal length."""
    bank = make_bank(rows=400)
    short = [np.arange(30 * e, 30 * e + 12 + e) for e in range(environments)]
    long = [np.arange(30 * e, 30 * e + 28) for e in range(environments)]
    density = FittedClassifier(8, steps=20)
    objective = WRI(weighting="overlap", scaling="risk", density=density)
    hyper = {"batch_size": 8, "penalty_weight": 10.0, "anneal_steps": 0}
    runs = [make_run(objective, bank, train, hyper) for train in (short, long, short)]
    looked_up = train_steps(runs, 10, dtype=torch.float64)
    monkeypatch.setattr("wri.objectives.pairs.MOST", 0)
    computed = train_steps(runs, 10, dtype=torch.float64)
    for one, other in zip(looked_up, computed, strict=True):
        np.testing.assert_allclose(one.parameters, other.parameters, rtol=0, atol=1e-12)
    start = runs[0].network.initial([0])[0]
    assert np.abs(looked_up[0].parameters - start).max() > 1e-3


def test_a_classifier_is_fitted_once_for_all_stacks(monkeypatch):
    bank, fits = make_bank(), []
    fit = FittedClassifier.fit
    monkeypatch.setattr(FittedClassifier, "fit", lambda *given: fits.append(1) or fit(*given))
    objective = WRI(weighting="overlap", density=FittedClassifier(8, steps=20))
    one, other = [np.arange(30), np.arange(40, 70)], [np.arange(31), np.arange(40, 70)]
    for train in (one, one, other, one):
        train_steps([make_run(objective, bank, train)], 2)
    assert len(fits) == 2
    train_steps([make_run(objective, make_bank(), one)], 2)  # other rows with the same numbers
    assert len(fits) == 3


SMALL = (
    Bounded(),
    EnvironmentClassifier(4),
    Exact(lambda x: -(x[..., :1] - torch.arange(3) / 2).square()),
    FittedClassifier(4, steps=5),
    Gaussian(),
    LabelAwareClassifier(hidden=4, second_hidden=4, steps=5, refit_steps=5),
    Mixture(1),
)


def make_small_run(weighting, scaling, density, environments=3):
    """A run with these options, or None if the constructor refuses them."""
    try:
        objective = WRI(weighting, scaling, density=density, density_scaling=scaling)
    except InputError:
        return None
    rows = [np.arange(20 * e, 20 * e + 18 + e % 3) for e in range(environments)]
    hyper = {"anneal_steps": 0, "density_batch_size": 16, "density_steps": 2}
    return make_run(objective, make_bank(), rows, hyper)


def check_three_steps(run):
    (record,) = train_steps([run], 3, dtype=torch.float64)
    assert record.diverged_at is None
    assert np.isfinite(record.parameters).all()
    assert np.isfinite(record.state).all()


@pytest.mark.parametrize("density", SMALL, ids=lambda density: type(density).__name__)
@pytest.mark.parametrize("weighting", get_args(Weighting))
@pytest.mark.slow
def test_all_options_that_are_accepted_train(weighting, density):
    runs = [make_small_run(weighting, scaling, density) for scaling in get_args(Scaling)]
    refused = not density.comparable_over_x and weighting in ("density", "published")
    assert [run is None for run in runs] == [refused] * len(runs)
    for run in runs:
        if run is not None:
            check_three_steps(run)


@pytest.mark.parametrize("density", [Bounded(), EnvironmentClassifier(4), Gaussian()], ids=repr)
@pytest.mark.parametrize("weighting", get_args(Weighting))
def test_all_weightings_train_with_a_circle_of_pairs(weighting, density):
    run = make_small_run(weighting, "relative", density, environments=9)
    if run is not None:
        check_three_steps(run)
