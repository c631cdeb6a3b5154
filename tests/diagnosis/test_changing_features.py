"""Causes keep their slopes between environments, markers do not: where slopes are known."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from wri.diagnosis import changing_features
from wri.diagnosis.environment_slopes import PULL, Slopes, holm, spread
from wri.errors import InputError

STRENGTHS = (0.3, 0.8, 1.3, 1.8)


def rows(strengths, n, seed=0, numbers=False, noise=1):
    """c ~ N(mean_e, 1), y of log-odds 2c or y ~ N(2c, 1), m = strength_e y + N(0, 1), noise."""
    random, number = np.random.default_rng(seed), np.repeat(np.arange(len(strengths)), n)
    cause = random.normal(size=len(number)) + np.linspace(-1, 1, len(strengths))[number]
    if numbers:
        y = 2 * cause + random.normal(size=len(number))
    else:
        y = 2.0 * (random.random(len(number)) < expit(2 * cause)) - 1
    marker = np.array(strengths)[number] * y + random.normal(size=len(number))
    table = {"cause": cause, "marker": marker}
    table |= {f"noise {k}": random.normal(size=len(number)) for k in range(noise)}
    return pd.DataFrame(table), y, number


def in_own_units(found, X):
    return (values[0] / X.std(ddof=0).to_numpy() for values in (found.slopes, found.errors))


def test_slopes_of_classes_are_two_and_twice_the_strength():
    X, y, groups = rows(STRENGTHS, 2_000)
    found = changing_features(X, y, groups)
    slopes, errors = in_own_units(found, X)
    exact = np.column_stack([np.full(4, 2.0), 2 * np.array(STRENGTHS), np.zeros(4)])
    assert np.abs((slopes - exact) / errors).max() < 3.5
    assert errors.max() < 0.3
    assert found.flagged == ("marker",)
    assert found.ranking().feature[0] == "marker"
    assert "marker relates to y in other ways" in found.meaning
    assert found.unit == "log-odds per SD"


def test_the_spread_is_that_of_the_strengths():
    """Somewhat less: weak slopes are the precise ones and weigh more."""
    X, y, groups = rows(STRENGTHS, 2_000)
    found = changing_features(X, y, groups)
    exact = np.std(2 * np.array(STRENGTHS), ddof=1) * X.marker.std(ddof=0)
    assert 0.65 < found.change[1] / exact < 1.1
    assert found.change[[0, 2]].max() < 0.1 * found.change[1]


def test_slopes_of_numbers_are_those_in_the_exponent():
    """y (2c + s m) / 1 is in log p; least squares would give 2 / (1 + s²) to the cause."""
    X, y, groups = rows(STRENGTHS, 2_000, numbers=True)
    found = changing_features(X, y, groups)
    assert found.unit == "SD of y per SD"
    slopes, errors = in_own_units(found, X)
    mean = np.mean([1 / (1 + s**2) for s in STRENGTHS]) / y.std()  # s² by which all are multiplied
    exact = np.column_stack([np.full(4, 2.0), STRENGTHS, np.zeros(4)])
    assert np.abs((slopes - mean * exact) / errors).max() < 3.5
    assert errors.max() < 0.03
    assert found.flagged == ("marker",)


@pytest.mark.parametrize("numbers", [False, True])
def test_chance_flags_at_about_its_rate(numbers):
    """Of 60 tables in which nothing changes 5 % have a flag: 8 or more by chance in 1 of 100."""
    tables = [rows([1.0] * 4, 150, seed, numbers, noise=3) for seed in range(60)]
    found = [changing_features(*table) for table in tables]
    assert sum(len(one.flagged) > 0 for one in found) < 8
    mean = np.mean([one.q[0] for one in found], 0)  # 3 for χ² of three
    assert (mean > 1.8).all()
    assert (mean < 3.6).all()
    assert "No column" in next(one for one in found if not one.flagged).meaning


def test_heavy_tails_of_the_noise_are_no_change():
    """t₄ noise in 20 environments: without a change 5 % of the tables have a flag."""
    flagged = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = random.normal(size=(2000, 4))
        y = x @ np.array([1.0, 0.5, 0.0, 0.0]) + random.standard_t(4, 2000)
        flagged += len(changing_features(x, y, np.arange(2000) % 20).flagged) > 0
    assert flagged < 8


def test_several_classes_are_compared_with_the_most_frequent():
    """log p(k) / p(a) is linear in causes and markers of a softmax."""
    random, number = np.random.default_rng(0), np.repeat(np.arange(3), 1_500)
    cause = random.normal(size=len(number)) + 0.5 * number
    chances = np.outer(cause, [0, 1, -1]) + np.array([1.0, 0, 0])
    label = np.argmax(chances + random.gumbel(size=chances.shape), 1)
    marker = (label == 2) * np.array([0.5, 1.5, 2.5])[number] + random.normal(size=len(number))
    X = pd.DataFrame({"cause": cause, "marker": marker})
    found = changing_features(X, np.array(["a", "b", "c"])[label], number)
    assert found.contrasts == ("b against a", "c against a")
    assert found.flagged == ("marker",)
    assert found.ranking().contrast[0] == "c against a"
    scale = X.std(ddof=0).to_numpy()
    exact = np.array([[[1, 0]] * 3, [[-1, 0.5], [-1, 1.5], [-1, 2.5]]])
    assert np.abs((found.slopes - exact * scale) / found.errors).max() < 3.5


@pytest.mark.parametrize("numbers", [False, True])
def test_order_names_and_units_do_not_count(numbers):
    X, y, groups = rows(STRENGTHS, 100, numbers=numbers)
    here = changing_features(X, y, groups)
    order = np.random.default_rng(1).permutation(len(y))
    names = np.array(["d", "c", "b", "a"])[groups]
    other = X.assign(marker=1e6 - 1e4 * X.marker)
    there = changing_features(other.iloc[order], y[order], names[order])
    np.testing.assert_allclose(there.slopes[:, ::-1] * [1, -1, 1], here.slopes, atol=1e-6)
    np.testing.assert_allclose(there.errors[:, ::-1], here.errors, rtol=1e-5)
    np.testing.assert_allclose(there.p, here.p, rtol=1e-4)
    if numbers:
        shifted = changing_features(X, 1e3 * y - 5, groups)
        np.testing.assert_allclose(shifted.slopes, here.slopes, atol=1e-9)


@pytest.mark.parametrize("numbers", [False, True])
def test_an_environment_with_one_value_of_y_is_left_out_and_named(numbers):
    X, y, groups = rows(STRENGTHS, 200, numbers=numbers)
    kept = groups != 3
    names = np.array(["A", "B", "C", "St. Mary"])[groups]
    found = changing_features(X, np.where(kept, y, 1), names)
    assert found.left_out == ("St. Mary",)
    assert list(found.environments) == ["A", "B", "C"]
    assert "St. Mary" in found.meaning
    assert np.isfinite(found.slopes).all()
    with pytest.raises(InputError, match="within one environment only"):
        changing_features(X, np.where(groups == 0, y, 1), names, classes=not numbers)


def test_an_environment_may_lack_one_of_several_classes():
    X, _, groups = rows(STRENGTHS, 200)
    label = np.random.default_rng(0).integers(3, size=len(X))
    label[(groups == 0) & (label == 2)] = 0
    found = changing_features(X, label, groups)
    lacks = np.isnan(found.slopes).all(2)  # [C, E]
    assert lacks.sum() == (2 if found.contrasts[0].endswith("against 2") else 1)
    assert np.isfinite(found.p).all()
    found.plot()


@pytest.mark.parametrize("numbers", [False, True])
def test_a_constant_column_has_no_slope_and_no_flag(numbers):
    X, y, groups = rows(STRENGTHS, 200, numbers=numbers)
    found = changing_features(X.assign(constant=0.1), y, groups)
    assert (found.slopes[..., -1] == 0).all()
    assert found.p[-1] == 1
    assert found.change[-1] == 0
    assert found.flagged == ("marker",)


@pytest.mark.parametrize("numbers", [False, True])
def test_what_is_constant_in_one_environment_is_unknown_there(numbers):
    """Its slope there is that of the others and its error the pull's, not zero."""
    X, y, groups = rows((1.0, 1.0, 1.0), 300, numbers=numbers)
    X.loc[groups == 0, "noise 0"] = 0
    found = changing_features(X, y, groups)
    inside = found.errors[0, :, -1]
    assert inside[0] > 5 * inside[1:].max()
    if not numbers:
        assert inside[0] == pytest.approx(PULL**-0.5)
    assert "noise 0" not in found.flagged


