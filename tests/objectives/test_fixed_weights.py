"""One penalty: weights made once or anew, arrays or tensors, slopes by hand or automatic."""

import numpy as np
import pytest
import torch

from wri.objectives.pairs import fixed_weight_penalty
from wri.objectives.weighted_risks import (
    PairSums,
    compare_sides,
    gap_penalty,
    pair_penalty,
    pair_weights,
    penalty_of_losses,
    wri_penalty,
)
from wri.stacked.linear import Sums


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("scaling", ["none", "product", "relative", "risk"])
@pytest.mark.parametrize(
    "weighting", ["density", "overlap", "tilted", "ratio", "uniform", "published"]
)
def test_penalty_and_slope_are_those_of_the_weighted_risks(weighting, scaling, normalised):
    torch.manual_seed(0)
    logs = torch.randn(2, 3, 3, 40, dtype=torch.float64)
    losses = torch.rand(2, 3, 40, dtype=torch.float64).requires_grad_()
    share = torch.rand(2, 3, 40, dtype=torch.float64)
    share[:, 1, 30:] = 0  # padding
    share /= share.sum(-1, keepdim=True)
    expected = wri_penalty(losses, logs, weighting, scaling, share, normalised, overlap_power=2.0)
    found = penalty_of_losses(logs, weighting, scaling, share, normalised, 2.0)(losses)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    slopes = [torch.autograd.grad(each.sum(), losses)[0] for each in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)


def sums_of_rows():
    """Sums of two runs with three environments; the second pair of the first run has no overlap."""
    torch.manual_seed(0)
    weight = torch.rand(2, 3, 3, dtype=torch.float64) + 0.1
    risk, loss = weight * torch.rand_like(weight), torch.rand(2, 3, dtype=torch.float64)
    weight[0, 1, 2] = weight[0, 2, 1] = risk[0, 1, 2] = risk[0, 2, 1] = 0.0
    return PairSums(weight, risk, loss)


def pair_weights_of_three():
    pairs = torch.rand(2, 3, 3, dtype=torch.float64)
    return pairs + pairs.mT


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("scaling", ["none", "product", "loss", "relative", "risk"])
def test_slopes_in_the_sums_are_those_of_automatic_differentiation(scaling, normalised):
    sums, pair_weight = sums_of_rows(), pair_weights_of_three()
    leaves = PairSums(*(values.clone().requires_grad_() for values in sums))
    gaps = compare_sides(leaves, leaves, normalised)
    expected = gap_penalty([gaps], scaling, pair_weight=pair_weight)
    slopes = torch.autograd.grad(expected.sum(), leaves, allow_unused=True)
    penalty, found = pair_penalty(sums, scaling, normalised, pair_weight)
    assert penalty.min() > 0
    torch.testing.assert_close(penalty, expected.detach(), rtol=1e-12, atol=0)
    for slope, by_hand in zip(slopes, found, strict=True):
        slope = torch.zeros_like(by_hand) if slope is None else slope
        torch.testing.assert_close(by_hand, slope, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("scaling", ["none", "product", "loss", "relative", "risk"])
def test_arrays_and_tensors_give_the_same_penalty(scaling, normalised):
    sums, pair_weight = sums_of_rows(), pair_weights_of_three()
    penalty, slopes = pair_penalty(sums, scaling, normalised, pair_weight)
    arrays = PairSums(*(values.numpy() for values in sums))
    value, found = pair_penalty(arrays, scaling, normalised, pair_weight.numpy())
    np.testing.assert_allclose(value, penalty, rtol=1e-13)
    for ours, theirs in zip(found, slopes, strict=True):
        assert isinstance(ours, np.ndarray)
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-15)


def test_the_solvers_penalty_of_overlap_weights_is_that_of_the_losses():
    """Sums over rows with overlap weights, against `wri_penalty` of the same rows."""
    torch.manual_seed(1)
    logs, losses = torch.randn(3, 3, 30).double(), torch.rand(3, 30).double()
    expected = wri_penalty(
        losses, logs, "overlap", "product", normalised=True, overlap_power=2.0
    ).item()
    weights = pair_weights(logs, "overlap").numpy() / 30  # [j, i, B]
    weights[range(3), range(3)] = 0
    totals = np.column_stack([np.ones(3), weights.sum(-1).T])
    of_losses = np.column_stack([losses.mean(-1), (weights * losses.numpy()).sum(-1).T])
    penalty, slopes = fixed_weight_penalty(Sums(of_losses, weights=totals), 2.0)
    assert penalty == pytest.approx(expected, rel=1e-12)
    moved = of_losses.copy()
    moved[1, 2] += 1e-6
    nearby, _ = fixed_weight_penalty(Sums(moved, weights=totals), 2.0)
    assert (nearby - penalty) / 1e-6 == pytest.approx(slopes.losses[1, 2], rel=1e-4)
