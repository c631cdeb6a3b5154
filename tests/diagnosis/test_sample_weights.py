"""What is proposed in place of weights of rows works."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from wri.diagnosis import (
    changing_features,
    design_position,
    environment_overlap,
    risk_gaps,
    stress_test,
)

N = 240


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(0)
    x, groups = random.normal(size=(N, 2)), np.arange(N) % 3
    x[:, 0] += 0.3 * groups
    y = (random.random(N) < 1 / (1 + np.exp(-x.sum(1)))).astype(int)
    return x, y, groups, LogisticRegression().fit(x, y), random.integers(1, 4, N)


CALLS = {
    "changing_features": lambda x, y, g, _, **more: changing_features(x, y, g, draws=19, **more),
    "risk_gaps": lambda x, y, g, model, **more: risk_gaps(model, x, y, g, draws=99, **more),
    "environment_overlap": lambda x, y, g, _, **more: environment_overlap(x, g, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows_repeated_in_blocks_count_by_their_weight(name, table):
    """What is estimated is that of the weighted rows; its errors are those of the rows."""
    *rows, model, weights = table
    taken = np.repeat(np.arange(N), weights)
    found = CALLS[name](*(part[taken] for part in rows), model, blocks=taken)
    copies = CALLS[name](*(part[taken] for part in rows), model)
    assert np.nanmedian(found.errors) > 1.15 * np.nanmedian(copies.errors)
    if name == "risk_gaps":
        x, y, groups = rows
        losses = -np.log(model.predict_proba(x)[np.arange(N), y])
        exact = [np.average(losses[groups == e], weights=weights[groups == e]) for e in range(3)]
        np.testing.assert_allclose(found.risks, exact)


def test_rows_repeated_in_a_stress_test_count_by_their_weight(table):
    x, y, groups, model, weights = table
    taken = np.repeat(np.arange(N), weights)
    found = stress_test(model, x[taken], y[taken], groups[taken], [1])
    losses = -np.log(model.predict_proba(x)[np.arange(N), y])
    exact = [np.average(losses[groups == e], weights=weights[groups == e]) for e in range(3)]
    np.testing.assert_allclose(found.losses[0, 0], exact)


def test_rows_kept_in_proportion_to_their_weight_are_independent_rows(table):
    x, y, groups, _, weights = table
    kept = np.random.default_rng(0).random(N) < weights / weights.max()
    assert design_position(x[kept], y[kept], groups[kept], [1]).position.environments == 3