def test_separable_and_tiny_environments_are_finite_and_not_flagged():
    random, groups = np.random.default_rng(0), np.repeat([0, 1, 2], [100, 100, 4])
    x = random.normal(size=(204, 5))
    x[-4:, 0] = [-2, -1, 1, 2]
    y = x[:, 0] > 0  # separable everywhere
    found = changing_features(x, y, groups)
    assert np.isfinite(found.slopes).all()
    assert found.flagged == ()
    found = changing_features(x, x[:, 0], groups)  # numbers without noise
    assert np.isfinite(found.slopes).all()
    assert found.flagged == ()


def test_spread_by_hand():
    """Slopes 0 and 2 of variance 1: Q = 2, C = 2 − 1, τ² = (2 − 1) / 1."""
    slopes = np.array([[0.0], [2.0], [np.nan]])
    found = spread(Slopes(slopes, np.where(np.isnan(slopes), np.nan, 1.0)))
    assert found.average == pytest.approx(1)
    assert found.q == pytest.approx(2)
    assert found.tau == pytest.approx(1)
    assert found.p == pytest.approx(0.157299, rel=1e-5)  # P(χ²₁ > 2)


def test_holm_by_hand():
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.5, 0.02])), [0.06, 0.04, 0.5, 0.06])
    np.testing.assert_allclose(holm(np.array([0.9, 0.8])), 1)


