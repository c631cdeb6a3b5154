"""Figure 3: with more samples WRI lets go of the spurious feature, and only WRI."""

import numpy as np
import pytest
import torch

from wri.paper.experiments import ExperimentTask, figure3, run_experiment
from wri.paper.experiments.figure1 import integrated, risk_and_penalty, share_of, solve
from wri.paper.experiments.figure3 import LABELS, SETTING, STARTS


@pytest.fixture(scope="module")
def population():
    return integrated(SETTING)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figure3, "QUICK", ((100, 5_000), 3, 1))
        patch.setattr(figure3, "LAMBDAS", (1e4,))
        return run_experiment(
            ExperimentTask(name="figure3", folder=tmp_path_factory.mktemp("figure3"))
        )[0]


@pytest.mark.slow
def test_only_wri_becomes_less_spurious_with_the_sample(result):
    share = {(r.algorithm, r.column): r.ours for r in result.rows if r.table == "spurious share"}
    for label in ("WRI", "WRI, p(x_inv)"):
        assert share[label, "n = 5000"] < share[label, "n = 100"] / 2
        assert share[label, "n = 5000"] < 0.15
    for label in ("ERM", "IRM", "VREx"):
        assert share[label, "n = 5000"] > 0.38


@pytest.mark.slow
def test_being_less_spurious_pays_in_the_test_environment(result):
    at = ("test accuracy (%)", "n = 5000")
    accuracy = {r.algorithm: r.ours for r in result.rows if (r.table, r.column) == at}
    assert max(accuracy[label] for label in ("ERM", "IRM", "VREx")) < 50
    assert 65 < accuracy["WRI"] < accuracy["WRI, p(x_inv)"] < 76


def test_irm_and_vrex_stay_spurious_with_infinitely_many_samples(population):
    share = {name: share_of(solve(name, 1e4, population, STARTS)) for name in LABELS}
    assert share["wri_invariant"] < 0.001
    assert share["wri"] < 0.03
    assert 0.38 < share["irm"] < share["vrex"] < share["erm"]


def test_large_samples_approach_the_integrals():
    setting = SETTING
    w = torch.tensor([1.5, 0.7, -0.2], dtype=torch.float64)
    n = 200_000
    x, y = (torch.stack(each) for each in zip(*_drawn(setting, n), strict=True))
    losses = torch.nn.functional.softplus(-(2 * y - 1) * (x @ w[:2] + w[2]))  # [E, n]
    error = losses.var(-1).div(n).sum().sqrt() / 2  # of the mean of two independent means
    exact, _ = risk_and_penalty("erm", w, integrated(setting))
    assert abs(losses.mean() - exact) < 4 * error
    finer, _ = risk_and_penalty("erm", w, integrated(setting, step=0.2))
    assert abs(finer - exact) < 1e-9


def _drawn(setting, n):
    return [(torch.tensor(e.x), torch.tensor(e.y)) for e in setting.sample(n, seed=7)[:2]]


def test_densities_integrate_to_one_at_their_means():
    setting = SETTING
    axis = torch.arange(-9, 9.05, 0.1, dtype=torch.float64)
    x = torch.cartesian_prod(axis, axis)
    density = setting.log_joint(x).exp() * 0.01  # [G, E]
    assert torch.allclose(density.sum(0), torch.ones(3, dtype=torch.float64))
    means = (density * x[:, :1]).sum(0)
    assert torch.allclose(means, torch.tensor([0.0, 2.0, 0.0], dtype=torch.float64), atol=1e-9)


@pytest.mark.parametrize("name", ["wri", "wri_invariant"])
def test_predictors_without_spurious_weight_have_no_wri_penalty(population, name):
    for invariant, offset in ((1.7, 0.0), (0.5, -1.0), (-2.0, 0.3)):
        w = torch.tensor([invariant, 0.0, offset], dtype=torch.float64)
        assert risk_and_penalty(name, w, population)[1] < 1e-20


def test_joint_densities_charge_the_square_of_the_spurious_weight_alone(population):
    charges = []
    for invariant, spurious, offset in ((1.7, 0.1, 0.0), (0.5, 1.0, -1.0), (-2.0, -3.0, 0.3)):
        w = torch.tensor([invariant, spurious, offset], dtype=torch.float64)
        _, penalty = risk_and_penalty("wri", w, population, scaling="none")
        charges.append(penalty.item() / spurious**2)
    assert charges[0] > 1e-6
    assert np.allclose(charges, charges[0], rtol=1e-6)


@pytest.mark.slow
def test_figures_are_written(result):
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in result.figures)
