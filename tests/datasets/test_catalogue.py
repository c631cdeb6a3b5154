"""Built-in data sets: what their names promise."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from wri.datasets.catalogue import BUILTIN, load_builtin
from wri.errors import InputError


@pytest.mark.parametrize(
    ("name", "environments", "rows", "columns", "classes"),
    [("simulation", 4, 500, 10, 3), ("gaussian2d", 3, 1000, 2, 2), ("hospitals", 5, 500, 3, 2)],
)
def test_sizes_are_those_that_the_description_gives(name, environments, rows, columns, classes):
    data = load_builtin(name)
    assert len(data) == environments
    for environment in data:
        assert environment.x.shape == (rows, columns)
        assert set(environment.y) == set(range(classes))
    about = BUILTIN[name].about
    assert f"{environments} environments × {rows} rows" in about
    assert f"{classes} classes" in about


@pytest.mark.parametrize("name", BUILTIN)
def test_everybody_gets_the_same_rows_and_another_seed_gives_others(name):
    for one, again, other in zip(
        load_builtin(name), BUILTIN[name].make(0), load_builtin(name, 1), strict=True
    ):
        assert np.array_equal(one.x, again.x)
        assert np.array_equal(one.y, again.y)
        assert not np.array_equal(one.x, other.x)


@pytest.mark.parametrize(
    ("name", "invariant"), [("simulation", 5), ("gaussian2d", 1), ("hospitals", 1)]
)
def test_spurious_columns_help_in_training_and_mislead_in_the_last_environment(name, invariant):
    *training, last = load_builtin(name)
    x, y = (np.concatenate([e[field] for e in training]) for field in (1, 2))
    everything = LogisticRegression().fit(x, y)
    knowing = LogisticRegression().fit(x[:, :invariant], y)
    assert everything.score(x, y) > knowing.score(x[:, :invariant], y) + 0.05
    assert everything.score(last.x, last.y) < knowing.score(last.x[:, :invariant], last.y) - 0.05


def test_an_unknown_name_lists_the_known_ones_and_the_way_for_files():
    with pytest.raises(
        InputError, match=r"'rows.csv', only simulation, gaussian2d, hospitals.*; .* --data"
    ):
        load_builtin("rows.csv")
