"""Row weights are the derivatives of an objective in the rows' losses."""

import numpy as np
import pytest
import torch

from wri.boosting.row_weights import RowWeights, WeightedRows, loss_slopes, tree_gradients
from wri.objectives.base import PenaltyObjective
from wri.objectives.functional import groupdro_weights, vrex_penalty
from wri.registry import BOOSTED
from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.training import ModelSpec

SIZES = (12, 20, 7)
FACTOR = {"logistic": 1, "cross_entropy": 1, "squared": 2}  # LightGBM halves the last
CASES = [(LOGISTIC, 1), (SQUARED, 1), (CROSS_ENTROPY, 2), (CROSS_ENTROPY, 3), (CROSS_ENTROPY, 4)]


def make_rows(loss, seed=0, classes=3):
    random = np.random.default_rng(seed)
    environment = np.repeat(np.arange(len(SIZES)), SIZES)
    features = random.normal(size=(len(environment), 2)) + environment[:, None] / 3
    targets = {
        "logistic": lambda: random.integers(2, size=len(environment)),
        "cross_entropy": lambda: random.integers(classes, size=len(environment)),
        "squared": lambda: random.normal(size=len(environment)),
    }[loss.name]()
    weights = random.uniform(0.5, 2, len(environment))
    return WeightedRows(
        features=features, targets=targets, environment=environment, loss=loss, weights=weights
    )


def make_weights(name, rows, penalty_weight=3.0):
    given = {} if name in ("erm", "groupdro", "eqrm") else {"penalty_weight": penalty_weight}
    spec = ModelSpec.of(name, preset="table", hidden=(), hyper=given, steps=4)
    spec = spec.complete(2, len(rows.targets), max(SIZES))
    return RowWeights(spec.objective, rows, spec.hyper)


class TwoLosses(PenaltyObjective):
    """VREx as a penalty, which computes the losses of the rows a second time."""

    def penalty(self, model, batch, views):
        risks = batch.mean(model.loss.per_example(views.outputs, batch.y))
        return vrex_penalty(risks)


def test_an_objective_may_compute_the_losses_more_than_once():
    rows = make_rows(LOGISTIC)
    scores = np.random.default_rng(1).normal(size=(len(rows.targets), 1))
    expected = make_weights("vrex", rows).at(scores, 3)
    spec = ModelSpec.of("vrex", preset="table", hidden=(), hyper={"penalty_weight": 3.0}, steps=4)
    spec = spec.complete(2, len(rows.targets), max(SIZES))
    found = RowWeights(TwoLosses(), rows, spec.hyper).at(scores, 3)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def gradient_at(objective, rows, scores):
    slopes = loss_slopes(rows.loss.name, scores, rows.targets)
    return tree_gradients(objective.at(scores, 3), slopes)


def make_stated_loss(name, objective, rows, scores):
    """The objective as a function of scores; GroupDRO's weights stay those of `scores`."""
    if name != "groupdro":
        return lambda moved: objective.value(moved, 3)

    def risks(at):  # [E]
        losses = rows.loss.per_example(torch.tensor(at), torch.tensor(rows.targets)).numpy()
        sums = np.bincount(rows.environment, rows.weights * losses)
        return torch.tensor(sums / np.bincount(rows.environment, rows.weights))

    still = groupdro_weights(torch.ones(len(SIZES)) / len(SIZES), risks(scores), 0.01)
    return lambda moved: float(still @ risks(moved))


@pytest.mark.parametrize(("loss", "outputs"), CASES, ids=lambda case: getattr(case, "name", case))
@pytest.mark.parametrize("name", BOOSTED)
@pytest.mark.slow
def test_gradient_is_the_slope_of_the_objective(name, loss, outputs):
    rows = make_rows(loss, classes=outputs)
    scores = np.random.default_rng(1).normal(size=(len(rows.targets), outputs))
    objective = make_weights(name, rows)
    gradient, curvature = gradient_at(objective, rows, scores)
    stated = make_stated_loss(name, make_weights(name, rows), rows, scores)
    step, slope = 1e-5, np.empty_like(scores)
    for place in np.ndindex(scores.shape):
        moved = np.zeros_like(scores)
        moved[place] = step
        slope[place] = (stated(scores + moved) - stated(scores - moved)) / (2 * step) * len(scores)
    np.testing.assert_allclose(gradient, slope / FACTOR[loss.name], rtol=1e-4, atol=1e-6)
    assert (curvature > 0).all()


@pytest.mark.parametrize("name", BOOSTED)
def test_adding_a_number_to_all_classes_changes_nothing(name):
    rows = make_rows(CROSS_ENTROPY)
    scores = np.random.default_rng(1).normal(size=(len(rows.targets), 3))
    here, moved = (gradient_at(make_weights(name, rows), rows, scores + by) for by in (0.0, 3.0))
    np.testing.assert_allclose(here, moved, rtol=1e-9, atol=1e-12)


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
