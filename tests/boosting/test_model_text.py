"""A forest's text is checked before LightGBM reads it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wri.boosting.model_text import clean_forest
from wri.errors import InputError

lightgbm = pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")


def make_forest(rounds=5):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    x[:, 2] = random.integers(8, size=300)
    y = np.isin(x[:, 2], (1, 4, 7)) + (x[:, 0] > 0)
    parameters = {"num_leaves": 4, "verbosity": -1, "num_threads": 1, "min_data_per_group": 5}
    data = lightgbm.Dataset(x, y, categorical_feature=[2])
    return lightgbm.train(parameters, data, rounds), x


FOREST, ROWS = make_forest()
TEXT = FOREST.model_to_string()


def test_cleaned_text_gives_the_same_scores():
    cleaned = clean_forest(TEXT, 3, 1)
    again = lightgbm.Booster(model_str=cleaned)
    np.testing.assert_array_equal(
        again.predict(ROWS, raw_score=True), FOREST.predict(ROWS, raw_score=True)
    )
    assert cleaned.count("Tree=") == 5
    assert clean_forest(cleaned, 3, 1) == cleaned
    assert "[data:" not in cleaned  # no parameters, and so no names of files


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tree\n", "three\n", "does not begin"),
        ("end of trees", "", "no end"),
        ("left_child=", "left_child=7 ", "does not fit"),
        ("left_child=", "left_kid=", "unknown"),
        ("num_leaves=4", "num_leaves=400000", "leaves"),
        ("num_leaves=4", "num_leaves=3", "does not fit"),
        ("is_linear=0", "is_linear=1", "linear"),
        ("Tree=1", "Tree=4", "out of order"),
        ("shrinkage=0.1", "shrinkage=nan", "not finite"),
        ("leaf_value=", "leaf_value=x", "non-numeric"),
        ("leaf_value=", "leaf_worth=1\nleaf_value=", "unknown"),
    ],
)
def test_a_changed_text_is_refused(old, new, said):
    assert old in TEXT
    with pytest.raises(InputError, match=said):
        clean_forest(TEXT.replace(old, new, 1), 3, 1)


def test_columns_and_children_must_exist():
    with pytest.raises(InputError, match="a column that the model does not have"):
        clean_forest(TEXT, 1, 1)
    with pytest.raises(InputError, match="trees"):
        clean_forest(TEXT, 3, 2)
    line = next(line for line in TEXT.splitlines() if line.startswith("right_child="))
    values = line.partition("=")[2].split()
    for wrong in ("0", "99", "-99"):  # the root, beyond the nodes, beyond the leaves
        changed = "right_child=" + " ".join([wrong, *values[1:]])
        with pytest.raises(InputError, match="do not form a tree"):
            clean_forest(TEXT.replace(line, changed, 1), 3, 1)


@settings(max_examples=60)
@given(st.integers(0, len(TEXT) - 1), st.sampled_from("0123456789-.= \nxe"))
def test_any_changed_letter_is_refused_or_still_a_forest(place, letter):
    changed = TEXT[:place] + letter + TEXT[place + 1 :]
    try:
        cleaned = clean_forest(changed, 3, 1)
    except InputError:
        return
    scores = lightgbm.Booster(model_str=cleaned).predict(ROWS, raw_score=True)
    assert np.isfinite(scores).all()
