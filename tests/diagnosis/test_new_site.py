"""What is expected at a site without outcomes is what outcomes say, where like rows are alike."""

import numpy as np
import pytest

from wri import ERMClassifier, ERMRegressor
from wri.datasets.hospitals import Hospital, hospitals
from wri.errors import InputError

LIGHT, HEAVY = Hospital("light", -1.0, 0.0), Hospital("heavy", 1.0, 0.0)


def rows(environments):
    x, y = (np.concatenate([e[field] for e in environments]) for field in (1, 2))
    return x, y, np.repeat([e.name for e in environments], [len(e.y) for e in environments])


@pytest.fixture(scope="module")
def model():
    x, y, site = rows(hospitals(1500, 0, (LIGHT, HEAVY)))
    return ERMClassifier(steps=150).fit(x, y, groups=site)


def log_losses(model, site):
    return -np.log(model.predict_proba(site.x)[np.arange(len(site.y)), site.y])


@pytest.mark.parametrize("smoking", [-1.5, -1.0, 0.0, 1.0, 1.8])
def test_the_expected_loss_is_the_one_that_outcomes_give(model, smoking):
    site = Hospital("new", smoking, 0.0).sample(3000, 1)
    found = model.score_new_site(site.x)
    losses = log_losses(model, site)
    known = log_losses(model, Hospital("light", -1.0, 0.0).sample(3000, 2))
    known = (known.mean() + log_losses(model, HEAVY.sample(3000, 2)).mean()) / 2
    slack = 4 * losses.std() / 3000**0.5
    change = losses.mean() - known
    middle, half = (found.loss.low + found.loss.high) / 2, (found.loss.high - found.loss.low) / 2
    assert abs(change - middle) < 2 * half + slack
    assert found.loss.new - found.loss.training == pytest.approx(middle)
    assert half < 0.1
    assert found.predictions[1] == pytest.approx(site.y.mean(), abs=0.06)


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


def test_regression_speaks_in_the_units_of_y():
    x, _, site = rows(hospitals(400, 0, (LIGHT, HEAVY)))
    y = 1000 * (x[:, 0] + np.random.default_rng(0).normal(0, 0.1, len(x)))
    model = ERMRegressor(steps=150).fit(x, y, groups=site)
    found = model.score_new_site(HEAVY.sample(300, 4).x)
    assert 0.5e4 < found.loss.training < 6e4  # the noise alone has 1e4
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
