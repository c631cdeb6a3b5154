"""Columns that weights may see."""

import numpy as np

from wri.densities.relevant_columns import column_shares


def _rows(seed, classes, lacking=None):
    """Three environments: a cause, a marker whose sign changes, and noise."""
    random = np.random.default_rng(seed)
    rows, targets = [], []
    for e, strength in enumerate((2.0, 0.0, -2.0)):
        present = [c for c in range(classes) if (e, c) != lacking]
        y = random.choice(present, 600)
        x = random.normal(size=(600, 3))
        x[:, 0] += y
        x[:, 1] += strength * y
        rows.append(x)
        targets.append(y)
    return rows, targets, [np.ones(600)] * 3


def test_the_cause_is_seen_and_what_changes_or_tells_nothing_is_not():
    shares = np.stack([column_shares(*_rows(seed, classes=2)) for seed in range(10)])
    assert (shares[:, 0] > 0.9).all()
    assert (shares[:, 1] == 0).all()
    assert shares[:, 2].mean() < 0.3  # chance may tell something now and then


def test_an_environment_may_lack_a_class():
    shares = column_shares(*_rows(0, classes=3, lacking=(2, 1)))
    assert shares[0] > 0.9
    assert shares[1] == 0
