"""Whether environments rule out predictors of some columns, beyond what chance brings about."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from wri.diagnosis import changing_features, design, design_position
from wri.diagnosis.design import _exchanged
from wri.diagnosis.position import EXACT
from wri.errors import InputError

DIFFERENT, SAME = (0.0, 0.7, 1.4, 2.1), (1.0, 1.0, 1.0, 1.0)


def rows(strengths, n, seed=0, numbers=False):
    """Rows, and log densities of the cause, whose mean shifts between environments."""
    random, number = np.random.default_rng(seed), np.repeat(np.arange(len(strengths)), n)
    means = np.linspace(-0.7, 0.7, len(strengths))
    cause = random.normal(size=len(number)) + means[number]
    y = 2 * cause + random.normal(size=len(number))
    if not numbers:
        y = 2.0 * (random.random(len(number)) < expit(2 * cause)) - 1
    marker = np.array(strengths)[number] * y + random.normal(size=len(number))
    X = pd.DataFrame({"cause": cause, "marker": marker})
    return X, y, number, norm.logpdf(cause[:, None] - means)


@pytest.mark.parametrize("numbers", [False, True])
def test_markers_of_different_strength_are_ruled_out(numbers):
    X, y, groups, _ = rows(DIFFERENT, 500, numbers=numbers)
    found = design_position(X, y, groups, ["marker"])
    assert found.excludes_spurious
    assert found.position.spurious_gap > 1.5 * found.chance.max()
    assert "rule out linear predictors that use marker" in found.meaning
    assert found.others == ("cause",)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.slow
def test_a_marker_that_does_not_change_is_ruled_out_at_the_rate_of_chance(numbers):
    """The largest of 21 is the first in one of 21 cases: four or more of 12 in 2 of 1000."""
    found = []
    for seed in range(12):
        X, y, groups, _ = rows(SAME, 200, seed, numbers)
        found.append(design_position(X, y, groups, ["marker"], seed=seed))
    assert sum(one.excludes_spurious for one in found) < 4
    several = next(one for one in found if not one.excludes_spurious)
    assert "do not rule out predictors that use marker" in several.meaning
    assert "Add sites" in several.meaning


def test_a_classifier_of_environments_does_as_well_as_their_densities(monkeypatch):
    X, y, groups, logs = rows(DIFFERENT, 300)
    learned = design_position(X, y, groups, "marker")
    monkeypatch.setattr(design, "environment_logs", lambda z, environments, seed: logs)
    known = design_position(X, y, groups, "marker")
    assert learned.excludes_spurious
    gap = known.position.spurious_gap
    assert learned.position.spurious_gap == pytest.approx(gap, rel=0.5)


def test_flagged_features_are_understood():
    X, y, groups, _ = rows(DIFFERENT, 500)
    flagged = changing_features(X.to_numpy(), y, groups).flagged
    assert flagged == ("column 1",)
    by_name = design_position(X.to_numpy(), y, groups, flagged)
    by_number = design_position(X, y, groups, [1])
    assert by_name.position.spurious_gap == by_number.position.spurious_gap
    assert by_number.spurious == ("marker",)


def test_units_and_the_coding_of_classes_do_not_count():
    X, y, groups, _ = rows(DIFFERENT, 200)
    here = design_position(X, y, groups, ["marker"])
    other = X.assign(marker=3 - 1e4 * X.marker)
    there = design_position(other, np.where(y > 0, "ill", "healthy"), groups, ["marker"])
    assert there.position.spurious_gap == pytest.approx(here.position.spurious_gap, rel=1e-4)
    np.testing.assert_allclose(there.chance, here.chance, rtol=1e-3)


def test_two_environments_are_too_few_whatever_the_rows():
    X, y, groups, _ = rows((0.0, 2.0), 500)
    found = design_position(X, y, groups, ["marker"])
    assert found.position.spurious_gap < EXACT
    assert found.needed == 3  # C(3, 2) > 2: the marker, and what the cause predicts
    assert "too few" in found.meaning
    assert "at least 3 sites" in found.meaning


def test_without_other_columns_weights_are_uniform():
    """k − 1 equations for d_spu unknowns."""
    X, y, groups, _ = rows(DIFFERENT, 500)
    found = design_position(X[["marker"]], y, groups, ["marker"])
    assert found.others == ()
    assert found.position.invariant == 0
    assert found.needed == 3
    assert found.excludes_spurious


def test_many_other_columns_do_not_undo_what_environments_rule_out():
    X, y, groups, _ = rows(DIFFERENT, 500)
    noise = np.random.default_rng(1).normal(size=(len(X), 20))
    wide = np.column_stack([X, noise])
    assert design_position(wide, y, groups, [1]).excludes_spurious


def test_exchanged_labels_depend_on_what_densities_see_and_on_nothing_else():
    """Numbers of rows stay, the cause keeps its shift, the marker loses its own."""
    X, y, groups, logs = rows((-2.0, 0.0, 2.0, 4.0), 2_000)
    agreement = X.marker.to_numpy() * y  # mean strength_e
    labels = _exchanged(groups, logs, np.random.default_rng(0))
    assert np.bincount(labels).tolist() == [2_000] * 4
    assert 0.25 < np.mean(labels == groups) < 0.45
    means = [X.cause[labels == e].mean() for e in range(4)]
    np.testing.assert_allclose(means, [X.cause[groups == e].mean() for e in range(4)], atol=0.1)
    nearby = np.abs(X.cause) < 0.5
    kept = [agreement[nearby & (labels == e)].mean() for e in range(4)]
    assert np.ptp(kept) < 0.5
    assert np.ptp([agreement[nearby & (groups == e)].mean() for e in range(4)]) > 5


def test_what_training_does_to_the_columns_is_measured_and_not_promised():
    """A model that ignores the marker loses nothing by its shuffling; one that uses it does."""
    X, y, groups, _ = rows(DIFFERENT, 300)
    using = LogisticRegression().fit(X, y)
    ignoring = LogisticRegression().fit(X, y)
    ignoring.coef_ = ignoring.coef_ * [1, 0]
    models = {"using": using, "ignoring": ignoring}
    found = design_position(X, y, groups, ["marker"], models=models)
    assert found.importance["ignoring"] == 0
    assert found.importance["using"] > 0.1
    assert "the loss rises by: using 0." in found.meaning
    silent = design_position(X, y, groups, ["marker"])
    assert "rises" not in silent.meaning
    assert repr(silent) == silent.meaning


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(design, "MOST_ROWS", 800)
    X, y, groups, _ = rows(DIFFERENT, 500)
    found = design_position(X, y, groups, ["marker"])
    assert found.excludes_spurious


def test_environments_without_densities_in_common_keep_their_labels():
    groups = np.repeat([0, 1], 20)
    logs = np.where(groups[:, None] == [0, 1], 0, -np.inf)
    assert np.array_equal(_exchanged(groups, logs, np.random.default_rng(0)), groups)


def test_the_plot_shows_the_gap_above_those_by_chance():
    X, y, groups, _ = rows(DIFFERENT, 200)
    found = design_position(X, y, groups, ["marker"])
    axes = found.plot().axes[0]
    _, chance, gap = axes.lines
    assert len(chance.get_xdata()) == 20
    assert gap.get_xdata() == [found.position.spurious_gap]
    assert axes.get_xlim()[1] > found.position.spurious_gap
    assert axes.get_title(loc="left") == "marker: ruled out"


def test_bad_input_is_named():
    X, y, groups, _ = rows(DIFFERENT, 20)
    with pytest.raises(
        InputError, match="column 'markr', which is not in X: it has cause and mark"
    ):
        design_position(X, y, groups, ["markr"])
    with pytest.raises(InputError, match="column 7"):
        design_position(X, y, groups, [7])
    with pytest.raises(InputError, match="'marker' twice"):
        design_position(X, y, groups, ["marker", "marker"])
    with pytest.raises(InputError, match="names no column"):
        design_position(X, y, groups, ())
    with pytest.raises(InputError, match="constant or follows"):
        design_position(X.assign(flat=0.1), y, groups, ["flat"])
    with pytest.raises(InputError, match="constant or follows"):
        design_position(X.assign(copy=1 - 2 * X.marker), y, groups, ["marker", "copy"])
    with pytest.raises(InputError, match="3 classes; ask about one"):
        design_position(X, np.array(["a", "b", "c"])[groups % 3], groups, ["marker"])
    with pytest.raises(InputError, match="permutations must be at least 1"):
        design_position(X, y, groups, ["marker"], permutations=0)
