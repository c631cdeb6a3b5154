"""The label-aware classifier, on data whose shift of the invariant feature is known exactly.

    x_inv ~ N(m_e, s_e²),  y | x_inv the same everywhere,  x_spu | y ~ N(c_e · k(y), t_e²)

so that a = log p_0(x_inv) / p_1(x_inv) is a known parabola.
"""

from itertools import combinations

import numpy as np
import pytest
import torch

from wri.densities import DENSITIES, FittedClassifier, LabelAwareClassifier
from wri.errors import InputError

MEANS, SPREADS, SPURIOUS = (0.0, 1.0, -1.0), (1.5, 1.0, 1.0), (1.5, 0.5, 1.0)
SMALL = LabelAwareClassifier(hidden=32, second_hidden=16, steps=300, refit_steps=200)
ON_X = FittedClassifier(32, 16, steps=300)


def two_classes(x, random):
    y = (random.random(len(x)) < 1 / (1 + np.exp(-1.5 * (x - 0.5)))).astype(int)
    return y, 2 * y - 1


def three_classes(x, random):
    y = np.digitize(x + random.normal(size=len(x)), (0.0, 1.0))
    return y, y - 1


def numbers(x, random):
    y = (x - 0.5 + random.normal(size=len(x))) / 1.5
    return y, y


def sample(target=two_classes, environments=2, spurious_spreads=(1.0, 1.0, 1.0), rows=6000):
    random = np.random.default_rng(0)
    found = []
    for e in range(environments):
        x = random.normal(MEANS[e], SPREADS[e], rows)
        y, sign = target(x, random)
        spurious = random.normal(SPURIOUS[e] * sign, spurious_spreads[e])
        found.append((np.stack([x, spurious], axis=1), y))
    return zip(*found, strict=True)


def log_normal(x, e):
    return -0.5 * ((x - MEANS[e]) / SPREADS[e]) ** 2 - np.log(SPREADS[e])


def true_log_odds(x, i=0, j=1):
    return log_normal(x[:, 0], i) - log_normal(x[:, 0], j)


def log_odds(density, flat, x, environments=2, i=0, j=1):
    logs = density.log_density(torch.tensor(flat)[None], torch.tensor(x)[None], environments, {})
    return (logs[0, i] - logs[0, j]).numpy()


def change_by_spurious(density, flat, x):
    """How far the log-odds move, in the square mean, when the spurious feature is reversed."""
    difference = log_odds(density, flat, x) - log_odds(density, flat, x * [1, -1])
    return np.sqrt(np.mean(difference**2))


@pytest.mark.parametrize(
    ("target", "share"), [(two_classes, 0.5), (three_classes, 0.5), (numbers, 0.7)]
)
@pytest.mark.slow
def test_log_odds_follow_the_invariant_shift_more_than_those_of_a_classifier_on_x(target, share):
    """Within the bins of a number the spurious feature still tells of the target."""
    x, y = sample(target)
    rows = np.concatenate(x)
    aware, plain = SMALL.fit_with_targets(x, y), ON_X.fit(x)
    learned, true = log_odds(SMALL, aware, rows), true_log_odds(rows)
    correlation = np.corrcoef(learned, true)[0, 1]
    assert correlation > 0.9
    assert correlation > np.corrcoef(log_odds(ON_X, plain, rows), true)[0, 1]
    changes = [change_by_spurious(*each, rows) for each in ((SMALL, aware), (ON_X, plain))]
    assert changes[0] < share * changes[1]


@pytest.mark.slow
def test_log_odds_of_several_environments_follow_every_pair():
    x, y = sample(environments=3)
    rows = np.concatenate(x)
    flat = SMALL.fit_with_targets(x, y)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        learned = log_odds(SMALL, flat, rows, 3, i, j)
        assert np.corrcoef(learned, true_log_odds(rows, i, j))[0, 1] > 0.9


FOUR_MEANS, FOUR_PLACES = (-0.3, -0.1, 0.1, 0.3), (0.6, 0.8, 1.0, 1.2)


def one_hill(random, e, rows):
    """Log-odds that are linear in x_inv."""
    x = random.normal(FOUR_MEANS[e], 1, rows)
    return x, lambda x, e: -0.5 * (x - FOUR_MEANS[e]) ** 2


def two_hills(random, e, rows):
    """Log-odds that are not linear: the environments lie at ±m_e."""
    x = random.normal(FOUR_PLACES[e] * random.choice([-1, 1], rows), 0.5)
    return x, lambda x, e: np.logaddexp(*(-2 * (x - s * FOUR_PLACES[e]) ** 2 for s in (-1, 1)))


def overlaps(logs):  # [E, n] -> [pairs, n]
    return np.stack([1 / (1 + np.exp(logs[i] - logs[j])) for i, j in combinations(range(4), 2)])


@pytest.mark.parametrize("hills", [one_hill, two_hills])
@pytest.mark.slow
def test_overlap_weights_of_four_environments_are_those_of_the_invariant_feature(hills):
    """The spurious shift is larger, and the refit on A must not bring it back."""
    random = np.random.default_rng(0)
    x, y = [], []
    for e, strength in enumerate((2.0, 1.5, 0.5, 0.0)):
        invariant, log_density = hills(random, e, 3000)
        label = (random.random(3000) < 1 / (1 + np.exp(-1.5 * invariant))).astype(int)
        x.append(np.stack([invariant, random.normal(strength * (2 * label - 1))], axis=1))
        y.append(label)
    rows = np.concatenate(x)
    flat = torch.tensor(SMALL.fit_with_targets(x, y))
    learned = SMALL.log_density(flat[None], torch.tensor(rows)[None], 4, {})[0].numpy()
    true = np.stack([log_density(rows[:, 0], e) for e in range(4)])
    assert np.abs(overlaps(learned) - overlaps(true)).mean() < 0.08
    np.testing.assert_allclose(np.exp(learned).mean(1), 0.25, atol=1e-3)


