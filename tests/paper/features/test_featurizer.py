"""The feature layer behind a backbone: what it keeps, and what it must not see."""

import numpy as np
import pytest
import torch
from torch import nn

from wri.errors import InputError
from wri.features import Backbone, Preprocessing
from wri.paper.features.featurizer import Featurizer


def domains(count=2, rows=300, shift=0.0):
    """Three classes along two of twenty directions, which differ in scale."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(count):
        y = random.integers(0, 3, rows)
        x = random.normal(size=(rows, 20)) + shift
        x[:, 0] += 5.0 * (y == 1)
        x[:, 1] += 5.0 * (y == 2)
        found.append((x * np.linspace(1, 100, 20), y))
    return found


def test_features_keep_the_classes_in_units_of_the_training_rows():
    given = domains()
    fitted = Featurizer(width=4, steps=300).fit_head(given, 0, classes=3)
    x = np.concatenate([own for own, _ in given])
    y = np.concatenate([own for _, own in given])
    made = fitted.transform(x)
    assert made.shape == (600, 4)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(made.std(0), 1, atol=1e-3)
    augmented = np.c_[made, np.ones(len(made))]
    guess = augmented @ np.linalg.lstsq(augmented, np.eye(3)[y], rcond=None)[0]
    assert np.mean(guess.argmax(1) == y) > 0.85


def test_seeds_and_rows_decide_and_threads_do_not():
    short = Featurizer(width=4, steps=20)
    given = domains()
    first = short.fit_head(given, 0, classes=3)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        again = short.fit_head(given, 0, classes=3)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(first.weight, again.weight)
    assert not np.array_equal(first.weight, short.fit_head(given, 1, classes=3).weight)
    assert not np.array_equal(first.weight, short.fit_head(given[:1], 0, classes=3).weight)


def test_sizes_are_checked():
    with pytest.raises(InputError, match="width must be 1 or more, not 0"):
        Featurizer(width=0)
    assert Featurizer.domainbed(32).steps == 5000


class Toy(nn.Module):
    """Colours of a picture, seen through a layer that can learn."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x):
        return self.layer(x.mean((2, 3)))


def test_everything_learns_on_a_toy_backbone(tmp_path):
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0)
    given = []
    for d in range(2):
        paths, y = [], random.integers(0, 2, 30)
        for n, label in enumerate(y):
            colour = (200, 40, 40) if label else (40, 40, 200)
            path = tmp_path / f"{d}-{n}.png"
            image.new("RGB", (8, 8), colour).save(path)
            paths.append(path)
        given.append((paths, y))
    torch.manual_seed(0)
    toy = Backbone("toy", Toy(), Preprocessing(side=8, crop=1.0))
    before, done = toy.digest, []
    featurizer = Featurizer(width=3, steps=30, batch_size=8, learning_rate=1e-2)
    fitted = featurizer.fit_full(toy, given, 0, 2, progress=lambda *step: done.append(step))
    assert toy.digest == before
    assert done[-1] == (30, 30)
    assert fitted.name == "toy, 3 features, seed 0"
    learned = fitted.network[0].layer.weight
    assert not torch.equal(learned, toy.network.layer.weight)
    red, blue = (
        fitted.for_extraction().features(given[0][0][list(given[0][1]).index(label)].read_bytes())
        for label in (1, 0)
    )
    assert red.shape == (3,)
    assert np.abs(red - blue).max() > 0.1
