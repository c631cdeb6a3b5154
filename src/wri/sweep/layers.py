"""Feature layers of a sweep: one per trial, held-out environments and width.

    features ─► layer, trained on training rows of the environments not held out ─► features of runs

Seeds of a layer and of the runs on it depend on its place. The width follows DomainBed's rule for
hyper-parameters.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from wri.features import FeatureLayer
from wri.sweep.data import SweepData, seed_hash
from wri.threads import give_back_freed_memory

CELL = 20  # bytes per feature and row while a layer is trained: two doubles and a float


class LayerPlace(NamedTuple):
    """Place of a feature layer in a sweep."""

    dataset: str
    trial: int
    held_out: tuple[int, ...]
    width: int


def draw_width(layer: FeatureLayer, draw: int, trial: int) -> int:
    """Return the width of a draw: the largest in the first, then drawn."""
    if draw == 0:
        return layer.widths[0]
    random = np.random.RandomState(seed_hash(seed_hash(draw, trial), "featurizer_width"))
    return int(random.choice(layer.widths))


def outline(data: SweepData, width: int) -> SweepData:
    """Return data with the shape that a layer gives them; all features are zero."""
    zeros = np.broadcast_to(np.zeros(1, np.float32), (len(data.bank.targets), width))
    return replace(data, bank=replace(data.bank, features=zeros), layer=None)


def apply_layer(data: SweepData, place: LayerPlace, splits: Mapping[str, np.ndarray]) -> SweepData:
    """Train a data set's layer and return the data behind it, named by the place."""
    bank, (_, trial, held_out, width) = data.bank, place
    classes = bank.n_classes
    if data.layer is None or classes is None:
        raise ValueError(f"{data.name} has no feature layer")
    train = [splits[f"env{e}_in"] for e in range(len(data.names)) if e not in held_out]
    layer = data.layer.fit(
        [(bank.features[rows], bank.targets[rows]) for rows in train],
        width=width,
        classes=classes,
        seed=seed_hash(data.name, *held_out, width, trial),
    )
    features = np.concatenate([layer.transform(bank.features[rows]) for rows in data.rows])
    give_back_freed_memory()
    names = " and ".join(data.names[e] for e in held_out)
    return replace(
        data,
        name=f"{data.name}, {names} held out, {width} features, trial {trial}",
        bank=replace(bank, features=features),
        layer=None,
    )


def layer_memory(data: SweepData) -> float:
    """Estimate the bytes that the training of a layer takes."""
    return 0.0 if data.layer is None else float(CELL * data.bank.features.size)
