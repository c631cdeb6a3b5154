"""Causes keep their slopes between environments, markers do not: where slopes are known."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy.special import expit

from wri.diagnosis import changing_features
from wri.diagnosis.changing_features import flagged_columns
from wri.diagnosis.environment_slopes import (
    EXTREME,
    FALL,
    leverage_weights,
    weighted_spread,
    westfall_young,
)
from wri.diagnosis.site_fits import PULL
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
    assert "the relation of marker to the target differs" in found.meaning
    assert found.unit == "log-odds per SD"


def test_the_spread_is_that_of_the_strengths():
    """Somewhat less: weak slopes are the precise ones and weigh more."""
    X, y, groups = rows(STRENGTHS, 2_000)
    found = changing_features(X, y, groups)
    exact = np.std(2 * np.array(STRENGTHS), ddof=1) * X.marker.std(ddof=0)
    assert 0.65 < found.change[1] / exact < 1.1
    assert found.change[[0, 2]].max() < 0.1 * found.change[1]


def test_slopes_of_numbers_are_those_of_least_squares():
    """A marker of strength s takes weight off the cause: 2 / (1 + s²) and s / (1 + s²) are left."""
    X, y, groups = rows(STRENGTHS, 2_000, numbers=True)
    found = changing_features(X, y, groups)
    assert found.unit == "SD of the target per SD"
    slopes, errors = in_own_units(found, X)
    exact = np.array([[2 / (1 + s**2), s / (1 + s**2), 0] for s in STRENGTHS]) / y.std()
    assert np.abs((slopes - exact) / errors).max() < 3.5
    assert errors.max() < 0.03
    assert found.q[0, 0] > 100  # the slope of the cause changes with the marker's
    assert found.flagged == ("marker",)


@pytest.mark.slow
def test_for_numbers_the_marker_is_flagged_and_not_the_cause():
    """Slopes of the cause change, and its slope over the residual variance does not."""
    tables = [rows(STRENGTHS, 300, seed, numbers=True) for seed in range(20)]
    flagged = [changing_features(*table, draws=199).flagged for table in tables]
    assert sum("marker" in own for own in flagged) > 12
    assert sum(set(own) - {"marker"} != set() for own in flagged) < 5  # by chance in 1 of 100


@pytest.mark.slow
def test_for_numbers_unequal_noise_flags_no_cause():
    """Slopes over the residual variance change by a factor of 16, and slopes do not."""
    flagged = 0
    for seed in range(20):
        random, groups = np.random.default_rng(seed), np.repeat(np.arange(4), 300)
        x = random.normal(size=(1200, 3))
        noise = np.array([0.5, 0.8, 1.25, 2.0])[groups] * random.normal(size=1200)
        flagged += len(changing_features(x, x @ [2, 1, 0] + noise, groups, draws=199).flagged) > 0
    assert flagged < 5  # by chance in 1 of 100


def test_unequal_noise_is_no_unequal_slope():
    """Noise of 0.3 and 3 around one line, and errors of the slopes in proportion."""
    random, groups = np.random.default_rng(0), np.repeat([0, 1], 1_000)
    x = random.normal(size=(2_000, 2))
    y = x @ [1.0, 0.5] + np.array([0.3, 3.0])[groups] * random.normal(size=2_000)
    found = changing_features(x, y, groups)
    assert found.flagged == ()
    np.testing.assert_allclose(found.errors[0, 1] / found.errors[0, 0], 10, rtol=0.15)


@pytest.mark.slow
def test_errors_of_slopes_are_their_spread_under_unequal_noise():
    """Noise |x|: classical errors of the slope would be √3 times too small."""
    slopes, errors = [], []
    for seed in range(150):
        random = np.random.default_rng(seed)
        x = random.normal(size=(200, 1))
        y = x[:, 0] + np.abs(x[:, 0]) * random.normal(size=200)
        found = changing_features(x, y, np.arange(200) % 2, draws=19)
        slopes.append(found.slopes[0, :, 0] * y.std() / x.std())
        errors.append(found.errors[0, :, 0] * y.std() / x.std())
    assert np.std(slopes) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=0.12)
    assert np.mean(errors) > 1.3 * 1 / 10  # of 100 rows with unit noise


def dependent(seed, change=0.0, weeks=30):
    """Weeks of eight rows, in which column and noise are alike; two environments."""
    random = np.random.default_rng(seed)
    week = np.repeat(np.arange(2 * weeks), 8)
    x, noise = random.normal(size=(2, 2 * weeks))[:, week] * 0.9 + 0.4 * random.normal(
        size=(2, len(week))
    )
    groups = week // weeks
    return x[:, None], x * (1 + change * groups) + noise, groups, week


@pytest.mark.slow
def test_blocks_keep_the_level_where_rows_depend_on_one_another():
    """Of 80 tables 5 % have a flag, and most without blocks."""
    tables = [dependent(seed) for seed in range(80)]
    flags = [changing_features(*own[:3], blocks=own[3], draws=199).flagged for own in tables]
    assert sum(map(bool, flags)) < 11  # by chance in 1 of 1000
    naive = [changing_features(*own[:3], draws=199).flagged for own in tables]
    assert sum(map(bool, naive)) > 10
    x, y, groups, week = dependent(0, change=1.5)
    assert changing_features(x, y, groups, blocks=week).flagged


def test_repeated_rows_with_blocks_are_no_new_evidence():
    """Weights by repetition: slopes of the repeated table, P-values of the rows."""
    X, y, groups = rows(STRENGTHS, 60)
    once = changing_features(X, y, groups, blocks=np.arange(len(y)))
    three = np.repeat(np.arange(len(y)), 3)
    thrice = changing_features(X.iloc[three], y[three], groups[three], blocks=three)
    np.testing.assert_allclose(thrice.p, once.p, atol=0.15)  # other coins, a third of the pull
    assert np.median(thrice.errors / once.errors) == pytest.approx(1, abs=0.2)
    copies = changing_features(X.iloc[three], y[three], groups[three])
    assert np.median(copies.errors / once.errors) < 0.8


def test_environments_with_few_blocks_are_left_out_and_named():
    X, y, groups = rows(STRENGTHS, 60)
    week = np.where(groups == 3, 0, np.arange(len(y)) // 5)
    found = changing_features(X, y, groups, blocks=week)
    assert found.left_out == (3,)
    assert "Not tested: 3, because the target has only one value there or" in found.meaning


def test_advice_comes_with_the_loss_at_environments_left_out():
    """A marker that turns around between sites: leaving it out pays, a changing cause not."""
    X, y, groups = rows((2.0, -2.0, 2.0, -2.0, 2.0, -2.0), 300)
    found = changing_features(X, y, groups)
    assert found.flagged == ("marker",)
    assert found.without.pays
    assert "Leave it out: without it, the loss at sites left out falls" in found.meaning
    assert "logistic regression" in found.meaning
    random = np.random.default_rng(0)
    cause = random.normal(size=(1800, 2))
    y = cause @ [0.0, 0.3] + (2 + 0.5 * groups) * cause[:, 0] + random.normal(size=1800)
    found = changing_features(cause, y, groups)
    assert "column 0" in found.flagged
    assert found.without.costs
    assert "Keep it: without it, the loss at sites left out rises" in found.meaning
    assert "ridge regression" in found.meaning


def test_what_is_shown_is_the_sentence():
    X, y, groups = rows(STRENGTHS, 60)
    found = changing_features(X, y, groups)
    assert repr(found) == found.meaning


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.slow
def test_chance_flags_at_about_its_rate(numbers):
    """Of 60 tables in which nothing changes 5 % have a flag: 8 or more by chance in 1 of 100."""
    tables = [rows([1.0] * 4, 150, seed, numbers, noise=3) for seed in range(60)]
    found = [changing_features(*table, draws=199) for table in tables]
    assert sum(len(one.flagged) > 0 for one in found) < 8
    mean = np.mean([one.q[0] for one in found], 0)  # somewhat above the 3 of χ²: v is an estimate
    assert (mean > 1.8).all()
    assert (mean < 4.2).all()
    assert "No column" in next(one for one in found if not one.flagged).meaning


@pytest.mark.slow
def test_heavy_tails_of_the_noise_are_no_change():
    """t₄ noise in 20 environments: without a change 5 % of the tables have a flag."""
    flagged = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        x = random.normal(size=(2000, 4))
        y = x @ np.array([1.0, 0.5, 0.0, 0.0]) + random.standard_t(4, 2000)
        found = changing_features(x, y, np.arange(2000) % 20, draws=199)
        flagged += len(found.flagged) > 0
    assert flagged < 8  # by chance in 1 of 1000


@pytest.mark.slow
def test_a_column_of_zeros_and_few_large_values_is_no_change():
    """Rain on 4 % of days, of skew 30, that counts by its occurrence: random splits of one site."""
    flagged = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        wet = random.random(8000) < 0.04
        rain = wet * np.exp(1.5 * random.normal(size=8000))
        y = random.random(8000) < expit(1.5 * wet)
        found = changing_features(rain[:, None], y, np.arange(8000) % 4, draws=99)
        flagged += len(found.flagged) > 0
    assert flagged < 6  # by chance in 1 of 300


def test_rows_far_out_in_a_column_count_less():
    """Median 0, median distance of the others 1: a distance of 12 counts as EXTREME does."""
    z = np.array([0.0, 0, 0, 0, 0, 1, -1, 1, 2 * EXTREME])[:, None]
    np.testing.assert_allclose(leverage_weights(z)[:-1], 1)
    assert leverage_weights(z)[-1] == pytest.approx(0.5**FALL)
    codes = (np.arange(100) == 7).astype(float)[:, None]  # a rare category is not extreme
    np.testing.assert_array_equal(leverage_weights(codes), 1)


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
    np.testing.assert_allclose(there.p, here.p, atol=0.002)  # the same coins
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
    with pytest.raises(InputError, match="at least two environments need different values of y"):
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
    assert "marker" in found.flagged


@pytest.mark.parametrize("numbers", [False, True])
def test_what_is_constant_in_one_environment_is_unknown_there(numbers):
    """Its slope there is that of the others and its error the pull's, not zero."""
    X, y, groups = rows((1.0, 1.0, 1.0), 300, numbers=numbers)
    X.loc[groups == 0, "noise 0"] = 0
    found = changing_features(X, y, groups)
    inside = found.errors[0, :, -1]
    assert inside[0] > 5 * inside[1:].max()
    if not numbers:
        assert inside[0] == pytest.approx(PULL**-0.5, rel=1e-2)
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
    average, tau, q = weighted_spread(np.array([[0.0], [2.0]]), np.ones((2, 1)))
    assert (average, tau, q) == (pytest.approx(1), pytest.approx(1), pytest.approx(2))


