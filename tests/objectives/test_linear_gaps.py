"""Weights that are made once give the penalty that weights made anew give."""

import pytest
import torch

from wri.objectives.linear_gaps import LinearGaps
from wri.objectives.weighted_risks import wri_penalty


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("scaling", ["none", "product", "relative", "risk"])
@pytest.mark.parametrize("weighting", ["density", "overlap", "tilted", "ratio", "uniform"])
def test_penalty_and_slope_are_those_of_the_weighted_risks(weighting, scaling, normalised):
    torch.manual_seed(0)
    logs = torch.randn(2, 3, 3, 40, dtype=torch.float64)
    losses = torch.rand(2, 3, 40, dtype=torch.float64).requires_grad_()
    share = torch.rand(2, 3, 40, dtype=torch.float64)
    share[:, 1, 30:] = 0  # padding
    share /= share.sum(-1, keepdim=True)
    expected = wri_penalty(losses, logs, weighting, scaling, share, normalised, overlap_power=2.0)
    made = LinearGaps.of(logs, weighting, scaling, share, normalised, 2.0)
    found = made.penalty(losses)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    slopes = [torch.autograd.grad(each.sum(), losses)[0] for each in (found, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)
