"""Overlap of environments against its integral, and what is said and drawn of it."""

from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy.integrate import quad
from scipy.stats import norm

from wri.densities import FittedClassifier
from wri.diagnosis import Overlap, environment_logs, environment_overlap, overlap
from wri.errors import InputError
from wri.rows import number_environments


def normal_overlap(distance):
    def integrand(x):
        p, q = norm.pdf(x), norm.pdf(x, distance)
        return 2 * p * q / (p + q)

    return quad(integrand, -10, 10 + distance)[0]


def unreadable(drawn):
    """Whether any two texts of a figure share a pixel, or one leaves the figure."""
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    hidden = set()
    for axis in (axis for ax in drawn.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high]
        hidden |= {tick.label1 for tick in ticks}
    texts = [text for text in drawn.findobj(Text) if text.get_visible() and text.get_text()]
    texts = [text for text in texts if text not in hidden]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    outside = [box for box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > drawn.bbox.x1]
    return bool(outside) or any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_overlap_of_normals_is_the_integral():
    random = np.random.default_rng(0)
    means, n = np.array([0.0, 1.0, 3.0]), 1500
    x = random.normal(np.repeat(means, n)[:, None], 1, (3 * n, 1))
    found = environment_overlap(x, np.repeat(["young", "middle", "old"], n))
    assert list(found.labels) == ["middle", "old", "young"]
    means = means[[1, 2, 0]]
    for i, j in combinations(range(3), 2):
        truth = normal_overlap(abs(means[i] - means[j]))
        assert found.overlap[i, j] == found.overlap[j, i] == pytest.approx(truth, abs=0.04)
    assert np.allclose(np.diag(found.overlap), 1)
    assert np.allclose(np.diag(found.effective_rows), n)
    assert "have little in common: (old and young)" in found.meaning
    assert f"share {found.overlap[1, 2]:.2f}" in found.meaning


def test_equal_environments_are_replicates():
    random = np.random.default_rng(1)
    found = environment_overlap(random.normal(size=(1200, 2)), np.repeat([1, 2], 600))
    assert found.overlap[0, 1] == pytest.approx(1, abs=0.02)
    assert found.effective_rows.min() > 550
    assert "cannot be told apart" in found.meaning
    assert "replicates" in found.meaning


def test_disjoint_environments_share_nothing():
    random = np.random.default_rng(2)
    x = random.normal(np.repeat([0, 10], 200)[:, None], 1, (400, 2))
    found = environment_overlap(x, np.repeat(["Bern", "Oslo"], 200))
    assert found.overlap[0, 1] < 0.05
    assert "Bern and Oslo, which share 0.0" in found.meaning
    assert "leave such an environment out" in found.meaning
    shown = [text.get_text() for text in found.plot().axes[1].texts]
    assert shown == ["1.00", "–", "–", "1.00"]  # levelled weights would look like many rows


class Remembers:
    """Stands for the classifier; says 0 for rows that it was fitted on."""

    def __init__(self, weight_decay):
        self.fits = []

    def fit(self, environments):
        assert all(len(rows) for rows in environments)
        self.fits.append(np.concatenate(environments))
        return np.zeros(1)

    def log_density(self, flat, x, environments, hyper):
        assert not np.isin(x[0].numpy(), self.fits[-1]).any()
        return x.new_zeros(1, environments, x.shape[1])


@pytest.mark.parametrize("sizes", [(2, 20), (3, 4), (11, 7)])
def test_no_row_is_weighed_by_a_fit_that_has_seen_it(monkeypatch, sizes):
    monkeypatch.setattr(overlap, "FittedClassifier", Remembers)
    z = np.random.default_rng(3).normal(size=(sum(sizes), 1))
    environments = number_environments(np.repeat([0, 1], sizes), "groups", len(z))
    logs = environment_logs(z, environments)
    assert logs.shape == (len(z), 2)
    assert (logs == 0).all()  # every row was weighed


def test_logs_are_of_shares_and_do_not_depend_on_units(monkeypatch):
    monkeypatch.setattr(overlap, "FittedClassifier", partial(FittedClassifier, steps=20))
    z = np.random.default_rng(4).normal(size=(60, 2))
    environments = number_environments(np.repeat(["a", "b", "c"], 20), "groups", 60)
    logs = environment_logs(z, environments, folds=2)
    assert np.allclose(np.exp(logs).sum(1), 1)
    assert np.allclose(
        environment_logs(z * [1e3, 1e-3] + 7, environments, folds=2), logs, atol=1e-3
    )


def test_what_cannot_be_compared_is_refused():
    x = np.zeros((5, 1))
    with pytest.raises(InputError, match="environment Ulm in groups has one row"):
        environment_overlap(x, ["Bonn", "Bonn", "Ulm", "Bonn", "Bonn"])
    with pytest.raises(InputError, match="one environment"):
        environment_overlap(x, ["Bonn"] * 5)
    with pytest.raises(InputError, match="folds must be at least 2, not 1"):
        environment_logs(x, number_environments([0, 0, 0, 1, 1], "groups", 5), folds=1)


def by_hand(labels, shared, worth=100.0):
    count = len(labels)
    table = np.where(np.eye(count) > 0, 1, shared)
    rows = np.full(count, 200)
    return Overlap(np.array(labels), table, np.where(np.eye(count) > 0, 200, worth), rows)


def test_meaning_goes_by_overlap_and_rows():
    good = by_hand(["a", "b", "c"], np.array([[1, 0.5, 0.4], [0.5, 1, 0.6], [0.4, 0.6, 1]]))
    assert (
        "All 3 pairs of environments overlap well, least a and c, which share 0.40" in good.meaning
    )
    assert "worth 100 rows or more" in good.meaning
    assert "1 of 1 pairs" in by_hand(["a", "b"], 0.5, worth=29).meaning
    assert "11 more" in by_hand(list("abcdef"), 0.1).meaning


@pytest.mark.parametrize(
    "labels",
    [
        ["A", "B"],
        ["Universitätsspital Zürich", "Bern", "Hôpitaux universitaires de Genève", "Chur"],
        [f"site {k}" for k in range(12)],
        list(range(2000, 2030)),
    ],
)
def test_heat_maps_can_be_read(labels):
    drawn = by_hand(labels, 0.5).plot()
    cells = [len(ax.texts) for ax in drawn.axes[:2]]
    assert cells == [len(labels) ** 2 if len(labels) <= 20 else 0] * 2
    assert not unreadable(drawn)


@pytest.mark.parametrize("coded", [["a", "b", "c"], [0, 1, 2], [7.5, -1.0, 0.0]])
def test_a_column_that_is_the_environment_is_no_feature(coded):
    site = np.arange(60) % 3
    X = pd.DataFrame({"cause": np.random.default_rng(0).normal(size=60)})
    X["site"] = np.array(coded)[site]
    with pytest.raises(InputError, match="column 'site' of X says the same as groups"):
        environment_overlap(X, [f"site {e}" for e in site])
