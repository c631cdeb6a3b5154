"""Figure E.6: digits above their mirror images."""

from functools import partial

import numpy as np
import pytest

from wri.datasets import Mnist
from wri.paper.experiments import ExperimentTask, figureE6, run_experiment
from wri.paper.simulations import coloured_mnist, mirror


@pytest.fixture
def few(monkeypatch):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (3000, 28, 28)).astype(np.uint8)
    mnist = Mnist(images, random.integers(0, 10, 3000).astype(np.uint8))
    draw = partial(coloured_mnist, mnist=mnist)
    monkeypatch.setattr(figureE6, "coloured_mnist", draw)
    return draw("cmnist")[2]


@pytest.mark.slow
def test_every_mirrored_digit_is_counted_and_the_picture_written(few, tmp_path):
    [result] = run_experiment(ExperimentTask(name="figureE6", folder=tmp_path))
    counted = sum(row.ours for row in result.rows)
    assert counted == len(mirror(few).rows)
    assert [row.column for row in result.rows] == ["3", "4", "4", "6", "7", "7", "9", "9"]
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".svg"]
    assert all(path.stat().st_size > 3_000 for path in result.figures)


def test_each_example_stands_above_its_own_mirror_image(few):
    flipped = mirror(few)
    for direction, axis in (("horizontal", 2), ("vertical", 1)):
        shown = figureE6.examples(flipped, direction)
        above, below = few.take(flipped.rows[shown]), flipped.digits.take(shown)
        assert np.array_equal(np.flip(above.grey, axis), below.grey)
        assert above.colour.tolist() == [0, 1] * 4
        picture = figureE6.sheet(above, below)
        assert picture.shape == (2 * 28 + figureE6.GAP, 8 * 28 + 7 * figureE6.GAP, 3)
        assert picture.max() <= 1