@pytest.mark.parametrize("numbers", [False, True])
def test_flagged_columns_do_not_depend_on_any_order(numbers):
    X, y, groups = rows(STRENGTHS, 400, numbers=numbers, noise=3)
    x, random = X.to_numpy(), np.random.default_rng(1)
    here = flagged_columns(x, y, groups, not numbers)
    assert here.tolist() == [
        list(X).index(name) for name in changing_features(X, y, groups).flagged
    ]
    order, columns = random.permutation(len(y)), random.permutation(5)
    other = np.array([7, 0, 3, 1])[groups]
    there = flagged_columns(x[order][:, columns], y[order], other[order], not numbers)
    assert sorted(columns[there]) == here.tolist() == [1]
    assert not len(flagged_columns(x, y, np.zeros(len(y), int), not numbers))


@pytest.mark.parametrize("numbers", [False, True])
def test_rows_left_out_by_rank_one_are_cells_of_one_row(numbers):
    """Blocks of one row each go the way of blocks: inverses of matrices without the cell."""
    X, y, groups = rows(STRENGTHS, 40, numbers=numbers)
    here = changing_features(X, y, groups)
    there = changing_features(X, y, groups, blocks=np.arange(len(y)))
    for name in ("slopes", "errors", "q"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-8)
    np.testing.assert_allclose(there.p, here.p, atol=0.06)  # other coins


