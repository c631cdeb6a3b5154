"""Simulated patients whose causes no linear model can follow."""

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from wri.datasets import joined, threshold_hospitals
from wri.datasets.threshold_hospitals import (
    REVERSED,
    TRAINING,
    UNRELATED,
    log_odds,
)


def test_causes_say_the_same_at_every_hospital():
    for hospital in (*TRAINING, REVERSED):
        _, x, y = hospital.sample(40_000, 0)
        h = log_odds(x[:, :3])
        for level in np.unique(h):
            own = y[h == level]
            assert abs(own.mean() - expit(level)) < 5 * np.sqrt(0.25 / len(own))


def test_a_linear_model_sees_nothing_in_the_causes():
    _, x, y = UNRELATED.sample(20_000, 1)
    linear = LogisticRegression().fit(x[:10_000, :3], y[:10_000])
    share = max(y.mean(), 1 - y.mean())
    assert linear.score(x[10_000:, :3], y[10_000:]) < share + 0.02
    assert np.mean((log_odds(x[:, :3]) > 0) == y) > 0.85


def test_the_marker_follows_the_diagnosis_and_turns_round():
    for hospital in (*TRAINING, REVERSED, UNRELATED):
        _, x, y = hospital.sample(20_000, 2)
        assert abs(x[y == 1, 3].mean() - hospital.marker) < 0.05
        assert abs(x[y == 0, 3].mean() + hospital.marker) < 0.05


def test_rows_of_all_hospitals():
    x, y, site = joined(threshold_hospitals(20, 0))
    assert x.shape == (80, 5)
    assert len(set(site)) == 4
    assert set(y) == {0, 1}
