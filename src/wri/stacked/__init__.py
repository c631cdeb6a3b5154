"""Networks, losses and Adam with a leading axis of runs: the lowest layer."""

from wri.stacked.adam import Adam, clip_norm
from wri.stacked.by_hand import OneHiddenLayer, Pullback
from wri.stacked.losses import CROSS_ENTROPY, LOGISTIC, LOSSES, SQUARED, Loss
from wri.stacked.network import AnyNetwork, Network, Packing, View, Views, differentiate
from wri.stacked.seeds import Streams, generator

__all__ = [
    "CROSS_ENTROPY",
    "LOGISTIC",
    "LOSSES",
    "SQUARED",
    "Adam",
    "AnyNetwork",
    "Loss",
    "Network",
    "OneHiddenLayer",
    "Packing",
    "Pullback",
    "Streams",
    "View",
    "Views",
    "clip_norm",
    "differentiate",
    "generator",
]
