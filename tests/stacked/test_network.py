"""A stacked network computes what PyTorch's own layers compute."""

import numpy as np
import pytest
import torch

from helpers import as_module
from wri.stacked import Network, differentiate


@pytest.mark.parametrize("widths", [(5, 3), (5, 4, 3), (5, 6, 4, 2)])
def test_outputs_and_gradients_equal_those_of_modules(widths):
    network = Network(widths)
    flat = torch.tensor(network.initial([0, 1, 2]), requires_grad=True)
    x = torch.randn(3, 2, 7, 5, dtype=torch.float64)
    outputs = network.outputs(flat, x)
    gradient = differentiate(outputs.sin().sum((1, 2, 3)), flat)
    for r in range(3):
        module = as_module(network, flat[r].detach())
        expected = module(x[r])
        torch.testing.assert_close(outputs[r], expected)
        expected.sin().sum().backward()
        of_layers = torch.cat([p.grad.flatten() for p in module.parameters()])
        torch.testing.assert_close(gradient[r], of_layers)


def test_head_after_representation_is_the_network():
    network = Network((5, 6, 4, 2))
    flat = torch.tensor(network.initial([3, 4]))
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    phi = network.represent(flat, x)
    assert phi.shape == (2, 3, 5, 4)
    assert (phi >= 0).all()
    torch.testing.assert_close(network.head(flat, phi), network.outputs(flat, x))


def test_without_hidden_layers_phi_is_the_identity():
    network = Network((5, 2))
    x = torch.randn(1, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(network.represent(torch.tensor(network.initial([0])), x), x)


@pytest.mark.parametrize("runs", [1, 3])
def test_copies_are_independent_networks_on_the_same_rows(runs):
    network = Network((5, 4, 1), copies=3)
    flat = torch.tensor(network.initial(range(runs)))
    x = torch.randn(runs, 2, 7, 5, dtype=torch.float64)
    outputs = network.outputs_of_copies(flat, x)  # [R, 3, 2, 7, 1]
    one = Network((5, 4, 1))
    for copy in range(3):
        pieces = [piece[:, copy].flatten(1) for piece in network.packing.views(flat)]
        torch.testing.assert_close(outputs[:, copy], one.outputs(torch.cat(pieces, 1), x))


def test_rows_shared_by_all_runs_give_what_own_rows_give():
    network = Network((5, 4, 3))
    flat = torch.tensor(network.initial([0, 1, 2]))
    x = torch.randn(1, 9, 5, dtype=torch.float64)
    torch.testing.assert_close(network.outputs(flat, x), network.outputs(flat, x.expand(3, 9, 5)))


def test_initial_weights_depend_on_the_seed_alone():
    network = Network((5, 4, 3))
    together, alone = network.initial([7, 8, 9]), network.initial([8])
    np.testing.assert_array_equal(together[1], alone[0])
    bounds = np.concatenate([np.full(4 * 6, 5**-0.5), np.full(3 * 5, 4**-0.5)])
    assert (np.abs(together) <= bounds).all()
