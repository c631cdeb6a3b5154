"""Which runs a sweep needs, that an id is a run, and draws by DomainBed's seeding rule."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import make_data
from wri.errors import InputError
from wri.objectives import OBJECTIVES, make_objective
from wri.objectives.hyperparameters import FitSize
from wri.presets import PRESETS
from wri.sweep.data import seed_hash
from wri.sweep.plan import FORMAT, RunSpec, SweepSpec, draw
from wri.training import ModelSpec


def held_out(spec, **options):
    return [run.test_envs for run in spec.plan([make_data(**options)])]


def test_only_leave_one_out_needs_pairs():
    assert held_out(SweepSpec(("erm",))) == [(0,), (1,), (2,), (3,)]
    assert held_out(SweepSpec(("erm",), test_envs=(2,))) == [(2,)]
    pairs = held_out(SweepSpec(("erm",), test_envs=(2,), selections=("leave-one-out",)))
    assert pairs == [(2,), (0, 2), (1, 2), (2, 3)]
    assert len(held_out(SweepSpec(("erm",), selections=("oracle", "leave-one-out")))) == 4 + 6


def test_runs_multiply_and_ids_differ():
    planned = SweepSpec(("erm", "wri"), draws=3, trials=2).plan([make_data()])
    assert len(planned) == 2 * 3 * 2 * 4
    assert len({run.id for run in planned}) == len(planned)


def test_runs_of_another_version_are_refused():
    (first, *_) = SweepSpec(("erm",)).plan([make_data()])
    assert RunSpec.from_json(first.as_json()) == first
    old = first.as_json().replace(f'"format": {FORMAT}', '"format": 2')
    with pytest.raises(InputError, match="written by another version of wri"):
        RunSpec.from_json(old)


def test_trials_may_begin_anywhere():
    later = SweepSpec(("erm",), trials=2, first_trial=100).plan([make_data()])
    assert {run.trial_seed for run in later} == {100, 101}
    with pytest.raises(InputError, match="first_trial must not be negative"):
        SweepSpec(("erm",), first_trial=-1)


def test_a_preset_brings_its_options_along():
    (plain, *_), (ours, *_) = (
        SweepSpec(("wri",), preset=preset).plan([make_data()]) for preset in ("cmnist", "coloured")
    )
    assert plain.model.objective.weighting == "density"
    assert ours.model.objective.weighting == "overlap"
    data = make_data()
    assert ours.run(data, data.splits(0)).objective == make_objective("wri", "coloured")


def test_an_id_depends_on_all_that_decides_the_result():
    first, *_ = SweepSpec(("vrex",)).plan([make_data()])
    assert first.id == SweepSpec(("vrex",)).plan([make_data()])[0].id
    model = first.model
    for change in (
        {"model": replace(model, steps=7)},
        {"model": replace(model, stop_after=7)},
        {"model": replace(model, objective=replace(model.objective, divided=True))},
        {"model": replace(model, hidden=(5,))},
        {"model": replace(model, standardise=True)},
        {"model": replace(model, hyper={"learning_rate": 0.5})},
        {"model": ModelSpec.of("erm")},
        {"checkpoint_every": 5},
        {"trial_seed": 1},
        {"hparams_seed": 1},
        {"test_envs": (1,)},
        {"fingerprint": "x"},
    ):
        changed = replace(first, **change)
        assert changed.id != first.id
        assert RunSpec.from_json(changed.as_json()) == changed


def test_an_id_leaves_out_what_the_preset_sets_anyway():
    """So a new option, or a default that is written out, does not orphan a store."""
    first, *_ = SweepSpec(("vrex",)).plan([make_data()])
    assert json.loads(first.as_json())["model"] == {"objective": "vrex", "preset": "domainbed"}
    written_out = replace(first.model, hyper={"learning_rate": 1e-2, "penalty_weight": 10.0})
    assert replace(first, model=written_out).id == first.id


def test_one_changed_cell_is_other_data():
    changed = make_data()
    changed.bank.features[3, 2] += 1e-9
    assert changed.fingerprint != make_data().fingerprint


def test_more_trials_add_runs_and_change_none():
    few = SweepSpec(("vrex",), draws=2, trials=1).plan([make_data()])
    more = SweepSpec(("vrex", "erm"), draws=2, trials=3).plan([make_data()])
    assert {run.id for run in few} <= {run.id for run in more}


def test_splits_are_domainbeds():
    splits = make_data(rows=25).splits(trial_seed=3)
    order = list(range(25))
    np.random.RandomState(seed_hash(3, 2)).shuffle(order)
    assert splits["env2_out"].tolist() == [50 + row for row in order[:5]]
    assert splits["env2_in"].tolist() == [50 + row for row in order[5:]]


def test_a_run_trains_on_the_others_and_measures_all():
    (planned, *_) = SweepSpec(("irm",), steps=5).plan([make_data()])
    source = make_data()
    run = planned.run(source, source.splits(0))
    assert len(run.train) == 3
    assert all(rows.min() >= 20 for rows in run.train)
    assert list(run.evaluate) == [f"env{e}_{part}" for e in range(4) for part in ("in", "out")]


def test_the_first_draw_is_the_defaults_and_overrides_hold_in_all():
    plain, drawn = SweepSpec(("wri",), draws=2, test_envs=(0,)).plan([make_data()])
    assert plain.model.hyper == {}
    assert drawn.model.hyper["penalty_weight"] != 1.0
    spec = SweepSpec(("wri", "erm"), draws=2, overrides={"penalty_weight": 7.0})
    assert {r.model.hyper.get("penalty_weight") for r in spec.plan([make_data()])} == {7.0, None}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithms": ()}, "name at least one algorithm"),
        ({"algorithms": ("foo",)}, "unknown objective 'foo'"),
        ({"algorithms": ("erm",), "draws": 0}, "draws must be at least 1, not 0"),
        ({"algorithms": ("erm",), "test_envs": (9,)}, "no environment 9; it has 0 .site 0."),
        ({"algorithms": ("erm",), "overrides": {"foo": 1.0}}, "no algorithm here has 'foo'"),
        ({"algorithms": ("erm",), "selections": ("best",)}, "selection must be one of"),
    ],
)
def test_sweeps_that_make_no_sense(options, message):
    with pytest.raises(InputError, match=message):
        SweepSpec(**options).plan([make_data()])


def test_one_environment_and_two_for_leave_one_out_are_too_few():
    with pytest.raises(InputError, match="at least two are needed"):
        make_data(environments=1)
    with pytest.raises(InputError, match="leave-one-out holds out two of the 3 environments"):
        held_out(SweepSpec(("vrex",), selections=("leave-one-out",)), environments=3)
    assert held_out(SweepSpec(("erm",), selections=("leave-one-out",)), environments=3)
    with pytest.raises(InputError, match="vrex needs 2 for training; leave vrex out"):
        held_out(SweepSpec(("vrex",)), environments=2)


def test_seed_hash_is_md5_of_the_printed_tuple():
    expected = int(hashlib.md5(b"(3, 'lr')").hexdigest(), 16) % 2**31
    assert seed_hash(3, "lr") == seed_hash(np.int64(3), "lr") == expected


def test_draw_zero_is_the_default():
    assert draw(OBJECTIVES["wri"], 0)["penalty_weight"] == 1.0
    assert draw(OBJECTIVES["wri"], 0, preset="cmnist")["penalty_weight"] == 500.0
    assert draw(OBJECTIVES["irm"], 0)["anneal_steps"] == 50


def test_two_seeds_and_the_name_decide():
    random = np.random.RandomState(seed_hash(seed_hash(4, 2), "learning_rate"))
    expected = 10 ** random.uniform(np.log10(5e-3), np.log10(1e-1))
    for name in OBJECTIVES:
        assert draw(OBJECTIVES[name], 4, 2)["learning_rate"] == pytest.approx(expected)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.slow
def test_draws_lie_in_their_ranges_and_differ(name, preset):
    size = FitSize(weight=1000.0, largest=300, hidden=(), steps=400)
    draws = [draw(OBJECTIVES[name], seed, preset=preset, size=size) for seed in range(1, 40)]
    for parameter in OBJECTIVES[name].hyperparameters():
        values = [chosen[parameter.name] for chosen in draws]
        assert all(parameter.low <= value <= parameter.high for value in values)
        drawn = parameter.setting(preset).distribution is not None
        assert (len(set(values)) > 1) == drawn
