"""Figure 4: under shift IRM stops charging slightly spurious predictors; WRI goes on."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from wri.paper.experiments import ExperimentTask, figure4, run_experiment
from wri.paper.experiments.figure1 import integrated, risk_and_penalty, solve
from wri.paper.experiments.figure3 import SETTING, STARTS
from wri.paper.experiments.figure4 import (
    CHARGES,
    STRONG,
    WEAK,
    NearOptimal,
    environments_at,
    smallest_at,
)


@pytest.fixture(scope="module")
def near():
    return NearOptimal(integrated(environments_at(1.0, WEAK)))


def best_invariant(distance):
    """ERM's predictor where the spurious feature tells nothing."""
    points = integrated(environments_at(distance, (0.0, 0.0)))
    return torch.tensor(solve("erm", 0.0, points, STARTS))


def left_at_the_far_end(spurious_mean):
    near, far = (smallest_at(distance, spurious_mean) for distance in (0.0, 2.0))
    return {label: far[label] / near[label] for label in CHARGES}


@pytest.mark.slow
def test_irm_stops_charging_and_wri_goes_on():
    left = left_at_the_far_end(WEAK)
    assert left["IRM"] < 1e-9
    assert left["WRI, unscaled"] < left["WRI"] < 1 < left["WRI, relative"]
    assert left["WRI"] > 0.4


@pytest.mark.slow
def test_a_strong_spurious_feature_lets_irm_fall_hardly_faster_than_wri():
    left = left_at_the_far_end(STRONG)
    assert left["WRI, unscaled"] < left["IRM"] < left["WRI"] < left["IRM"] + 0.1


@pytest.mark.parametrize("distance", [0.0, 1.0, 2.0])
def test_the_best_invariant_predictor_is_charged_nothing(distance):
    points, w = integrated(environments_at(distance, WEAK)), best_invariant(distance)
    assert abs(w[1]) < 1e-5
    w[1] = 0
    for name, scaling in CHARGES.values():
        assert risk_and_penalty(name, w, points, scaling)[1] < 1e-9


def test_irm_charges_the_invariant_predictor_where_environments_do_not_mirror_each_other():
    """Φ(x_inv) is not logistic, so N(0, 1) and N(2, 1) want different scales."""
    uninformative = replace(SETTING, spurious_mean=(0.0, 0.0, 0.0))
    w = torch.tensor(solve("erm", 0.0, integrated(uninformative)))
    assert risk_and_penalty("irm", w, integrated(SETTING))[1] > 1e-6


@pytest.mark.parametrize("name", ["wri", "wri_invariant"])
def test_the_squared_gap_falls_with_the_overlap(name):
    w = torch.tensor([1.7, 0.5, -0.3], dtype=torch.float64)
    penalties = [
        risk_and_penalty(name, w, integrated(environments_at(distance, WEAK)), "none")[1].item()
        for distance in (0.0, 0.7, 2.0)
    ]
    assert penalties[1] / penalties[0] == pytest.approx(exp(-(0.7**2) / 2), rel=1e-6)
    assert penalties[2] / penalties[0] == pytest.approx(exp(-2), rel=1e-6)


@pytest.mark.slow
def test_every_near_optimal_predictor_is_spurious(near):
    invariant_risk, _ = risk_and_penalty("erm", best_invariant(1.0), near.points)
    assert invariant_risk > 1.05 * near.smallest_risk
    _, w = near.smallest(*CHARGES["WRI, unscaled"])  # joint densities charge w_spu² alone
    assert abs(w[1] / w[0]) > 0.2


@pytest.mark.parametrize("label", CHARGES)
@pytest.mark.slow
def test_the_smallest_penalty_is_feasible_and_not_improved_at_random(near, label):
    name, scaling = CHARGES[label]
    value, w = near.smallest(name, scaling)
    risk, penalty = risk_and_penalty(name, torch.tensor(w), near.points, scaling)
    assert risk <= 1.01 * near.smallest_risk * (1 + 1e-6)
    assert penalty.item() == pytest.approx(value)
    random = np.random.default_rng(0)
    feasible = 0
    for u in random.normal(size=(300, 3)):
        step = near.axes @ torch.tensor(u / np.linalg.norm(u) * random.uniform() ** (1 / 3))
        risk, penalty = risk_and_penalty(name, near.best + step, near.points, scaling)
        if risk <= 1.01 * near.smallest_risk:
            feasible += 1
            assert penalty > value
    assert feasible > 200


@pytest.mark.parametrize("label", ["IRM", "WRI"])
@pytest.mark.slow
def test_a_search_without_gradients_finds_the_same(near, label):
    name, scaling = CHARGES[label]
    value, _ = near.smallest(name, scaling)

    def penalty(u):
        w = near.best + near.axes @ torch.tensor(u)
        return risk_and_penalty(name, w, near.points, scaling)[1].item() / value

    border = {"type": "ineq", "fun": lambda u: near.slack(torch.tensor(u)).item()}
    found = minimize(penalty, np.full(3, 0.1), method="COBYLA", constraints=border, tol=1e-6)
    assert found.fun == pytest.approx(1, rel=1e-3)


@pytest.mark.slow
def test_tables_and_figures_are_written(monkeypatch, tmp_path):
    monkeypatch.setattr(figure4, "smallest_at", lambda at, _: dict.fromkeys(CHARGES, 3 * (2 - at)))
    [result] = run_experiment(ExperimentTask(name="figure4", folder=tmp_path))
    assert [table.columns[-1] for table in result.tables] == ["distance 2"] * 3
    assert [row.ours for row in result.tables[1].lines[0][1]] == [1, 0.75, 0.5, 0.25, 0]
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in result.figures)
