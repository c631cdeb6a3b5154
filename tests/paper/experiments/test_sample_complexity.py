"""Appendix B: integrals agree with closed forms and with samples."""

from math import exp

import numpy as np
import pytest
from scipy.stats import norm

from wri.paper.experiments import ExperimentTask, run_experiment
from wri.paper.experiments.sample_complexity import (
    GRID,
    WEIGHTINGS,
    density_share,
    exact,
    simulate,
    weights_at,
)


@pytest.mark.parametrize("distance", [0.0, 0.5, 1.0, 2.0])
def test_ratio_weights_keep_exp_of_minus_the_squared_distance(distance):
    assert exact("ratio", distance).effective == pytest.approx(exp(-(distance**2)), rel=1e-6)


def test_where_environments_agree_overlap_weights_are_even_and_densities_are_not():
    assert exact("overlap", 0.0).effective == pytest.approx(1)
    assert exact("density", 0.0).effective == pytest.approx(3**0.5 / 2)
    assert density_share(20, 0.0) == pytest.approx((3**0.5 / 2) ** 20)


@pytest.mark.parametrize("weighting", list(WEIGHTINGS))
def test_both_sides_are_weighted_to_the_same_distribution(weighting):
    alpha, beta = weights_at(GRID, 1.3)[weighting]
    assert np.allclose(alpha * norm.pdf(GRID), beta * norm.pdf(GRID, 1.3), atol=1e-12)


def test_under_shift_ratio_weights_spread_most():
    spread = {weighting: exact(weighting, 2.0).spread for weighting in WEIGHTINGS}
    assert spread["ratio"] > 1.5 * spread["density"] > 1.4 * spread["overlap"]
    assert exact("ratio", 0.0).spread == pytest.approx(exact("overlap", 0.0).spread)


def test_samples_spread_as_the_integrals_say_and_stay_within_the_bound():
    repeats = 1000
    simulated = simulate(1.0, repeats, np.random.default_rng(0))
    for weighting, (spread, effective) in simulated.items():
        found = exact(weighting, 1.0)
        tolerance = 4 / (2 * repeats) ** 0.5  # relative error of a standard deviation
        assert spread == pytest.approx(found.spread, rel=tolerance + 0.05)
        assert effective.mean() == pytest.approx(found.effective, rel=0.05)
        assert found.bound > 1.96 * found.spread  # a bound holds for normal errors too


def test_only_ratio_weights_are_truncated():
    assert exact("density", 2.0).cut == exact("overlap", 2.0).cut == 0
    assert 0.001 < exact("ratio", 2.0).cut < 0.05


@pytest.mark.slow
def test_tables_and_figure(tmp_path):
    [result] = run_experiment(ExperimentTask(name="sample_complexity", folder=tmp_path))
    assert len(result.tables) == 3
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".svg"]