def test_where_every_column_changes_the_remedy_is_another():
    X, y, groups = rows(STRENGTHS, 500)
    found = changing_features(
        pd.DataFrame({"a": X.marker, "b": X.cause * (groups - 1.5)}), y, groups
    )
    assert set(found.flagged) == {"a", "b"}
    assert "every column" in found.meaning


@pytest.mark.parametrize("environments", [4, 9])
def test_the_plot_shows_the_most_changing_on_top(environments):
    X, y, groups = rows(np.linspace(0, 2, environments), 200, noise=24)
    axes = changing_features(X, y, groups).plot().axes[0]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[0] == "★ marker"
    assert len(labels) == 20
    assert axes.yaxis_inverted()
    assert "6 columns that change less" in axes.get_title(loc="left")


def test_whether_y_holds_classes():
    X, y, groups = rows(STRENGTHS, 50)
    assert changing_features(X, y, groups).unit == "log-odds per SD"  # two values, floating
    assert changing_features(X, y > 0, groups).contrasts == ("True against False",)
    assert changing_features(X, y.astype(int), groups, classes=False).unit == "SD of y per SD"
    ages = np.arange(len(y)) % 60
    with pytest.raises(InputError, match="60 different whole numbers; say classes=False"):
        changing_features(X, ages, groups)
    assert changing_features(X, ages, groups, classes=False).unit == "SD of y per SD"


def test_bad_input_is_named():
    X, y, groups = rows(STRENGTHS, 10)
    with pytest.raises(InputError, match="column 'marker'"):
        changing_features(X.assign(marker=np.nan), y, groups)
    with pytest.raises(InputError, match="y must hold one value a row"):
        changing_features(X, y[:-1], groups)
    with pytest.raises(InputError, match="no finite value in row 3"):
        changing_features(X, np.where(np.arange(40) == 3, np.nan, y), groups)
    with pytest.raises(InputError, match="in every row"):
        changing_features(X, np.ones(40), groups)
    with pytest.raises(InputError, match="must hold numbers"):
        changing_features(X, np.where(y > 0, "ill", "well"), groups, classes=False)
    with pytest.raises(InputError, match="one environment"):
        changing_features(X, y, np.zeros(40))
