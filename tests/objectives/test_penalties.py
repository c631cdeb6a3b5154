"""Hand-computed values and known limits of the baselines."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from wri.errors import InputError
from wri.objectives.base import Batch, Model, StepContext
from wri.objectives.functional import (
    coral_penalty,
    groupdro_weights,
    irm_penalty,
    vrex_penalty,
    wri_penalty,
)
from wri.objectives.mldg import MLDG, meta_pairs
from wri.objectives.pairs import circle
from wri.stacked import CROSS_ENTROPY, Network, Streams, differentiate


def test_vrex_by_hand():
    torch.testing.assert_close(vrex_penalty(torch.tensor([1.0, 3.0])), torch.tensor(1.0))
    assert vrex_penalty(torch.tensor([2.0, 2.0, 2.0])) == 0


def test_one_row_has_no_halves():
    """The second half of one row is empty, and so is one whose rows are all padding."""
    one, logs = torch.ones(3, 1), torch.zeros(3, 3, 1)
    with pytest.raises(InputError, match="the batch size is 1; use form='square'"):
        irm_penalty(one, "halves")
    with pytest.raises(InputError, match="the batch size is 1; use form='square'"):
        wri_penalty(one, logs, form="halves")
    weight = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    with pytest.raises(InputError, match="environment 1 has too few rows"):
        irm_penalty(torch.ones(3, 2), "halves", weight)
    with pytest.raises(InputError, match="environment 1 has too few rows"):
        wri_penalty(torch.ones(3, 2), torch.zeros(3, 3, 2), row_weight=weight, form="halves")


def test_groupdro_by_hand():
    risks = torch.tensor([0.0, 1.0], requires_grad=True)
    weights = groupdro_weights(torch.tensor([0.5, 0.5]), risks, 2.0)
    e = torch.tensor(2.0).exp()
    torch.testing.assert_close(weights, torch.stack([1 / (1 + e), e / (1 + e)]))
    assert not weights.requires_grad


def test_coral_is_the_mean_over_pairs():
    torch.manual_seed(0)
    phi = torch.randn(4, 10, 3, dtype=torch.float64)  # environments, rows, features
    expected = []
    for i in range(4):
        for j in range(i + 1, 4):
            means = (phi[i].mean(0) - phi[j].mean(0)).square().mean()
            covariances = (torch.cov(phi[i].T) - torch.cov(phi[j].T)).square().mean()
            expected.append(means + covariances)
    torch.testing.assert_close(coral_penalty(phi), torch.stack(expected).mean())


def test_coral_weighs_rows_as_numpys_covariance_does():
    random = np.random.default_rng(0)
    phi, weight = random.normal(size=(2, 9, 3)), random.gamma(1.0, size=(2, 9))
    weight /= weight.sum(-1, keepdims=True)
    means = [np.average(x, 0, w) for x, w in zip(phi, weight, strict=True)]
    spreads = [np.cov(x.T, aweights=w) for x, w in zip(phi, weight, strict=True)]
    expected = np.mean((means[0] - means[1]) ** 2) + np.mean((spreads[0] - spreads[1]) ** 2)
    found = coral_penalty(torch.tensor(phi), torch.tensor(weight))
    assert found.item() == pytest.approx(expected)


def plain_coral(phi, weight):
    """The formula as it is written, for automatic differentiation."""
    mean = (phi * weight[..., None]).sum(-2)  # [..., E, F]
    centred = phi - mean[..., None, :]
    freedom = 1 - weight.square().sum(-1)[..., None, None]
    covariance = (centred * weight[..., None]).transpose(-1, -2) @ centred / freedom
    pairs = list(combinations(range(phi.shape[-3]), 2))
    gaps = [
        (mean[..., i, :] - mean[..., j, :]).square().mean(-1)
        + (covariance[..., i, :, :] - covariance[..., j, :, :]).square().mean((-1, -2))
        for i, j in pairs
    ]
    return sum(gaps) / len(pairs)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_of_coral_is_that_of_automatic_differentiation(leading, weighted):
    random = torch.Generator().manual_seed(0)
    phi = torch.randn((*leading, 4, 9, 5), generator=random, dtype=torch.float64) + 3
    weight = torch.rand((*leading, 4, 9), generator=random, dtype=torch.float64)
    weight[..., -2:] = 0.0  # padding
    weight = weight / weight.sum(-1, keepdim=True)
    equal = torch.full_like(weight, 1 / 9)
    phi.requires_grad_()
    found = coral_penalty(phi, weight if weighted else None)
    expected = plain_coral(phi, weight if weighted else equal)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    upstream = torch.rand(leading, generator=random, dtype=torch.float64)
    (ours,), (other,) = (
        torch.autograd.grad((upstream * value).sum(), phi) for value in (found, expected)
    )
    torch.testing.assert_close(ours, other, rtol=1e-12, atol=1e-12)


def test_coral_leaves_padding_out():
    torch.manual_seed(0)
    phi = torch.randn(2, 6, 3, dtype=torch.float64)
    weight = torch.tensor([[1 / 4] * 4 + [0.0] * 2] * 2, dtype=torch.float64)
    torch.testing.assert_close(coral_penalty(phi, weight), coral_penalty(phi[:, :4]))


def test_circle_leads_through_every_environment():
    order = torch.tensor([[2, 0, 3, 1], [0, 1, 2, 3]])
    after = circle(order)
    torch.testing.assert_close(after, torch.tensor([[3, 2, 0, 1], [1, 2, 3, 0]]))


def test_mldg_pairs_take_turns_and_keep_one_to_train_on():
    order = torch.tensor([[2, 0, 1], [1, 2, 0], [0, 1, 2]])
    run, train, test = meta_pairs(order, torch.tensor([1.0, 2.0, 5.0]))
    found = list(zip(run.tolist(), train.tolist(), test.tolist(), strict=True))
    assert found == [(0, 2, 1), (0, 0, 1), (1, 1, 2), (2, 0, 1)]


class OneModel:
    """MLDG on one plain module, the way its paper writes it."""

    def __init__(self, network, flat, x, y):
        self.module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()
        names = list(dict(self.module.named_parameters()))
        pieces = network.packing.views(flat.detach())
        self.parameters = {}
        for name, piece in zip(names, pieces, strict=True):
            shape = piece[0, 0].squeeze(-1) if name.endswith("bias") else piece[0, 0]
            self.parameters[name] = shape.clone().requires_grad_()
        self.x, self.y = x, y

    def risk(self, parameters, environment):
        outputs = functional_call(self.module, parameters, (self.x[environment],))
        return nn.functional.cross_entropy(outputs, self.y[environment])

    def meta_gradient(self, pairs, rate, beta, decay, inner):
        total = 0.0
        for train, test in pairs:
            risk = self.risk(self.parameters, train)
            create = inner == "sgd"
            gradients = torch.autograd.grad(
                risk, list(self.parameters.values()), create_graph=create, retain_graph=True
            )
            moved = {}
            for (name, value), gradient in zip(self.parameters.items(), gradients, strict=True):
                if inner == "sgd":
                    moved[name] = value - rate * gradient
                else:  # what torch's Adam does in its first step
                    single = value.detach().clone().requires_grad_()
                    single.grad = gradient.clone()
                    torch.optim.Adam([single], lr=rate, weight_decay=decay).step()
                    moved[name] = value + (single.detach() - value.detach())
            total = total + risk + beta * self.risk(moved, test)
        gradients = torch.autograd.grad(total / 3, list(self.parameters.values()))
        return torch.cat([gradient.flatten() for gradient in gradients])


def test_mldg_meta_gradient_is_autograd_through_the_inner_step_of_one_model():
    torch.manual_seed(0)
    network = Network((4, 5, 3))
    x, y = torch.randn(1, 3, 8, 4, dtype=torch.float64), torch.randint(3, (1, 3, 8))
    hyper = {
        "learning_rate": torch.tensor([0.1]).double(),
        "weight_decay": torch.tensor([0.02]).double(),
        "beta": torch.tensor([0.7]).double(),
        "meta_test": torch.tensor([1.0]).double(),
    }
    for inner in ("sgd", "adam"):
        flat = torch.tensor(network.initial([0]), requires_grad=True)
        order = Streams([5], "objective", torch.float64, "cpu").permutations(3)[0].tolist()
        context = StepContext(0, hyper, Streams([5], "objective", torch.float64, "cpu"))
        model = Model(network, flat, CROSS_ENTROPY)
        loss, _ = MLDG(inner).loss(model, Batch(x, y), None, context)
        pairs = [(order[0], order[2]), (order[1], order[2])]
        expected = OneModel(network, flat, x[0], y[0]).meta_gradient(pairs, 0.1, 0.7, 0.02, inner)
        torch.testing.assert_close(differentiate(loss, flat)[0], expected)
