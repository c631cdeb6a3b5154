"""Verdicts of classifiers order errors, and tell their reason."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import wri
from hospitals import hospitals
from wri.datasets import hospitals as simulation
from wri.datasets import joined
from wri.errors import InputError
from wri.estimators import load
from wri.ood import Evidence

QUICK = {"site_spread": False, "steps": 200}


@pytest.fixture(scope="module")
def model():
    X, y, site = hospitals(200)
    return wri.ERMClassifier(**QUICK).fit(X, y, groups=site)


@pytest.fixture(scope="module")
def others():
    return joined(simulation(1000, 1))


@pytest.mark.parametrize("on", ["outputs", "phi", "x"])
def test_wrong_rows_are_rarer_than_right_ones(on, others):
    X, y, site = hospitals(200)
    model = wri.ERMClassifier(evidence_on=on, **QUICK).fit(X, y, groups=site)
    wrong, verdicts = model.predict(others.x) != others.y, model.verdict(others.x)
    assert roc_auc_score(wrong, -model.typicality(others.x)) > 0.8
    assert wrong[verdicts == "rare"].mean() > 3 * wrong[verdicts == "supported"].mean()


@pytest.mark.slow
def test_wrong_rows_of_several_classes_and_of_trees_are_rarer():
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 2))
    y = (X @ [[2, -1, -1], [0, 2, -2]] + random.gumbel(size=(900, 3))).argmax(1)
    site = np.arange(900) % 3
    for kind in (wri.ERMClassifier, wri.ERMBoostingClassifier):
        model = kind(site_spread=False).fit(X[:600], y[:600], groups=site[:600])
        wrong = model.predict(X[600:]) != y[600:]
        assert roc_auc_score(wrong, -model.typicality(X[600:])) > 0.65


def test_shares_of_training_like_rows_are_those_asked_for(model, others):
    verdicts = model.verdict(others.x)
    usual = model.evidence_.usual
    assert sum(usual) == pytest.approx(0.05, abs=0.01)
    assert np.mean(verdicts != "supported") == pytest.approx(0.05, abs=0.03)
    assert np.mean(verdicts == "outside") < 0.005


def test_low_confidence_and_distance_are_two_reasons(model):
    weight = model.coef_[0]
    undecided = -model.intercept_ * weight / (weight @ weight)
    rows = np.stack([undecided, undecided + 2 * weight / (weight @ weight), 100 * weight])
    assert model.verdict(rows).tolist() == ["rare", "supported", "outside"]
    assert model.reason(rows).tolist() == ["low confidence", "", "far from training"]
    found = model.assess(rows)
    assert found.reasons.tolist() == model.reason(rows).tolist()
    assert found.typicality.tolist() == model.typicality(rows).tolist()


def test_numbers_have_distance_as_the_only_reason():
    X, _, site = hospitals(60)
    model = wri.ERMRegressor(**QUICK).fit(X, X[:, 0], groups=site)
    assert set(model.reason(np.concatenate([X, 100 * X]))) == {"", "far from training"}
    assert ((model.reason(X) == "") == (model.verdict(X) == "supported")).all()
    assert (np.diff(model.typicality(X)[model.score_samples(X).argsort()]) >= 0).all()


def test_reasons_survive_the_folder(model, others, tmp_path):
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert (again.reason(others.x) == model.reason(others.x)).all()
    assert (again.typicality(others.x) == model.typicality(others.x)).all()
    assert again.evidence_.usual == model.evidence_.usual


def test_a_site_says_how_many_rows_have_which_reason(model, others):
    site = model.score_new_site(others.x)
    unsure = int((model.reason(others.x) == "low confidence").sum())
    assert (
        f"the class is less certain than for nearly all training rows ({unsure} rows)"
        in site.meaning
    )


def test_evidence_with_confidences_needs_those_of_new_rows():
    rows = np.random.default_rng(0).normal(size=(80, 1))
    evidence = Evidence.fit([rows], [rows], confidence=[np.abs(rows[:, 0])])
    assert evidence.verdict(rows[:2], np.array([5.0, 0.0])).tolist() == ["supported", "rare"]
    with pytest.raises(InputError, match="fitted with confidences"):
        evidence.verdict(rows)


def test_the_old_name_of_typicality_warns():
    X, y, site = hospitals(60)
    model = wri.ERMClassifier(site_spread=False).fit(X, y, site)
    for thing in (model, model.assess(X[:5]), model.score_new_site(X[:5])):
        with pytest.warns(FutureWarning, match="rarity is now called typicality"):
            old = thing.rarity
        new = thing.typicality
        assert (old(X) == new(X)).all() if callable(new) else (old == new).all()
