"""Losses and their gradients in a dummy scale."""

import pytest
import torch

from wri.objectives.functional import irm_penalty
from wri.stacked import CROSS_ENTROPY, LOGISTIC, LOSSES, SQUARED


def example(loss):
    torch.manual_seed(0)
    outputs = torch.randn(4, 3, 10, 5 if loss.classes else 1, dtype=torch.float64)
    if loss is SQUARED:
        return outputs, torch.randn(4, 3, 10, dtype=torch.float64)
    return outputs, torch.randint(5 if loss.classes else 2, (4, 3, 10))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_closed_form_of_irm_equals_double_backward(loss):
    """Value and gradient of the penalty, against autograd through a dummy scale."""
    outputs, targets = example(loss)
    outputs.requires_grad_()
    penalty = irm_penalty(loss.scale_gradient(outputs, targets)).sum()
    (closed,) = torch.autograd.grad(penalty, outputs)

    scale = torch.ones(4, 3, 1, 1, dtype=torch.float64, requires_grad=True)
    risks = loss.per_example(outputs * scale, targets).mean(-1)
    (slope,) = torch.autograd.grad(risks.sum(), scale, create_graph=True)
    (double,) = torch.autograd.grad(slope.square().sum(), outputs)
    torch.testing.assert_close(penalty, slope.square().sum())
    torch.testing.assert_close(closed, double)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_loss_and_gradient_at_once_are_those_apart(loss):
    outputs, targets = example(loss)
    losses, gradients = loss.with_scale_gradient(outputs, targets)
    torch.testing.assert_close(losses, loss.per_example(outputs, targets))
    torch.testing.assert_close(gradients, loss.scale_gradient(outputs, targets))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_halves_of_irm_are_the_interleaved_half_batches(loss):
    outputs, targets = example(loss)
    scale = torch.ones(4, 3, 1, 1, dtype=torch.float64, requires_grad=True)
    slopes = []
    for start in (0, 1):
        half = loss.per_example((outputs * scale)[:, :, start::2], targets[:, :, start::2])
        slopes.append(torch.autograd.grad(half.mean(-1).sum(), scale)[0][..., 0, 0])
    penalty = irm_penalty(loss.scale_gradient(outputs, targets), "halves")
    torch.testing.assert_close(penalty, slopes[0] * slopes[1])


def test_two_classes_of_cross_entropy_are_the_logistic_loss():
    logit = torch.randn(7, dtype=torch.float64)
    targets = torch.tensor([0, 1, 1, 0, 1, 0, 0])
    two = torch.stack([torch.zeros_like(logit), logit], -1)
    one = logit[:, None]
    for function in ("per_example", "scale_gradient", "correct"):
        both = getattr(CROSS_ENTROPY, function)(two, targets).double()
        torch.testing.assert_close(both, getattr(LOGISTIC, function)(one, targets).double())


def test_a_tie_shares_the_point():
    """A constant predictor must not look perfect."""
    points = CROSS_ENTROPY.correct(torch.zeros(1, 6, 3), torch.tensor([[0, 1, 2, 0, 1, 2]]))
    torch.testing.assert_close(points, torch.full((1, 6), 1 / 3))
    points = CROSS_ENTROPY.correct(torch.full((1, 1, 3), torch.nan), torch.tensor([[0]]))
    assert points.item() == 0
