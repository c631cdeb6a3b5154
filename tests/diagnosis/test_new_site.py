"""What is expected at a site without outcomes, and how often its interval holds."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from wri import ERMClassifier, ERMRegressor, WRIClassifier
from wri.datasets import joined
from wri.datasets.hospitals import Hospital, hospitals
from wri.diagnosis.new_site import expect_loss
from wri.errors import InputError
from wri.ood.held_out import HeldOutRows, LeftOutSites

LIGHT, HEAVY = Hospital("light", -1.0, 0.0), Hospital("heavy", 1.0, 0.0)
MARKED = [Hospital(f"site {k}", m, s) for k, (m, s) in enumerate([(-1, 1.2), (0, 0.2), (1, 0.8)])]


@pytest.fixture(scope="module")
def model():
    x, y, site = joined(hospitals(1500, 0, (LIGHT, HEAVY)))
    return ERMClassifier(steps=150).fit(x, y, groups=site)


@pytest.fixture(scope="module")
def marked():
    x, y, site = joined(hospitals(300, 0, MARKED))
    frame = pd.DataFrame(x, columns=["smoking", "marker", "noise"])
    return ERMClassifier(steps=100).fit(frame, y, groups=site)


def log_losses(model, site):
    return -np.log(model.predict_proba(site.x)[np.arange(len(site.y)), site.y])


@pytest.mark.parametrize("smoking", [-1.5, 0.0, 1.8])
def test_the_expected_loss_is_the_one_that_outcomes_give(model, smoking):
    """Where the same prediction means the same, as at sites without a marker."""
    site = Hospital("new", smoking, 0.0)
    found = model.score_new_site(site.sample(3000, 1).x)
    actual = log_losses(model, site.sample(20_000, 2)).mean()
    assert found.loss.new == pytest.approx(actual, abs=0.06)
    assert found.predictions[1] == pytest.approx(site.sample(20_000, 3).y.mean(), abs=0.06)


def test_the_interval_is_students_from_the_sites_that_were_left_out():
    """Four sites that stray by −0.1, 0, 0.1 and 0.2; rows that all lose 0.5: by hand."""
    predictions = np.full((100, 2), 0.5)
    known = HeldOutRows.of(predictions, np.full(100, 0.5), [np.ones(50)] * 2)
    left_out = LeftOutSites(np.array([0.4, 0.5, 0.6, 0.7]), np.full(4, 0.5))
    found = expect_loss(known, left_out, predictions)
    half = 3.182446 * np.sqrt(0.05 / 3 * (1 + 1 / 4))  # t at 97.5 % with three degrees of freedom
    assert found.new == pytest.approx(0.55)
    assert (found.low, found.high) == pytest.approx((0.55 - half, 0.55 + half), rel=1e-6)
    wide = expect_loss(known, left_out, predictions, level=0.99)
    assert (wide.low, wide.high) == pytest.approx((0.0, 0.55 + half * 5.840909 / 3.182446))
    assert expect_loss(known, None, predictions).low is None


@pytest.mark.parametrize("sites", [3, 8])
def test_intervals_hold_the_loss_of_the_next_site(sites):
    """Sites whose odds differ by chance from those predicted; 95 % promised, 200 next sites."""
    random = np.random.default_rng(sites)

    def meet(n):
        """Predictions and losses of a site that is worse or better than predicted."""
        odds = random.normal(0, 1.5, n)
        sick = random.random(n) < expit(odds + random.normal(0, 0.8))
        chance = expit(odds)
        return np.column_stack([1 - chance, chance]), -np.log(np.where(sick, chance, 1 - chance))

    held = []
    for _ in range(200):
        training = [meet(100) for _ in range(sites)]
        known = HeldOutRows.of(
            *(np.concatenate(each) for each in zip(*training, strict=True)),
            [np.ones(100)] * sites,
        )
        entropies = [-(p * np.log(p)).sum(1).mean() for p, _ in training]
        left_out = LeftOutSites(np.array([own.mean() for _, own in training]), np.array(entropies))
        predictions, losses = meet(400)
        found = expect_loss(known, left_out, predictions)
        held.append(found.low <= losses.mean() <= found.high)
    assert np.mean(held) >= 0.9


def test_fit_leaves_each_site_out_once(marked):
    """The losses kept are those of models that never saw the site."""
    x, y, site = joined(hospitals(300, 0, MARKED))
    others = site != "site 1"
    without = ERMClassifier(steps=100, validation_fraction=0.0, site_spread=False)
    without.fit(x[others], y[others], groups=site[others])
    actual = log_losses(without, MARKED[1].sample(300, 0)).mean()
    assert marked.left_out_.losses[1] == pytest.approx(actual, rel=0.1)
    assert marked.left_out_.losses[1] > marked.left_out_.expected[1]  # the marker is weak there


def test_the_meaning_leads_with_the_interval(marked):
    new = pd.DataFrame(Hospital("new", 0.3, 0.5).sample(400, 2).x, columns=marked.feature_names_in_)
    found = marked.score_new_site(new)
    assert found.meaning.startswith(f"Expected log-loss {found.loss.new:.3g}, 95 % interval")
    assert "drawn like the 3 training sites" in found.meaning
    assert (
        "Rare means that the class is less certain than for nearly all training rows"
        in found.meaning
    )
    assert repr(found) == found.meaning.strip()
    narrow = marked.score_new_site(new, level=0.5).loss
    assert found.loss.low < narrow.low < narrow.high < found.loss.high
    with pytest.raises(InputError, match="level"):
        marked.score_new_site(new, level=95)


def test_columns_beyond_their_range_are_named_though_predictions_are_ordinary(marked):
    new = pd.DataFrame(Hospital("new", 0.3, 0.5).sample(400, 2).x, columns=marked.feature_names_in_)
    assert marked.score_new_site(new).flagged_columns == ()
    new["noise"] += 4
    found = marked.score_new_site(new)
    assert found.flagged_columns == ("noise",)
    assert not found.flagged_often
    assert "in noise (1 % is usual). Verdicts do not see this shift" in found.meaning


@pytest.mark.slow
@pytest.mark.parametrize("rows", [12, 50])
def test_ranges_of_small_tables_hold_for_rows_of_the_same_kind(rows):
    found = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        x, new = random.normal(size=(4 * rows, 5)), random.normal(size=(100, 5))
        y = (x[:, 0] + random.logistic(size=len(x)) > 0).astype(int)
        model = WRIClassifier(site_spread=False).fit(x, y, groups=np.arange(len(x)) % 4)
        found.append(model.score_new_site(new).flagged_columns)
        assert model.score_new_site(x).flagged_columns == ()
    assert sum(map(bool, found)) <= 1  # at most 1 % of the tables are promised
    new[:, 2] += 3
    assert model.score_new_site(new).flagged_columns == ("column 2",)


def test_two_sites_give_no_interval(model):
    found = model.score_new_site(HEAVY.sample(300, 4).x)
    assert model.left_out_ is None
    assert (found.loss.low, found.loss.high) == (None, None)
    assert (
        "There is no interval for a new site: this needs at least three training" in found.meaning
    )


def test_weights_of_held_out_rows_are_heeded():
    predictions = np.column_stack([np.full(80, 0.5), np.full(80, 0.5)])
    losses = np.repeat([0.1, 0.9], 40)
    known = HeldOutRows.of(predictions, losses, [np.repeat([3.0, 1.0], 40)])
    assert expect_loss(known, None, predictions).new == pytest.approx((3 * 0.1 + 0.9) / 4)


def test_without_held_out_rows_no_loss_is_promised():
    x, y, site = joined(hospitals(100, 0, (LIGHT, HEAVY)))
    model = ERMClassifier(steps=20, validation_fraction=0.0).fit(x, y, groups=site)
    found = model.score_new_site(HEAVY.sample(50, 1).x)
    assert found.loss is None
    assert "were held out" in found.meaning


def test_the_nearest_site_and_the_usual_shares(model):
    found = model.score_new_site(HEAVY.sample(4000, 5).x)
    assert found.nearest == "heavy"
    assert found.nearest_shares[list(found.labels).index("heavy")] > 0.8
    assert sum(found.usual) == pytest.approx(0.05, abs=0.005)
    assert found.rare + found.outside < 0.12
    assert "Most rows are like heavy" in found.meaning


def test_a_site_beyond_the_evidence(model):
    strange = HEAVY.sample(400, 3, smoking=np.linspace(8, 12, 400))
    found = model.score_new_site(strange.x)
    assert found.outside > 0.9
    assert "guessing" in found.meaning
    assert "interval" not in found.meaning
    mixed = np.concatenate([HEAVY.sample(400, 3).x, strange.x[:100]])
    found = model.score_new_site(mixed)
    assert 0.15 < found.rare + found.outside < 0.4
    assert "more than chance" in found.meaning
    assert found.nearest == "heavy"


def test_regression_speaks_in_the_units_of_y():
    x, _, site = joined(hospitals(400, 0, (LIGHT, HEAVY)))
    y = 1000 * (x[:, 0] + np.random.default_rng(0).normal(0, 0.1, len(x)))
    model = ERMRegressor(steps=150).fit(x, y, groups=site)
    found = model.score_new_site(HEAVY.sample(300, 4).x)
    assert 0.5e4 < found.loss.training < 6e4  # the noise alone has 1e4
    assert "squared error" in found.meaning
    assert found.predictions[0] == pytest.approx(1000, rel=0.2)


def test_a_single_row_is_no_site(model):
    with pytest.raises(InputError, match="by its verdict"):
        model.score_new_site(np.zeros((1, 3)))


def test_the_picture_names_every_environment(model):
    drawn = model.score_new_site(HEAVY.sample(50, 6).x).plot()
    left, right = drawn.axes
    assert [label.get_text() for label in right.get_yticklabels()] == ["heavy", "light"]
    assert "rare" in left.get_title(loc="left")


def test_evidence_keeps_to_what_it_was_fitted_on(model):
    x = HEAVY.sample(50, 6).x
    before = model.score_samples(x)
    model.set_params(evidence_on="x")
    assert np.array_equal(model.score_samples(x), before)
    model.set_params(evidence_on="outputs")
