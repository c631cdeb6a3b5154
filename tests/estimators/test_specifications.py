"""What a constructor asks for is one model specification, and `fit` trains it and nothing else."""

import numpy as np
import pytest
import torch

import wri
from hospitals import hospitals
from wri.densities import Gaussian, Mixture
from wri.errors import InputError
from wri.estimators import ESTIMATORS
from wri.estimators.network import constructor_parameters, python_line
from wri.training import ModelSpec


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if "Boosting" not in name])
def test_a_constructor_and_a_specification_say_the_same(name):
    kind = ESTIMATORS[name]
    given = {"learning_rate": 0.03, "batch_size": 64}
    for spec in (
        ModelSpec.of(kind._objective, preset="table"),
        ModelSpec.of(kind._objective, preset="table", hidden=(7, 5), steps=90, stop_after=31),
        ModelSpec.of(kind._objective, preset="domainbed", hidden=(4,), hyper=given),
        ModelSpec.of(kind._objective, preset="coloured", standardise=True),
    ):
        assert kind.from_spec(spec)._spec({}) == spec
        suffix = "Classifier" if name.endswith("Classifier") else "Regressor"
        made = eval(python_line(spec, suffix), {name: kind})
        assert made._spec({}) == spec


def test_options_are_part_of_the_line():
    options = {"weighting": "overlap", "density": Mixture(2)}
    spec = ModelSpec.of("wri", preset="table", options=options)
    # the weighting is the preset's own
    expected = {"penalty_weight": None, "options": {"density": Mixture(2)}}
    assert constructor_parameters(spec) == expected
    line = python_line(spec, "Regressor")
    assert line.startswith("WRIRegressor(penalty_weight=None, options={'density': Mixture(")
    made = eval(line, {"WRIRegressor": wri.WRIRegressor, "Mixture": Mixture})
    assert made._spec({}) == spec


def test_another_objective_is_refused():
    with pytest.raises(InputError, match="WRIClassifier trains wri, not erm"):
        wri.WRIClassifier.from_spec(ModelSpec.of("erm", preset="table"))


@pytest.mark.slow
def test_candidates_may_vary_hidden_layers_and_options():
    """A relation that no line can follow: the network wins."""
    X, _, site = hospitals(60)
    y = (np.abs(X[:, 0]) > 0.7).astype(int)
    candidates = [
        {"penalty_weight": 1.0},
        {"hidden": (16, 8), "penalty_weight": 0.1},
        {"weighting": "density", "density": Gaussian()},
    ]
    model = wri.WRIClassifier(
        candidates=candidates, steps=150, penalty_weight=None, site_spread=False
    ).fit(X, y, groups=site)
    assert model.candidate_losses_.shape == (3, 4)
    assert model.candidate_losses_.mean(1).argmin() == 1
    assert model.spec_.hidden == (16, 8)
    assert model.spec_.objective.density_on == "phi"
    assert model.hyper_["learning_rate"] == 0.01  # the default of networks
    only = wri.WRIClassifier(
        candidates=candidates[2:], steps=20, penalty_weight=None, site_spread=False
    )
    only.fit(X, y, groups=site)
    assert only.spec_.objective.density == Gaussian()


def test_an_unknown_candidate_is_named():
    X, y, site = hospitals(30)
    model = wri.VRExClassifier(candidates=[{"depth": 3}])
    with pytest.raises(InputError, match="'depth' in candidates; choose from hidden, anneal_steps"):
        model.fit(X, y, groups=site)


def test_an_integer_is_the_seed_itself():
    """So a run of a sweep can be fitted again by an estimator."""
    X, y, site = hospitals(40)
    model = wri.ERMClassifier(steps=1, random_state=123, hidden=(4,)).fit(X, y, groups=site)
    start = model.network_.initial([123])[0]
    assert np.abs(model.parameters_ - start).max() < 0.02  # one step of 0.01 away
    with pytest.raises(ValueError, match="whole number from 0"):
        wri.ERMClassifier(random_state=-1).fit(X, y, groups=site)


def test_fit_leaves_threads_and_memory_settings_alone(monkeypatch):
    def never(*arguments):
        raise AssertionError("a library does not change the process of its user")

    monkeypatch.setattr(torch, "set_num_threads", never)
    monkeypatch.setattr("wri.training.scheduling.keep_freed_memory", never)
    X, y, site = hospitals(40)
    candidates = [{"penalty_weight": 1.0}, {"penalty_weight": 9.0}, {"hidden": (4,)}]
    wri.VRExClassifier(steps=5, candidates=candidates, penalty_weight=None).fit(X, y, groups=site)


def test_another_preset_trains_its_own_model(tmp_path):
    X, _, site = hospitals(60)
    model = wri.VRExRegressor(preset="domainbed", steps=20, penalty_weight=None).fit(
        X, 5 + 9 * X[:, 0], groups=site
    )
    assert (model.spec_.hidden, model.spec_.standardise) == ((16, 8), False)
    assert model.hyper_["penalty_weight"] == 10.0
    assert (model.input_scaling_.scale == 1).all()
    model.save(tmp_path / "model")
    loaded = wri.VRExRegressor.load(tmp_path / "model")
    assert loaded.spec_ == model.spec_
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
