"""Row weights are the derivatives of an objective in the rows' losses."""

import numpy as np
import pytest
import torch

from wri.boosting.row_weights import RowWeights, WeightedRows, loss_slopes, tree_gradients
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.training import ModelSpec

OBJECTIVES = ("erm", "irm", "vrex", "groupdro", "wri")
SIZES = (12, 20, 7)
FACTOR = {"logistic": 1, "cross_entropy": 1, "squared": 2}  # LightGBM halves the last


def make_rows(loss, seed=0):
    random = np.random.default_rng(seed)
    environment = np.repeat(np.arange(len(SIZES)), SIZES)
    features = random.normal(size=(len(environment), 2)) + environment[:, None] / 3
    targets = {
        "logistic": lambda: random.integers(2, size=len(environment)),
        "cross_entropy": lambda: random.integers(3, size=len(environment)),
        "squared": lambda: random.normal(size=len(environment)),
    }[loss.name]()
    weights = random.uniform(0.5, 2, len(environment))
    return WeightedRows(
        features=features, targets=targets, environment=environment, loss=loss, weights=weights
    )


def make_weights(name, rows, penalty_weight=3.0):
    given = {} if name in ("erm", "groupdro") else {"penalty_weight": penalty_weight}
    spec = ModelSpec.of(name, preset="table", hidden=(), hyper=given, steps=4)
    spec = spec.complete(2, len(rows.targets), max(SIZES))
    return RowWeights(spec.objective, rows, spec.hyper)


@pytest.mark.parametrize("loss", [LOGISTIC, CROSS_ENTROPY, SQUARED], ids=lambda loss: loss.name)
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_gradient_is_the_slope_of_the_objective(name, loss):
    rows = make_rows(loss)
    outputs = 3 if loss is CROSS_ENTROPY else 1
    scores = np.random.default_rng(1).normal(size=(len(rows.targets), outputs))
    objective = make_weights(name, rows)
    weights = objective.at(scores, 3)
    gradient, curvature = tree_gradients(
        weights, loss_slopes(loss.name, scores, rows.targets), scores
    )
    if outputs > 1 and name == "irm":
        pytest.skip("with several scores IRM's slope mixes them; trees take its diagonal part")
    step, slope = 1e-5, np.empty_like(scores)
    for place in np.ndindex(scores.shape):
        moved = [scores.copy(), scores.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        if name == "groupdro":  # its weights of environments are held still in a step
            break
        high, low = (objective.value(each, 3) for each in moved)
        slope[place] = (high - low) / (2 * step) * len(scores)
    else:
        np.testing.assert_allclose(gradient, slope / FACTOR[loss.name], rtol=1e-4, atol=1e-6)
    assert (curvature > 0).all()


def test_without_a_penalty_every_environment_counts_alike():
    rows = make_rows(LOGISTIC)
    scores = np.zeros((len(rows.targets), 1))
    weights = make_weights("erm", rows).at(scores, 0)
    sums = np.bincount(rows.environment, weights.loss)
    np.testing.assert_allclose(sums, len(rows.targets) / len(SIZES))
    np.testing.assert_allclose(weights.loss, weights.plain)


def test_vrex_pulls_at_the_environment_with_the_larger_risk():
    rows = make_rows(LOGISTIC)
    scores = np.where(rows.environment == 1, -3.0, 3.0)[:, None] * (2 * rows.targets[:, None] - 1)
    weights = make_weights("vrex", rows, 1.0).at(scores, 3)
    heavier = weights.loss > weights.plain
    np.testing.assert_array_equal(heavier, rows.environment == 1)


def test_the_penalty_comes_into_force_after_a_quarter_of_the_rounds():
    rows = make_rows(LOGISTIC)
    scores = np.random.default_rng(2).normal(size=(len(rows.targets), 1))
    weights = make_weights("wri", rows)
    first, last = weights.at(scores, 0), weights.at(scores, 3)
    np.testing.assert_allclose(first.loss, first.plain)
    assert np.abs(last.loss - last.plain).max() > 0.1


def test_slopes_are_derivatives_of_the_loss():
    for loss, outputs in ((LOGISTIC, 1), (SQUARED, 1), (CROSS_ENTROPY, 3)):
        rows = make_rows(loss)
        scores = np.random.default_rng(3).normal(size=(len(rows.targets), outputs))
        leaf = torch.tensor(scores, requires_grad=True)
        loss.per_example(leaf, torch.from_numpy(rows.targets)).sum().backward()
        found = loss_slopes(loss.name, scores, rows.targets)
        expected = leaf.grad.numpy() / FACTOR[loss.name]
        np.testing.assert_allclose(found.first, expected, atol=1e-12)
        assert (found.second > 0).all()
