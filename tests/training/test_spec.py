"""A model specification says what is trained: once, completely, and in a form that can be kept."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import make_bank
from wri.densities import Exact, FittedClassifier, LabelLogistic, Mixture
from wri.errors import InputError
from wri.objectives import OBJECTIVES, WRI, make_objective
from wri.presets import PRESETS
from wri.training import ModelSpec, Run

GIVEN = {"hidden": (5, 4), "steps": 60, "stop_after": 21, "standardise": False}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_specification_comes_back_from_json(name, preset):
    plain = ModelSpec.of(name, preset=preset)
    changed = ModelSpec.of(name, preset=preset, hyper={"learning_rate": 0.3}, **GIVEN)
    for spec in (plain, changed):
        for form in (spec.as_dict(), spec.differences()):
            assert ModelSpec.from_dict(json.loads(json.dumps(form))) == spec
    size = {"width": 6, "weight": 90.0, "largest": 30}
    whole = changed.complete(**size)
    assert ModelSpec.from_dict(json.loads(json.dumps(whole.as_dict()))) == whole
    assert ModelSpec.from_dict(whole.differences()).complete(**size) == whole


def test_differences_hold_what_the_preset_does_not_say():
    spec = ModelSpec.of("wri", preset="table", hidden=(32, 16), hyper={"penalty_weight": 1.6})
    assert spec.differences() == {"objective": "wri", "preset": "table", "hidden": [32, 16]}
    mixture = ModelSpec.of("wri", options={"density": Mixture(2), "weighting": "overlap"})
    density = {"kind": "Mixture", "components": 2, "regularisation": 1e-3, "tolerance": 1e-3}
    options = {"weighting": "overlap", "density": density}
    assert mixture.differences()["options"] == options


def test_the_preset_for_tables_is_linear_standardised_and_depends_on_the_rows():
    """Pseudo-rows 3 of 600 for the decay, whole environments up to 2048 rows, λ after 100 steps."""
    spec = ModelSpec.of("vrex", preset="table")
    assert (spec.hidden, spec.standardise, spec.steps) == ((), True, 400)
    small = spec.complete(width=4, weight=600.0, largest=300)
    assert small.precision == "double"
    expected = {"learning_rate": 0.1, "weight_decay": 3 / 600, "batch_size": 2048}
    expected |= {"anneal_steps": 100, "ramp_steps": 100, "penalty_weight": 30.0}
    assert {name: small.hyper[name] for name in expected} == expected
    large = spec.complete(width=4, weight=9000.0, largest=3000)
    assert (large.precision, large.hyper["batch_size"]) == ("double", 1024)
    trained = ModelSpec.of("vrex", preset="table", solver="adam")
    assert trained.complete(width=4, weight=9000.0, largest=3000).precision == "single"
    network = ModelSpec.of("vrex", preset="table", hidden=(8,)).complete(4, 600.0, 300)
    assert (network.hyper["learning_rate"], network.hyper["weight_decay"]) == (0.01, 30 / 600)


def test_weights_see_phi_where_a_table_has_a_network():
    linear, network = (ModelSpec.of("wri", preset="table", hidden=h) for h in ((), (8, 4)))
    assert (linear.objective.density_on, network.objective.density_on) == ("x", "phi")
    assert linear.objective.density == LabelLogistic()
    assert network.objective.density == FittedClassifier(steps=50, weight_decay=1e-2)


def test_coral_needs_hidden_layers_and_has_some_by_default():
    assert ModelSpec.of("coral", preset="table").hidden == (32, 16)
    with pytest.raises(InputError, match="coral aligns hidden layers but has none"):
        ModelSpec.of("coral", hidden=())


def test_a_penalty_has_its_full_weight_after_annealing_and_ramp():
    assert ModelSpec.of("erm", preset="table").full_penalty_at == 0
    assert ModelSpec.of("wri", preset="table", steps=100).full_penalty_at == 50
    given = {"anneal_steps": 7, "ramp_steps": 5}
    assert ModelSpec.of("wri", preset="coloured", hyper=given).full_penalty_at == 12


@pytest.mark.slow
def test_a_run_that_stops_early_is_the_longer_run_at_that_step():
    """The schedules belong to `steps`, so a checkpoint can be trained again."""
    from wri.training import train_stack

    rows = [np.arange(0, 60), np.arange(60, 120)]
    out = {"out": np.arange(120, 200)}
    spec = ModelSpec.of("vrex", preset="table", steps=40, solver="adam")
    whole = Run(spec, make_bank(), rows, seed=1, evaluate=out)
    (record,) = train_stack([whole], checkpoint_every=10, measures=("loss",))
    stopped = replace(whole, spec=replace(whole.spec, stop_after=31))
    (short,) = train_stack([stopped], checkpoint_every=10, measures=("loss",))
    assert short.steps.tolist() == [0, 10, 20, 30]
    np.testing.assert_array_equal(short.measures["loss"]["out"], record.measures["loss"]["out"][:4])


def test_a_standardised_run_sees_units_of_its_training_rows():
    bank = make_bank()
    rows = [np.arange(0, 60), np.arange(60, 120)]
    run = Run(ModelSpec.of("erm", preset="table"), bank, rows)
    x, y = run.view(np.arange(120))
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(x.std(0), 1, atol=1e-12)
    np.testing.assert_array_equal(y, bank.targets[:120])
    plain = Run(ModelSpec.of("erm"), bank, rows)
    np.testing.assert_array_equal(plain.view()[0], bank.features)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelSpec.of("wir"), "unknown objective 'wir'; choose one of erm, irm"),
        (lambda: ModelSpec.of("erm", preset="wri"), "preset must be one of domainbed, cmnist"),
        (lambda: ModelSpec.of("erm", steps=0), "steps must be at least 1"),
        (lambda: ModelSpec.of("erm", steps=5, stop_after=6), "stop_after from 1 to steps"),
        (lambda: ModelSpec.of("erm", hidden=(4, 0)), "at least one unit each"),
        (lambda: ModelSpec.of("erm", hyper={"eta": 1.0}), "unknown hyper-parameter 'eta'"),
        (lambda: ModelSpec.of("vrex", options={"form": "x"}), "vrex has no option 'form'; it has"),
        (
            lambda: ModelSpec.of(WRI(), options={"form": "square"}),
            "set them on the objective itself",
        ),
        (lambda: ModelSpec.of("erm", precision="half"), "precision must be one of single, double"),
        (lambda: ModelSpec.from_dict({"objective": "erm", "depth": 3}), "has no 'depth'"),
        (
            lambda: ModelSpec.from_dict({"objective": "wri", "options": {"density": {"kind": 1}}}),
            "density must be one of Bounded",
        ),
        (
            lambda: ModelSpec.of(WRI(density=Exact(len))).as_dict(),
            "Exact cannot be saved; use one of Bounded",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_presets_and_objectives_have_different_names():
    assert not set(PRESETS) & {"wri", *OBJECTIVES}
    assert make_objective("wri", "coloured").weighting == "overlap"
