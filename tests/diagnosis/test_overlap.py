"""Overlap of environments against its integral, and what is said and drawn of it."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy.integrate import quad
from scipy.stats import norm

from wri.diagnosis import Overlap, environment_logs, environment_overlap, weights
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
    assert "have little in common (overlap below 0.3, 5 % level): (old and young)" in found.meaning
    assert f"Smallest overlap: old and young, {found.overlap[1, 2]:.2f}" in found.meaning


def test_equal_environments_are_replicates():
    random = np.random.default_rng(1)
    found = environment_overlap(random.normal(size=(1200, 2)), np.repeat([1, 2], 600))
    assert found.overlap[0, 1] == pytest.approx(1, abs=0.02)
    assert found.effective_rows.min() > 550
    assert "do not show a difference between the sites" in found.meaning
    assert not found.differ
    assert repr(found) == found.meaning


def test_disjoint_environments_share_nothing():
    random = np.random.default_rng(2)
    x = random.normal(np.repeat([0, 10], 200)[:, None], 1, (400, 2))
    found = environment_overlap(x, np.repeat(["Bern", "Oslo"], 200))
    assert found.overlap[0, 1] < 0.05
    assert "Smallest overlap: Bern and Oslo, 0.0" in found.meaning


@pytest.mark.parametrize("sizes", [(2, 20), (3, 4), (11, 7)])
@pytest.mark.parametrize("block_size", [1, 3])
def test_no_row_is_weighed_by_a_fit_that_has_seen_it(monkeypatch, sizes, block_size):
    """Nor by one that has seen another row of its block."""
    fits = []

    def remembers(environments, start):
        assert all(len(rows) for rows in environments)
        fits.append(np.concatenate(environments))
        return np.zeros((2, len(environments)))

    def outputs(x, weights):
        assert not np.isin(x // block_size, fits[-1] // block_size).any()
        return np.zeros((len(x), weights.shape[1]))

    class Same:
        def __init__(self, z, random):
            pass

        def apply(self, z):
            return z

    monkeypatch.setattr(weights, "_fit", remembers)
    monkeypatch.setattr(weights, "_outputs", outputs)
    monkeypatch.setattr(weights, "SmoothTerms", Same)
    sizes = np.array(sizes) * block_size
    z = np.arange(sizes.sum(), dtype=float)[:, None]
    environments = number_environments(np.repeat([0, 1], sizes), "groups", len(z))
    block = None if block_size == 1 else (z[:, 0] // block_size).astype(int)
    logs = environment_logs(z, environments, block=block)
    np.testing.assert_allclose(logs, np.log(0.5))  # every row was weighed


def test_logs_are_of_shares_and_do_not_depend_on_units():
    z = np.random.default_rng(4).normal(size=(60, 2))
    environments = number_environments(np.repeat(["a", "b", "c"], 20), "groups", 60)
    logs = environment_logs(z, environments)
    assert np.allclose(np.exp(logs).sum(1), 1)
    other = environment_logs(z * [1e3, 1e-3] + 7, environments)
    assert np.allclose(other, logs, atol=1e-3)


def test_blocks_cannot_be_split_between_folds():
    environments = number_environments(np.repeat([0, 1], 6), "groups", 12)
    with pytest.raises(InputError, match="environment 1 in groups has one block"):
        environment_logs(np.zeros((12, 1)), environments, block=np.arange(12).clip(max=6))


def weeks(seed, shift=0.0, crossing=False):
    """Columns that are alike within weeks of eight rows; two environments of 15 weeks."""
    random, week = np.random.default_rng(seed), np.repeat(np.arange(30), 8)
    x = random.lognormal(0.9 * random.normal(size=(30, 2))[week], 0.3)
    groups = random.permutation(week // 15) if crossing else week // 15
    return x + shift * groups[:, None], groups, week


@pytest.mark.parametrize("crossing", [False, True])
@pytest.mark.slow
def test_identical_environments_differ_at_the_rate_of_chance(crossing):
    """Of 60 tables of dependent rows 5 % differ: 10 or more by chance in 1 of 1000."""
    tables = [weeks(seed, crossing=crossing) for seed in range(60)]
    found = [environment_overlap(x, g, blocks=b, permutations=99) for x, g, b in tables]
    assert sum(one.differ for one in found) < 10
    if not crossing:
        naive = [environment_overlap(x, g, permutations=99).differ for x, g, _ in tables[:20]]
        assert sum(naive) > 8
    x, groups, week = weeks(0, 3.0, crossing)
    assert environment_overlap(x, groups, blocks=week).differ


def test_few_rows_are_not_taken_for_little_in_common():
    found = environment_overlap(np.random.default_rng(5).normal(size=(40, 2)), np.arange(40) % 2)
    assert "little in common" not in found.meaning
    assert "fewer than 30 effective rows" in found.meaning


def test_what_cannot_be_compared_is_refused():
    x = np.zeros((5, 1))
    with pytest.raises(InputError, match="environment Ulm in groups has one row"):
        environment_overlap(x, ["Bonn", "Bonn", "Ulm", "Bonn", "Bonn"])
    with pytest.raises(InputError, match="one environment"):
        environment_overlap(x, ["Bonn"] * 5)


def by_hand(labels, shared, worth=100.0, p=0.01):
    count = len(labels)
    table = np.where(np.eye(count) > 0, 1, shared)
    rows, errors = np.full(count, 200), np.full((count, count), 0.02)
    worths = np.where(np.eye(count) > 0, 200, worth)
    return Overlap(
        labels=np.array(labels),
        overlap=table,
        effective_rows=worths,
        rows=rows,
        errors=errors,
        p=p,
    )


def test_meaning_goes_by_overlap_and_rows():
    good = by_hand(["a", "b", "c"], np.array([[1, 0.5, 0.4], [0.5, 1, 0.6], [0.4, 0.6, 1]]))
    assert "The sites differ (p = 0.01). All pairs overlap enough" in good.meaning
    assert "Smallest overlap: a and c, 0.40" in good.meaning
    assert "rests on at least 100 rows" in good.meaning
    assert "1 of 1 pairs leave fewer than 30" in by_hand(["a", "b"], 0.5, 29).meaning
    assert "11 more" in by_hand(list("abcdef"), 0.1).meaning
    near = by_hand(["a", "b"], 0.27)  # 0.27 + 1.64·0.02 > 0.3
    assert "little in common" not in near.meaning
    alike = by_hand(["a", "b"], 0.97, p=0.2).meaning
    assert "do not show a difference between the sites" in alike


@pytest.mark.parametrize(
    "labels",
    [
        ["A", "B"],
        ["Universitätsspital Zürich", "Bern", "Hôpitaux universitaires de Genève", "Chur"],
        [f"site {k}" for k in range(12)],
        list(range(2000, 2030)),
        [f"hospital {k}" for k in range(100)],
    ],
)
@pytest.mark.slow
def test_heat_maps_can_be_read(labels):
    drawn = by_hand(labels, 0.5).plot()
    assert len(drawn.axes[0].texts) == (len(labels) ** 2 if len(labels) <= 16 else 0)
    assert drawn.get_size_inches()[1] <= 9
    assert not unreadable(drawn)


@pytest.mark.parametrize("coded", [["a", "b", "c"], [0, 1, 2], [7.5, -1.0, 0.0]])
def test_a_column_that_is_the_environment_is_no_feature(coded):
    site = np.arange(60) % 3
    X = pd.DataFrame({"cause": np.random.default_rng(0).normal(size=60)})
    X["site"] = np.array(coded)[site]
    with pytest.raises(InputError, match="column 'site' of X names the environments like groups"):
        environment_overlap(X, [f"site {e}" for e in site])
