"""What is expected at a site without outcomes is what outcomes say, where like rows are alike."""

import numpy as np
import pytest

from wri import ERMClassifier, ERMRegressor
from wri.datasets import joined
from wri.datasets.hospitals import Hospital, hospitals
from wri.diagnosis.new_site import expected_change
from wri.errors import InputError
from wri.ood.evidence import Known

LIGHT, HEAVY = Hospital("light", -1.0, 0.0), Hospital("heavy", 1.0, 0.0)


@pytest.fixture(scope="module")
def model():
    x, y, site = joined(hospitals(1500, 0, (LIGHT, HEAVY)))
    return ERMClassifier(steps=150).fit(x, y, groups=site)


def log_losses(model, site):
    return -np.log(model.predict_proba(site.x)[np.arange(len(site.y)), site.y])


@pytest.mark.parametrize("smoking", [-1.5, -1.0, 0.0, 1.0, 1.8])
def test_the_expected_loss_is_the_one_that_outcomes_give(model, smoking):
    site = Hospital("new", smoking, 0.0)
    found = model.score_new_site(site.sample(3000, 1).x)
    known = [log_losses(model, each.sample(20_000, 2)).mean() for each in (LIGHT, HEAVY)]
    change = log_losses(model, site.sample(20_000, 2)).mean() - np.mean(known)
    low, high = found.loss.low, found.loss.high
    assert abs(change - (low + high) / 2) < 0.75 * (high - low) < 0.15  # three standard errors
    assert found.predictions[1] == pytest.approx(site.sample(20_000, 3).y.mean(), abs=0.06)


@pytest.mark.parametrize("rows", [20, 200])
@pytest.mark.parametrize("same", [True, False])
def test_intervals_of_the_change_hold_as_often_as_they_say(rows, same):
    """For sites drawn from the training mixture, where nothing changes, and for another."""
    random = np.random.default_rng(0)
    middle, held = 0.0, 0

    def outcomes(centre, n):
        chance = 1 / (1 + np.exp(-2 * random.normal(centre, 1, n)))
        sick = random.random(n) < chance
        return np.column_stack([1 - chance, chance]), -np.log(np.where(sick, chance, 1 - chance))

    def many(centres):
        return np.mean([outcomes(centre, 200_000)[1].mean() for centre in centres])

    training, new = (-1.0, 1.0), ((-1.0, 1.0) if same else (0.3,))
    truth = many(new) - many(training)
    for _ in range(100):
        predictions, losses = (
            np.concatenate(part)
            for part in zip(*(outcomes(centre, 150) for centre in training), strict=True)
        )
        known = Known.of(predictions, losses, [np.ones(150)] * 2)
        at = np.concatenate([outcomes(centre, rows // len(new))[0] for centre in new])
        found = expected_change(known, at)
        held += found.low <= truth <= found.high
        middle += (found.low + found.high) / 200
    assert held >= 88
    assert middle == pytest.approx(truth, abs=0.02)


def test_weights_of_held_out_rows_are_heeded():
    predictions = np.column_stack([np.full(80, 0.5), np.full(80, 0.5)])
    losses = np.repeat([0.1, 0.9], 40)
    known = Known.of(predictions, losses, [np.repeat([3.0, 1.0], 40)])
    assert known.shares @ known.losses == pytest.approx((3 * 0.1 + 0.9) / 4)


def test_without_held_out_rows_no_loss_is_promised():
    x, y, site = joined(hospitals(100, 0, (LIGHT, HEAVY)))
    model = ERMClassifier(steps=20, validation_fraction=0.0).fit(x, y, groups=site)
    found = model.score_new_site(HEAVY.sample(50, 1).x)
    assert found.loss is None
    assert found.training_predictions is None
    assert "were held out" in found.meaning


def test_the_nearest_site_and_the_usual_shares(model):
    found = model.score_new_site(HEAVY.sample(4000, 5).x)
    assert found.nearest == "heavy"
    assert found.nearest_shares[list(found.labels).index("heavy")] > 0.8
    assert sum(found.usual) == pytest.approx(0.05, abs=0.005)
    assert found.rare + found.outside < 0.12
    assert "most like heavy" in found.meaning
    assert "a sample of outcomes would check it" in found.meaning


def test_a_site_beyond_the_evidence(model):
    strange = HEAVY.sample(400, 3, smoking=np.linspace(8, 12, 400))
    found = model.score_new_site(strange.x)
    assert found.outside > 0.9
    assert "guessing" in found.meaning
    mixed = np.concatenate([HEAVY.sample(400, 3).x, strange.x[:100]])
    found = model.score_new_site(mixed)
    assert 0.15 < found.rare + found.outside < 0.4
    assert "more than chance" in found.meaning
    assert found.nearest == "heavy"
    alone = model.score_new_site(mixed[:400])
    assert found.loss.new == pytest.approx(alone.loss.new, abs=0.02)  # the strange are left out


def test_regression_speaks_in_the_units_of_y():
    x, _, site = joined(hospitals(400, 0, (LIGHT, HEAVY)))
    y = 1000 * (x[:, 0] + np.random.default_rng(0).normal(0, 0.1, len(x)))
    model = ERMRegressor(steps=150).fit(x, y, groups=site)
    found = model.score_new_site(HEAVY.sample(300, 4).x)
    assert 0.5e4 < found.loss.training < 6e4  # the noise alone has 1e4
    assert "squared error" in found.meaning
    assert found.predictions[0] == pytest.approx(1000, rel=0.2)
    assert found.training_predictions[0] == pytest.approx(0, abs=200)


def test_a_single_row_is_no_site(model):
    with pytest.raises(InputError, match="use verdict"):
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
