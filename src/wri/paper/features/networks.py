"""Training of a small network with its own random generator."""

from collections.abc import Callable, Mapping
from math import ceil
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from wri.paper.features.extractor import scaled
from wri.progress import Progress

BATCH = 64
Built = TypeVar("Built", bound=nn.Module)


def undrawn(make: Callable[[], Built]) -> Built:
    """Build a network with unset weights, without draws from global generators."""
    with torch.device("meta"):
        network = make()
    return network.to_empty(device="cpu")


@torch.no_grad()
def draw(network: nn.Module, random: torch.Generator) -> None:
    """Draw initial weights like PyTorch: uniform in ±1/√fan_in."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            bound = module.weight[0].numel() ** -0.5
            module.weight.uniform_(-bound, bound, generator=random)
            if module.bias is not None:
                module.bias.uniform_(-bound, bound, generator=random)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()  # ones and zeros


def train(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    data: tuple[np.ndarray, np.ndarray],
    epochs: int,
    rates: tuple[float, float],
    seed: int,
    progress: Progress,
) -> None:
    """Draw initial weights, and minimise loss(x, labels) with Adam over shuffled batches.

    `data` are uint8 images and labels, `rates` the learning rate and the weight decay.
    """
    random = torch.Generator().manual_seed(seed)
    draw(network, random)
    images, labels = data
    optimiser = torch.optim.Adam(network.parameters(), rates[0], weight_decay=rates[1], fused=True)
    of, done = epochs * ceil(len(images) / BATCH), 0
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(images), generator=random)
        for rows in map(Tensor.numpy, order.split(BATCH)):
            optimiser.zero_grad()
            loss(scaled(images[rows]), torch.from_numpy(labels[rows])).backward()
            optimiser.step()
            done += 1
            progress(done, of)
    network.eval()


def load_arrays(network: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Set weights from arrays; raise ValueError if names or shapes differ."""
    found = {name: array.shape for name, array in arrays.items()}
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    if found != wanted:
        raise ValueError("its arrays are not those of the network")
    network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    network.eval()
