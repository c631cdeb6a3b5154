"""Forward and backward pass of small networks by hand, for many cheap steps.

    h = relu(W x + b),   o = v·h + c

With g the gradient at o, and G = g where h > 0 and zero elsewhere:

    at W   v ⊙ (G xᵀ)              at b   v ⊙ ΣG
    at v   (W ⊙ G xᵀ)·1 + b ⊙ ΣG   at c   Σg

Only two products grow with the number of rows. No graph is kept, there is no gradient with respect
to x, and activations are overwritten in place.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from wri.stacked.network import Network

Pullback = Callable[[Tensor], Tensor]
"""Function from the gradient at some values to the gradient at the parameters; called once."""


class OneHiddenLayer:
    """Networks with one hidden layer and one output, differentiated by hand."""

    def __init__(self, network: Network, flat: Tensor) -> None:
        self._inputs, self._hidden, _ = network.widths
        self._copies, self._flat = network.copies, flat
        self._pieces = flat.split(network.packing.sizes, 1)  # weight, bias, and those of the output

    def forward(self, x: Tensor) -> tuple[Tensor, Pullback]:  # [R, N, D] -> [R, K, N]
        """Compute outputs and their pullback; call it under `no_grad`."""
        groups, rows, _ = x.shape
        runs, units = len(self._flat), self._copies * self._hidden
        weight, bias, out_weight, out_bias = self._pieces
        first = weight.reshape(groups, -1, self._inputs)
        shift = bias.reshape(groups, -1, 1)
        second = out_weight.reshape(-1, 1, self._hidden)  # [R·K, 1, H]
        hidden = torch.baddbmm(shift, first, x.transpose(1, 2)).relu_()
        by_copy = hidden.view(-1, self._hidden, rows)  # [R·K, H, N]
        outputs = torch.baddbmm(out_bias.reshape(-1, 1, 1), second, by_copy)

        def pullback(gradient: Tensor) -> Tensor:  # [R, K, N]
            gradient = gradient.reshape(-1, 1, rows)
            torch.ops.aten.threshold_backward.grad_input(gradient, by_copy, 0, grad_input=by_copy)
            sums = hidden.sum(-1).view(runs, units)  # of G, which stands in the place of h
            products = torch.bmm(hidden, x)  # [groups, …, D]
            at_second = torch.addcmul((first * products).sum(-1).view(runs, units), bias, sums)
            at_first = products.view(runs, units, -1).mul_(out_weight[:, :, None])
            at_outputs = gradient.sum(-1).view(runs, -1)
            return torch.cat([at_first.flatten(1), sums * out_weight, at_second, at_outputs], 1)

        return outputs.view(runs, self._copies, rows), pullback
