"""Coloured and mirrored digits: what is exact is exact, what is drawn has the right rates."""

import numpy as np
import pytest

from wri.datasets import Mnist
from wri.datasets.catalogue import dataset_locations
from wri.errors import InputError
from wri.paper.simulations import (
    COLOURED_MNIST,
    ColouredDigits,
    coloured_mnist,
    digit_shares,
    ideal_accuracy,
    mirror,
)
from wri.paper.simulations.coloured_mnist import COLOUR_FLIPS, DIGIT_COUNTS, is_easy

NAMES = tuple(COLOURED_MNIST)


def stand_in(rows=3000):
    """Random images that can be told apart: the first four pixels number them."""
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
    images[:, 0, :4] = np.arange(rows, dtype=np.uint32)[:, None].view(np.uint8)
    return Mnist(images, random.integers(0, 10, rows).astype(np.uint8))


def numbers(environment):
    return np.ascontiguousarray(environment.grey[:, 0, :4]).view(np.uint32)[:, 0]


@pytest.fixture(scope="module")
def all_digits():
    """MNIST's digits without their pixels."""
    digits = np.repeat(np.arange(10, dtype=np.uint8), DIGIT_COUNTS)
    return Mnist(np.empty((len(digits), 0, 0), np.uint8), digits)


def within(share, expected, n, deviations=4.5):
    return abs(share - expected) < deviations * np.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [None, 1001, 1000])
def test_every_digit_has_one_home_and_all_homes_the_same_size(name, rows):
    mnist = stand_in()
    environments = coloured_mnist(name, 0, mnist, rows)
    assert [e.name for e in environments] == ["+90%", "+80%", "-90%"]
    sizes = [len(e) for e in environments]
    assert sum(sizes) == (rows or 3000)
    assert max(sizes) - min(sizes) <= 1
    found = np.concatenate([numbers(e) for e in environments])
    assert len(np.unique(found)) == len(found)
    assert np.array_equal(mnist.digits[found], np.concatenate([e.digits for e in environments]))


@pytest.mark.parametrize("seed", range(3))
def test_easy_digits_are_shared_out_exactly(seed, all_digits):
    environments = coloured_mnist("hcmnist-cs", seed, all_digits)
    assert [len(e) for e in environments] == [23334, 23333, 23333]
    easy = [int(is_easy(e.digits).sum()) for e in environments]
    assert sum(easy) == 27969
    assert easy == [18180, 1398, 8391]  # 65, 5 and 30 % to the nearest digit


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_colours_flip_as_often_as_they_should(name, all_digits):
    spec = COLOURED_MNIST[name]
    for environment in coloured_mnist(name, 3, all_digits):
        easy, clean = is_easy(environment.digits), environment.digits < 5
        for rows, noise in ((easy, spec.easy_noise), (~easy, spec.hard_noise)):
            assert within(np.mean(environment.y[rows] != clean[rows]), noise, rows.sum())
        flip = COLOUR_FLIPS[environment.name]
        for label in (0, 1):
            for rows in (easy, ~easy):  # colour knows nothing of the digit but its label
                rows = rows & (environment.y == label)
                assert within(np.mean(environment.colour[rows] != label), flip, rows.sum())


@pytest.mark.parametrize("name", NAMES)
def test_digits_have_the_shares_that_follow_from_the_proportions(name, all_digits):
    shares = digit_shares(name)
    assert np.allclose(shares.sum(1), 1)
    assert np.allclose(shares.mean(0), np.array(DIGIT_COUNTS) / 70_000)  # equal sizes
    for environment, expected in zip(coloured_mnist(name, 5, all_digits), shares, strict=True):
        counts = np.bincount(environment.digits, minlength=10)
        assert all(
            within(c / len(environment), p, len(environment))
            for c, p in zip(counts, expected, strict=True)
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cmnist", (75, 75, 75)), ("hcmnist", (83, 83, 83)), ("hcmnist-cs", (90.6, 76.2, 82.2))],
)
def test_what_the_digit_alone_can_tell(name, expected, all_digits):
    ideal = ideal_accuracy(name)
    assert np.allclose(100 * ideal, expected, atol=0.05)
    for environment, accuracy in zip(coloured_mnist(name, 1, all_digits), ideal, strict=True):
        reached = np.mean((environment.digits < 5) == environment.y)
        assert within(reached, accuracy, len(environment))


