"""Networks, losses and Adam with a leading axis of runs: the lowest layer."""

from wri.stacked.adam import Adam, clip_norm
from wri.stacked.losses import CROSS_ENTROPY, LOGISTIC, LOSSES, SQUARED, Loss
from wri.stacked.network import (
    AnyNetwork,
    Network,
    OneHiddenLayer,
    Packing,
    Pullback,
    Streams,
    View,
    Views,
    differentiate,
    generator,
)

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