@pytest.mark.slow
def test_what_is_not_odd_in_the_label_stays_in_the_weights():
    """Spurious spreads that differ: the mean of b over y is a parabola in x_spu."""
    spreads = (1.5, 0.75)
    x, y = sample(spurious_spreads=spreads)
    rows = np.concatenate(x)
    learned = log_odds(SMALL, SMALL.fit_with_targets(x, y), rows)

    def given_class(e, sign):
        return -0.5 * ((rows[:, 1] - sign * SPURIOUS[e]) / spreads[e]) ** 2

    remains = np.mean([given_class(0, sign) - given_class(1, sign) for sign in (-1, 1)], axis=0)
    a = true_log_odds(rows)
    assert np.corrcoef(learned, a + remains)[0, 1] > np.corrcoef(learned, a)[0, 1]


@pytest.mark.slow
def test_without_a_shift_of_the_invariant_feature_the_weights_are_uniform():
    random = np.random.default_rng(1)
    x, y = [], []
    for c in (1.5, 0.5):
        invariant = random.normal(size=6000)
        label, sign = two_classes(invariant, random)
        x.append(np.stack([invariant, random.normal(c * sign)], axis=1))
        y.append(label)
    learned = log_odds(SMALL, SMALL.fit_with_targets(x, y), np.concatenate(x))
    on_x = log_odds(ON_X, ON_X.fit(x), np.concatenate(x))
    assert np.std(learned) < 0.5 * np.std(on_x)


@pytest.mark.slow
def test_classes_that_an_environment_lacks_do_not_count():
    x, y = sample(three_classes, rows=1500)
    first = [x[0][y[0] < 2], x[1]]
    flat = SMALL.fit_with_targets(first, [y[0][y[0] < 2], y[1]])
    rows = np.concatenate(first)
    assert (
        np.abs(log_odds(SMALL, flat, rows)).max() < 15
    )  # the missing class alone tells them apart


def test_without_a_common_class_the_weights_are_those_of_x_alone():
    x, _ = sample(rows=1500)
    short = LabelAwareClassifier(hidden=32, second_hidden=16, steps=20, refit_steps=10)
    own, none = [np.zeros(1500, int), np.ones(1500, int)], [np.zeros(1500, int)] * 2
    with pytest.warns(UserWarning, match="no class occurs in every environment"):
        found = short.fit_with_targets(x, own)
    assert np.array_equal(found, short.fit_with_targets(x, none))


LOGISTIC = {"hidden": 0, "second_hidden": 0, "learning_rate": 0.03, "steps": 200}


@pytest.mark.slow
def test_squares_see_a_shift_of_the_spread_that_a_plain_logistic_regression_does_not():
    """Equal means: log-odds linear in x hold nothing of a, however they are refitted."""
    random = np.random.default_rng(2)
    x, y = [], []
    for spread, c in ((2.0, 1.5), (1.0, 0.5)):
        invariant = random.normal(0.0, spread, 6000)
        label, sign = two_classes(invariant, random)
        x.append(np.stack([invariant, random.normal(c * sign)], axis=1))
        y.append(label)
    rows, found = np.concatenate(x), {}
    for terms in ("plain", "squares", "products"):
        density = LabelAwareClassifier(**LOGISTIC, terms=terms, refit_steps=300)
        flat = density.fit_with_targets(x, y)
        assert flat.shape == density.initial([0], 2, 2)[0].shape
        found[terms] = np.corrcoef(log_odds(density, flat, rows), rows[:, 0] ** 2)[0, 1]
    assert min(found["squares"], found["products"]) > 0.9
    assert found["plain"] < min(found["squares"], found["products"])
    with pytest.raises(InputError, match="terms must be"):
        LabelAwareClassifier(terms="cubes")


def test_a_fit_is_the_same_every_time_and_can_be_written_down():
    x, y = sample(rows=300)
    short = LabelAwareClassifier(hidden=5, second_hidden=4, steps=5, refit_steps=5)
    assert np.array_equal(short.fit_with_targets(x, y), short.fit_with_targets(x, y))
    assert short.fit_with_targets(x, y).shape == short.initial([0], 2, 2)[0].shape
    assert DENSITIES["LabelAwareClassifier"] is LabelAwareClassifier
    with pytest.raises(TypeError, match="not fitted on whole environments"):
        short.fit(x)


@pytest.mark.slow
def test_the_other_part_depends_on_the_label_alone():
    """b = log p_0(x_spu | y) / p_1(x_spu | y), centred over y: odd in y for two classes."""
    environments, targets = sample()
    part = SMALL.fit_label_part(environments, targets)
    x, y = environments[0], targets[0]
    found = 2 * part(x, y)[:, 0]  # deviations from the mean of two: half the difference
    sign = 2 * y - 1

    def log_given(e, sign):
        return -0.5 * (x[:, 1] - SPURIOUS[e] * sign) ** 2

    difference = [log_given(0, s) - log_given(1, s) for s in (sign, -sign)]
    exact = (difference[0] - difference[1]) / 2
    assert np.corrcoef(found, exact)[0, 1] > 0.95
    np.testing.assert_allclose(part(x, y), -part(x, 1 - y), atol=1e-5)
    numbered = SMALL.fit_label_part(*sample(numbers))
    assert numbered(x, x[:, 0]).shape == (len(x), 1)
