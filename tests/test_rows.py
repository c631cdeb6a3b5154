"""Rows of a table: the order of environments, the units of columns and gaps."""

import re
from datetime import date, timedelta

import numpy as np
import pytest

from wri.diagnosis.inputs import standardised
from wri.errors import InputError
from wri.rows import Scaling, find_missing, number_environments, order_labels, refuse_missing


def ordered(labels):
    return [labels[k] for k in order_labels(labels)]


@pytest.mark.parametrize(
    "expected",
    [
        [1, 2, 10],
        [-2.5, 0.1, 3.0],
        [np.int64(2), np.int64(9), np.int64(10)],
        [np.float32(-1), 0, np.int8(3), 3.5],
        [False, True],
        ["1", "2", "10"],
        ["-10", "-9", "0.5", "1e3"],
        [1, "2", 10],
        ["007", "12", "100"],
        [2**53, 2**53 + 1, 10**400],
        ["9007199254740992", "9007199254740993"],
        ["site 2", "site 10", "site 10 b"],
        ["2019-9", "2019-10", "2020-1"],
        ["v1.9", "v1.10"],
        ["A", "B", "a"],
        ["Zürich", "Zürich 2", "Zürich 10", "Ålesund", "Örebro", "京都 9", "京都 10"],
        ["1", "2 b", "10", "nan"],
        ["1", "1_1", "10"],
        ["", "a"],
        [(1, "b"), (2, "a"), (10, "a")],
        [date(2019, 12, 31), date(2020, 1, 1)],
        [np.timedelta64(1, "D"), np.timedelta64(2, "D")],
        [timedelta(1), timedelta(2)],
    ],
)
def test_labels_are_in_their_natural_order_whatever_the_order_of_rows(expected):
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(len(expected))
        assert ordered([expected[k] for k in shuffled]) == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1.0", "01", "1"], ["01", "1", "1.0"]),
        (["site 2", "site 02"], ["site 02", "site 2"]),
        (["1", 1], [1, "1"]),
    ],
)
def test_equal_numbers_are_ordered_by_text_and_type(labels, expected):
    for given in (labels, labels[::-1]):
        assert ordered(given) == expected


@pytest.mark.parametrize("labels", [["b", 3, "a"], [(2,), "a", 1], [3, None, 2]])
def test_labels_that_cannot_be_compared_keep_their_order(labels):
    assert ordered(labels) == labels
    assert ordered(labels[::-1]) == labels[::-1]


def test_rows_are_numbered_in_the_order_of_labels():
    found = number_environments(["site 10", "site 9", "site 10", "007"], "groups", 4)
    assert found.labels.tolist() == ["007", "site 9", "site 10"]
    assert found.number.tolist() == [2, 1, 2, 0]


def test_codes_keep_their_text():
    found = number_environments(["12", "007", "12"], "groups", 3)
    assert found.labels.tolist() == ["007", "12"]


def test_scaled_columns_have_mean_zero_and_deviation_one_in_any_unit():
    x = np.random.default_rng(0).normal([0, 1e6, -1e-9], [1, 1e-3, 1e-15], (1000, 3))
    z = Scaling.of(x).apply(x)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(z.std(0), 1)
    np.testing.assert_allclose(Scaling.of(x).undo(z), x)


def test_a_row_of_weight_two_counts_twice():
    values, weights = np.array([[0.0], [3.0]]), np.array([1.0, 2.0])
    found = Scaling.of(values, weights)
    assert found.mean == pytest.approx(2)
    assert found.scale == pytest.approx(2**0.5)  # (4 + 1 + 1) / 3


def rounded_columns():
    """Columns that are constant but for rounding."""
    thirds = np.array([0.1 + 0.2, 0.3, 0.6 / 2, 1 - 0.7])
    return np.stack([thirds, -1e9 * thirds, np.zeros(4), np.full(4, 5e-324)], 1)


def test_columns_that_differ_by_rounding_only_keep_scale_one():
    x = rounded_columns()
    assert np.ptp(x[:, 0]) > 0
    found = Scaling.of(x)
    assert found.scale.tolist() == [1, 1, 1, 1]
    np.testing.assert_allclose(found.apply(x), 0, atol=1e-6)
    assert not standardised(x).any()


@pytest.mark.slow
def test_many_equal_numbers_are_constant_although_their_mean_is_rounded():
    x = np.full((1_000_000, 2), 0.1)
    assert (x.mean(0) != 0.1).all()
    assert Scaling.of(x).scale.tolist() == [1, 1]
    assert Scaling.of(x, np.ones(len(x))).scale.tolist() == [1, 1]


def test_a_list_of_numbers_has_one_unit():
    assert Scaling.of(np.array([1.0, 3.0])) == (2, 1)
    assert Scaling.of(np.array([3.0, 3.0])) == (3, 1)
    assert Scaling.of(np.array([0.0, 8.0])) == (4, 4)


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[0.0, 1.0], [2.0, NAN], [INFINITY, NAN]], (1, 1, "NaN", 3)),
        ([[0.0, -INFINITY], [NAN, 1.0]], (0, 1, "infinity", 2)),
        ([1.0, NAN, INFINITY], (1, 0, "NaN", 2)),
        ([1.0, 2.0, INFINITY], (2, 0, "infinity", 1)),
        (["a", None, "b", None], (1, 0, "NaN", 2)),
        (np.array([["a", "b"], ["c", NAN]], object), (1, 1, "NaN", 1)),
        (np.array(["2020-01-01", "NaT"], "datetime64[D]"), (1, 0, "NaN", 1)),
    ],
)
def test_the_first_gap_is_found_and_all_are_counted(values, expected):
    assert find_missing(np.asarray(values)) == expected


@pytest.mark.parametrize(
    "values", [[[1, 2]], [1.5, -2.0], [True, False], ["a", ""], np.empty((0, 3)), [2**64, "a"]]
)
def test_values_without_gaps(values):
    assert find_missing(np.asarray(values)) is None


def test_a_gap_is_refused_with_its_place_and_the_remedy():
    x = np.array([[1.0, 2.0], [3.0, INFINITY]])
    with pytest.raises(InputError, match=r"X contains infinity: row 1, column 1 \(1 cells.*fill"):
        refuse_missing(x, None)
    with pytest.raises(InputError, match="on contains infinity: row 1, column 'dose'"):
        refuse_missing(x, ["age", "dose"], "on")


@pytest.mark.parametrize(
    ("given", "labels", "number", "named"),
    [
        (["a", "a ", " a", "b"], ["a", "b"], [0, 0, 0, 1], "'a' and 'a ' and ' a'"),
        ([1, "1", 2], [1, 2], [0, 0, 1], "1 and '1'"),
        (["2", 1.0, 2, " 1"], [1.0, 2], [1, 0, 1, 0], "'2' and 2; 1.0 and ' 1'"),
    ],
)
def test_blanks_and_types_do_not_make_another_label(given, labels, number, named):
    with pytest.warns(UserWarning, match=re.escape(named)):
        found = number_environments(given, "groups", len(given))
    assert (found.labels.tolist(), found.number.tolist()) == (labels, number)


def test_different_labels_stay_apart_without_a_warning(recwarn):
    given = ["a", "A", "1", "1.0", "01", "b c", "bc"]
    assert len(number_environments(given, "groups", 7).labels) == 7
    given = [(1, "b"), (2, "a"), (1, "b")]
    assert number_environments(given, "groups", 3).number.tolist() == [0, 1, 0]
    assert number_environments(np.array(["x ", "y"]), "groups", 2).labels.tolist() == ["x", "y"]
    assert not recwarn.list
