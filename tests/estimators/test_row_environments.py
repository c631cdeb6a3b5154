"""Labels of environments in, numbers out."""

import numpy as np
import pandas as pd
import pytest

from wri.errors import InputError
from wri.estimators.inputs import read_environments, without_column


def test_labels_are_sorted_whatever_the_order_of_rows():
    found = read_environments(None, 4, ["b", "a", "b", "c"], None)
    assert found.labels.tolist() == ["a", "b", "c"]
    assert found.number.tolist() == [1, 0, 1, 2]
    assert [rows.tolist() for rows in found.rows] == [[1], [0, 2], [3]]


@pytest.mark.parametrize(
    "labels",
    [
        [2020, 2019, 2020],
        pd.Categorical(["x", "y", "x"]),
        [(1, "a"), (0, "b"), (1, "a")],
        ["mixed", 3, "mixed"],
        np.array([True, False, True]),
    ],
)
def test_any_hashable_label_will_do(labels):
    number = read_environments(None, 3, labels, None).number
    assert number[0] == number[2] != number[1]


def test_without_labels_there_is_one_environment():
    assert len(read_environments(None, 5, None, None).labels) == 1


def test_column_and_groups_may_both_be_given_when_they_agree():
    rows = pd.DataFrame({"x": [1.0, 2.0, 3.0], "site": ["b", "a", "b"]})
    found = read_environments(rows, 3, [7, 5, 7], "site")
    assert found.labels.tolist() == ["a", "b"]
    with pytest.raises(InputError, match="different environments"):
        read_environments(rows, 3, [7, 7, 5], "site")


def test_the_column_is_optional_afterwards():
    rows = pd.DataFrame({"x": [1.0], "site": ["a"]})
    assert without_column(rows, "site").columns.tolist() == ["x"]
    assert without_column(rows[["x"]], "site").columns.tolist() == ["x"]


@pytest.mark.parametrize(
    ("X", "groups", "column", "said"),
    [
        (np.ones((3, 1)), None, "site", "is a ndarray"),
        (None, [1, 2], None, "2 labels for 3 rows"),
        (None, np.ones((3, 2)), None, "shape"),
        (None, ["a", None, "b"], None, "no label in row 1"),
    ],
)
def test_bad_labels_are_named(X, groups, column, said):
    with pytest.raises(InputError, match=said):
        read_environments(X, 3, groups, column)