def test_ideal_accuracy_by_hand_where_half_as_many_digits_are_easy():
    counts = [1, 1, 2, 3, 3, 1, 1, 2, 3, 3]  # 4 of 20 easy: 39, 3 and 18 % of the environments
    expected = [0.75 + 0.2 * share for share in (0.39, 0.03, 0.18)]
    assert np.allclose(ideal_accuracy("hcmnist-cs", counts), expected)


def test_an_image_is_in_the_channel_of_its_colour():
    for environment in coloured_mnist("cmnist", 0, stand_in(300)):
        images = environment.images
        assert images.shape == (100, 2, 28, 28)
        assert images.dtype == np.uint8
        rows = np.arange(100)
        assert np.array_equal(images[rows, environment.colour], environment.grey)
        assert not images[rows, 1 - environment.colour].any()


def test_equal_seeds_give_equal_data_and_others_do_not():
    mnist = stand_in(600)
    one, again, other = (coloured_mnist("hcmnist-cs", seed, mnist) for seed in (4, 4, 5))
    for a, b, c in zip(one, again, other, strict=True):
        for field in ("grey", "digits", "y", "colour"):
            assert np.array_equal(getattr(a, field), getattr(b, field))
            assert not np.array_equal(getattr(a, field), getattr(c, field))


def test_no_order_is_left_within_an_environment(all_digits):
    for environment in coloured_mnist("hcmnist-cs", 0, all_digits):
        easy = is_easy(environment.digits)
        half = len(easy) // 2
        assert within(easy[:half].mean(), easy.mean(), half)


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("mnist", None, "name must be one of cmnist, hcmnist, hcmnist-cs"),
        ("cmnist", 2, r"rows must lie in 3 \(one per environment\) to 300 \(all digits\)"),
        ("cmnist", 301, r"rows must lie in 3 \(one per environment\) to 300 \(all digits\)"),
    ],
)
def test_what_cannot_be_drawn_is_said(name, rows, words):
    with pytest.raises(InputError, match=words):
        coloured_mnist(name, 0, stand_in(300), rows)


def test_too_many_easy_digits_cannot_be_shared_out():
    easy = Mnist(np.zeros((300, 28, 28), np.uint8), np.zeros(300, np.uint8))
    with pytest.raises(InputError, match="300 of 300 digits are easy"):
        coloured_mnist("hcmnist-cs", 0, easy)


def test_mirrored_digits_are_flipped_and_otherwise_the_same():
    environment = coloured_mnist("cmnist", 0, stand_in())[2]
    flipped = mirror(environment)
    digits = flipped.digits
    for direction, expected, axis in (
        ("horizontal", {3, 4, 7, 9}, 2),
        ("vertical", {4, 6, 7, 9}, 1),
    ):
        own = flipped.direction == direction
        assert set(digits.digits[own]) == expected
        assert own.sum() == np.isin(environment.digits, list(expected)).sum()
        originals = environment.grey[flipped.rows[own]]
        assert np.array_equal(digits.grey[own], np.flip(originals, axis))
    kept = environment.take(flipped.rows)
    for field in ("name", "digits", "y", "colour"):
        assert np.array_equal(getattr(digits, field), getattr(kept, field))


def test_horizontally_means_left_to_right():
    seven = np.zeros((1, 28, 28), np.uint8)
    seven[0, 5, 20:] = 255  # a stroke at the upper right
    one = np.ones(1, int)
    flipped = mirror(ColouredDigits(name="", grey=seven, digits=7 * one, y=one, colour=one))
    assert flipped.direction.tolist() == ["horizontal", "vertical"]
    left, low = (np.argwhere(grey) for grey in flipped.digits.grey)
    assert left[0].tolist() == [5, 0]
    assert low[0].tolist() == [22, 20]


def test_wri_data_names_the_coloured_sets_that_need_mnist():
    assert dataset_locations()["mnist"]["for"] == list(COLOURED_MNIST)
