"""The feature layer behind a backbone: what it keeps, and what decides it."""

import numpy as np
import pytest
import torch

from wri.errors import InputError
from wri.features import FeatureLayer


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
    fitted = FeatureLayer((4,), steps=300).fit(given, width=4, classes=3, seed=0)
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
    short, given = FeatureLayer(steps=20), domains()

    def weight(given, seed):
        return short.fit(given, width=4, classes=3, seed=seed).weight

    first = weight(given, 0)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        again = weight(given, 0)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, weight(given, 1))
    assert not np.array_equal(first, weight(given[:1], 0))


def test_widths_are_in_one_order_and_positive():
    assert FeatureLayer((32, 64, 32)) == FeatureLayer((64, 32))
    for widths, steps in (((), 5), ((0,), 5), ((4,), 0)):
        with pytest.raises(InputError, match="widths and steps of at least 1"):
            FeatureLayer(widths, steps)