def test_westfall_and_youngs_p_values_by_hand():
    """The largest of three, then of the other two, with four draws."""
    drawn = np.array([[1.0, 9.0, 1.0], [1, 1, 6], [1, 1, 1], [8, 1, 1]])
    np.testing.assert_allclose(
        westfall_young(np.array([7.0, 2.0, 5.0]), drawn), [3 / 5, 3 / 5, 3 / 5]
    )
    np.testing.assert_allclose(
        westfall_young(np.array([10.0, 2.0, 3.0]), drawn), [1 / 5, 3 / 5, 3 / 5]
    )


def test_where_every_column_changes_the_remedy_is_another():
    X, y, groups = rows(STRENGTHS, 500)
    found = changing_features(
        pd.DataFrame({"a": X.marker, "b": X.cause * (groups - 1.5)}), y, groups
    )
    assert set(found.flagged) == {"a", "b"}
    assert "every column" in found.meaning


@pytest.mark.parametrize("environments", [4, 9, 60])
def test_the_plot_shows_the_most_changing_on_top(environments):
    X, y, groups = rows(np.linspace(0, 2, environments), 1800 // environments, noise=24)
    found = changing_features(X, y, groups, draws=99)
    drawn = found.plot()
    axes = drawn.axes[0]
    assert drawn.get_size_inches()[1] <= 9
    given = Figure().subplots()
    assert found.plot(ax=given) is given.figure
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[0] == ("★ marker" if "marker" in found.flagged else "marker")
    assert len(labels) == 20
    assert axes.yaxis_inverted()
    assert "6 columns that change less" in axes.get_title(loc="left")


def test_whether_y_holds_classes():
    X, y, groups = rows(STRENGTHS, 50)
    assert changing_features(X, y, groups).unit == "log-odds per SD"  # two values, floating
    assert changing_features(X, y > 0, groups).contrasts == ("True against False",)
    assert (
        changing_features(X, y.astype(int), groups, classes=False).unit == "SD of the target per SD"
    )
    ages = np.arange(len(y)) % 60
    with pytest.raises(InputError, match="60 different whole numbers; give classes=False"):
        changing_features(X, ages, groups)
    assert changing_features(X, ages, groups, classes=False).unit == "SD of the target per SD"


def test_bad_input_is_named():
    X, y, groups = rows(STRENGTHS, 10)
    with pytest.raises(InputError, match="column 'marker'"):
        changing_features(X.assign(marker=np.nan), y, groups)
    with pytest.raises(InputError, match="y must hold one value per row"):
        changing_features(X, y[:-1], groups)
    with pytest.raises(InputError, match="no finite value in row 3"):
        changing_features(X, np.where(np.arange(40) == 3, np.nan, y), groups)
    with pytest.raises(InputError, match="in every row"):
        changing_features(X, np.ones(40), groups)
    with pytest.raises(InputError, match="must hold numbers"):
        changing_features(X, np.where(y > 0, "ill", "well"), groups, classes=False)
    with pytest.raises(InputError, match="one environment"):
        changing_features(X, y, np.zeros(40))


@pytest.mark.slow
def test_few_rows_per_column_do_not_flag_more_than_promised():
    """75 rows of 13 columns, some rare categories, that nearly separate the classes: 5 % flags."""
    flagged = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        x = random.normal(size=(300, 13))
        x[:, 5:] = x[:, 5:] > np.linspace(-1, 1.3, 8)
        y = random.random(300) < expit(1.5 * x[:, 0] - x[:, 1] + 2 * x[:, 5] - 2 * x[:, 6])
        found = changing_features(x, y, np.arange(300) % 4, draws=199)
        flagged += len(found.flagged) > 0
    assert flagged < 13  # by chance in 1 of 1000


def test_only_a_clear_distance_between_slopes_spreads_them():
    """Q = 2 of slopes 0 and 2: as much as by chance leaves no spread, half of it some."""
    slopes, ones = np.array([[0.0], [2.0]]), np.ones((2, 1))
    assert weighted_spread(slopes, ones, by_chance=2.0)[1] == 0
    assert weighted_spread(slopes, ones, by_chance=1.0)[1] == pytest.approx(1)
    assert weighted_spread(slopes, ones, by_chance=0.0)[1] == pytest.approx(np.sqrt(2))
