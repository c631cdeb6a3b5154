"""Means of near rows by sorting are the means that looking at each row gives."""

import numpy as np
import pytest

from wri.ood.held_out import ColumnRanges, ExpectedLoss, HeldOutRows, sorting_number


@pytest.fixture
def known():
    random = np.random.default_rng(0)
    chance = random.random(200)
    predictions = np.column_stack([1 - chance, chance])
    return HeldOutRows.of(predictions, random.random(200), [random.random(80), random.random(120)])


def test_means_and_weights_are_those_of_the_nearest_ranks(known):
    curve = ExpectedLoss.of(known)
    chance = np.array([0.0, 0.31, 0.5, 1.0])
    window = curve.near(np.column_stack([1 - chance, chance]))
    found = curve.mean(window, curve.losses)
    order = known.predictions[:, 1].argsort()
    weights = np.zeros(200)
    for own, mean in zip(chance, found, strict=True):
        place = int((known.predictions[:, 1] < own).sum())
        start = min(max(place - curve.k // 2, 0), 200 - curve.k)
        near = order[start : start + curve.k]
        assert mean == pytest.approx(np.average(known.losses[near], weights=known.shares[near]))
        weights[near] += known.shares[near] / known.shares[near].sum() / len(chance)
    assert np.allclose(curve.weights(window), weights[curve.order])
    assert curve.weights(window) @ curve.losses == pytest.approx(found.mean())


def test_tied_predictions_count_all_of_their_rows():
    """One prediction for all: the mean of all, not of the first few."""
    losses = np.arange(100.0)
    curve = ExpectedLoss.of(HeldOutRows.of(np.full((100, 1), 3.0), losses, [np.ones(100)]))
    assert curve.mean(curve.near(np.array([[3.0]])), losses) == pytest.approx([49.5])


def test_three_classes_are_sorted_by_the_loss_that_they_expect():
    even, sure = np.full((1, 3), 1 / 3), np.array([[1.0, 0.0, 0.0]])
    assert sorting_number(even) == pytest.approx(np.log(3))
    assert sorting_number(sure) == pytest.approx(0)
    assert sorting_number(sure[:, [1, 0, 2]]) == pytest.approx(0)


def test_a_column_has_one_row_in_a_hundred_beyond_its_range():
    random = np.random.default_rng(0)
    rows = [random.normal(size=(n, 2)) * [1, 1000] for n in (4000, 1000)]
    ranges = ColumnRanges.of(rows, [np.ones(4000), np.ones(1000)])
    assert ranges.rows == 3200  # effective: sites count alike
    new = random.normal(size=(20_000, 2)) * [1, 1000]
    assert ranges.beyond(new).mean(0) == pytest.approx([0.01, 0.01], abs=0.004)
    shifted = ranges.beyond(new + np.array([10, 0]))
    assert shifted[:, 0].all()
    assert np.array_equal(shifted[:, 1], ranges.beyond(new)[:, 1])
