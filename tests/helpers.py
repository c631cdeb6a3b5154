"""Small data that many tests share."""

import numpy as np
import torch
from torch import nn

from wri.stacked import CROSS_ENTROPY, LOGISTIC, SQUARED
from wri.sweep.data import Data
from wri.training import Bank


def make_bank(loss=CROSS_ENTROPY, rows=200, width=6, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width))
    score = features @ random.normal(size=(width, 3)) + random.normal(size=(rows, 3))
    if loss is CROSS_ENTROPY:
        return Bank(features, score.argmax(1))
    if loss is LOGISTIC:
        return Bank(features, (score[:, 0] > 0).astype(int), LOGISTIC)
    return Bank(features, score[:, 0], SQUARED)


def make_data(environments=4, rows=20, name="toy", seed=0):
    """A data set for sweeps: six features, three classes."""
    random = np.random.default_rng(seed)
    n = environments * rows
    bank = Bank(random.normal(size=(n, 6)), np.arange(n) % 3)
    names = tuple(f"site {e}" for e in range(environments))
    return Data(name, names, bank, (rows,) * environments)


def as_module(network, row):
    """The same network as an `nn.Sequential`, from one run's parameters."""
    layers = []
    pieces = network.packing.views(torch.as_tensor(row)[None])
    for weight, bias in zip(pieces[::2], pieces[1::2], strict=True):
        linear = nn.Linear(weight.shape[-1], weight.shape[-2], dtype=torch.float64)
        linear.weight.data, linear.bias.data = weight[0, 0].clone(), bias[0, 0, :, 0].clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
