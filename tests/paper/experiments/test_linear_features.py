"""Figures C.1, D.3 and D.4: regression on one linear feature."""

from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import norm

from wri.paper.experiments import ExperimentTask, density_quality, figureC1, run_experiment
from wri.paper.experiments.density_quality import GRID, DensityComparison, limit_error
from wri.paper.experiments.figureC1 import (
    FeatureBatch,
    LearnedDensities,
    descend,
    exact_log_densities,
    features,
    weights_of,
)


def silent(done, of):
    pass


@pytest.fixture(scope="module")
def paths():
    return figureC1.paths(3_000, range(2), 250, silent)


@pytest.mark.slow
def test_wri_discards_the_spurious_weight_from_both_starts_and_erm_does_not(paths):
    for start in figureC1.STARTS:
        assert np.abs(paths["wri", start][-1, :, 1]).max() < 0.05
        assert np.abs(paths["wri", start][-1, :, 0] - 1).max() < 0.1
    assert paths["erm", "equal weights"][-1, :, 1].min() > 0.2


@pytest.mark.slow
def test_erm_ends_at_least_squares(paths):
    for n, seed in enumerate(range(2)):
        environments = figureC1.SETTING.sample(3_000, seed)
        x = np.concatenate([e.x for e in environments])
        y = np.concatenate([e.y for e in environments])
        expected = np.linalg.lstsq(x, y, rcond=None)[0]
        assert np.allclose(paths["erm", "equal weights"][-1, n], expected, atol=1e-3)


def test_densities_of_the_feature_are_exact():
    model = torch.tensor([[0.7, -0.4, 2.0]], dtype=torch.float64)
    rows = FeatureBatch.sample(figureC1.SETTING, 200_000, [5])
    phi = features(model, rows.x)  # [1, E, n]
    logs = exact_log_densities(figureC1.SETTING)(model, phi[..., :3])
    for e in range(3):
        sample = phi[0, e]
        expected = norm(sample.mean().item(), sample.std().item()).logpdf(phi[0, :, :3])
        assert np.abs(logs[0, e].numpy() - expected).max() < 0.1


def test_a_run_among_others_equals_the_run_alone():
    setting = density_quality.SETTING
    start = torch.tensor([[1.0, 1.0, 0.5]] * 2, dtype=torch.float64)

    def last(which, seeds):
        rows = FeatureBatch.sample(setting, 100, seeds)
        densities = LearnedDensities(rows, seeds, hidden=4, batch_size=16)
        models = descend(rows, seeds, start[which], 10.0, densities, "loss", 32)
        return list(islice(models, 20))[-1]

    assert torch.allclose(last([0, 1], [3, 4])[1:], last([1], [4]), atol=1e-10)


def test_the_error_of_a_constant_is_one_and_of_the_truth_zero():
    true = torch.tensor(np.stack([norm.pdf(GRID, -1.5), norm.pdf(GRID, 1.5)]))[None]
    constant = DensityComparison(torch.full_like(true, 0.3), true).relative_error
    assert torch.allclose(constant, torch.ones_like(constant))
    exact = DensityComparison(7 * true, true).relative_error
    assert torch.allclose(exact, torch.zeros_like(exact), atol=1e-12)
    assert 0.01 < limit_error() < 0.05


def test_the_overlap_is_where_both_are_common():
    true = torch.tensor(np.stack([norm.pdf(GRID, -1.5), norm.pdf(GRID, 1.5)]))[None]
    inside = GRID[DensityComparison(true, true).overlap[0, 0]]
    reach = (2 * np.log(10)) ** 0.5 - 1.5  # a tenth of the peak
    assert inside.min() == pytest.approx(-reach, abs=0.02)
    assert inside.max() == pytest.approx(reach, abs=0.02)


@pytest.fixture(scope="module")
def found():
    return density_quality.training(range(2), 700, "none", silent)


@pytest.mark.slow
def test_learned_densities_come_to_resemble_the_true_ones(found):
    assert found.errors[-1].max() < 0.35
    assert found.errors[-1].mean() < 0.25 < 0.5 < found.errors[0].mean()
    assert np.abs(found.weights[:, 1]).max() < 0.2


@pytest.mark.slow
def test_learned_densities_aim_at_the_root_of_the_ratio(found):
    """It fits them better than the density itself, once where the two part counts too."""
    wide = (GRID.abs() < 1.2).numpy()
    for learned, true in zip(found.last.learned.log(), found.last.true.log(), strict=True):
        for e in range(2):
            root = 0.5 * (true[e] - true[1 - e])
            residual = [np.std((learned[e] - each).numpy()[wide]) for each in (root, true[e])]
            assert residual[0] < residual[1]


@pytest.mark.slow
def test_both_figures_show_one_training(found, tmp_path, monkeypatch):
    asked = []

    def train_once(seeds, steps, scaling, progress):
        asked.append((seeds, steps, scaling))
        return found

    monkeypatch.setattr(density_quality, "training", train_once)
    results = run_experiment(ExperimentTask(name="density_quality", folder=tmp_path))
    assert asked == [(range(3), 1000, "none"), (range(3), 1000, "relative")]
    assert [result.experiment for result in results] == ["figureD3", "figureD4"]
    for result in results:
        names = [f"{result.experiment}.{kind}" for kind in ("png", "pdf", "svg")]
        assert [path.name for path in result.figures] == names
    asked.clear()
    one = ExperimentTask(name="density_quality", outputs=("figureD4",), folder=tmp_path)
    [again] = run_experiment(one)
    assert again.rows == results[1].rows


def test_the_product_of_feature_and_slope_are_the_weights():
    models = torch.tensor([[2.0, 1.0, 3.0]])
    assert weights_of(models).tolist() == [[6.0, 3.0]]
