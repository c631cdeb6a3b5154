"""Feature layers of a sweep: what they see, what they decide, and runs on them."""

from dataclasses import replace

import numpy as np
import pytest

from wri.datasets import Environment
from wri.errors import InputError
from wri.features import FeatureLayer
from wri.sweep import Store, Sweep, SweepData, SweepSpec, forecast, gather, reload, run_sweep
from wri.sweep.data import draw_width, load_file, with_layer

LAYER = FeatureLayer((6, 3), steps=5)


def make_data(rows=40, columns=12, name="wide"):
    """Three classes along three of twelve columns, in four environments."""
    random = np.random.default_rng(0)
    environments = []
    for site in ("a", "b", "c", "d"):
        y = random.integers(0, 3, rows)
        x = random.normal(size=(rows, columns)).astype(np.float32)
        x[np.arange(rows), y] += 4
        environments.append(Environment(site, x, y))
    return with_layer(gather(name, environments), LAYER)


def test_a_layer_sees_training_rows_of_the_environments_that_are_not_held_out(monkeypatch):
    data, seen, fit = make_data(), [], FeatureLayer.fit

    def noting(self, domains, **given):
        seen.append((np.concatenate([x for x, _ in domains]), given))
        return fit(self, domains, **given)

    monkeypatch.setattr(FeatureLayer, "fit", noting)
    spec = SweepSpec(("erm",), draws=9, trials=2, selections=("leave-one-out",))
    sweep = Sweep(spec, data)
    assert not seen  # planning trains nothing
    layers = {planned.layer: planned for planned in sweep.planned}
    assert len(layers) == 2 * (4 + 6) * 2  # trials, held out alone or in pairs, widths
    number = {row.tobytes(): n for n, row in enumerate(data.bank.features)}
    seeds = set()
    for (_, trial, held_out, width), planned in layers.items():
        run = sweep.run_to_train(planned)
        assert run.bank.features.shape == (160, width)
        x, given = seen.pop()
        splits = data.splits(trial)
        allowed = [splits[f"env{e}_in"] for e in range(4) if e not in held_out]
        assert {number[row.tobytes()] for row in x} == {*np.concatenate(allowed).tolist()}
        assert given["width"] == width
        seeds.add(given["seed"])
    assert len(seeds) == len(layers)


def test_widths_are_drawn_as_domainbed_draws_hyper_parameters():
    layer = FeatureLayer((32, 64))
    assert {draw_width(layer, 0, trial) for trial in range(5)} == {64}
    drawn = [draw_width(layer, n, trial) for n in range(1, 20) for trial in range(5)]
    assert set(drawn) == {32, 64}
    assert 30 < drawn.count(32) < 65
    assert drawn[:4] == [draw_width(layer, 1, trial) for trial in range(4)]


@pytest.mark.slow
def test_all_algorithms_run_on_the_features_and_an_interrupted_sweep_goes_on(tmp_path):
    data, told = make_data(), []
    spec = SweepSpec(("erm", "wri"), draws=3, trials=2, steps=8)
    with Store(tmp_path / "whole.db", write=True) as store:
        sweep = Sweep(spec, data)
        assert forecast(sweep, store).to_train == 48
        assert run_sweep(sweep, store, lambda done, of: told.append(done / of)) == 48
        assert run_sweep(Sweep(spec, data), store) == 0
        whole = store.outcomes()
    assert told == sorted(told)
    assert told[-1] == 1
    with Store(tmp_path / "parts.db", write=True) as store:
        stopped = Sweep(spec, data)
        store.plan(spec.setting, stopped.infos, stopped.new_stacks(store))
        run_sweep(Sweep(replace(spec, trials=1), data), store)  # as far as it came
        run_sweep(Sweep(spec, data), store)
        parts = {
            (each.algorithm, each.test_envs, each.hparams_seed, each.trial_seed): each
            for each in store.outcomes()
        }
    for run in whole:
        same = parts[run.algorithm, run.test_envs, run.hparams_seed, run.trial_seed]
        for measure, splits in run.measures.items():
            for split, values in splits.items():
                np.testing.assert_array_equal(values, same.measures[measure][split])
    learned = [run.measures["accuracy"]["env0_in"][-1] for run in whole]
    assert np.mean(learned) > 0.4  # three classes, 8 steps


def test_another_layer_is_other_data(tmp_path):
    data = make_data()
    assert data.fingerprint != replace(data, layer=None).fingerprint
    spec = SweepSpec(("erm",), steps=2)
    with Store(tmp_path / "s.db", write=True) as store:
        run_sweep(Sweep(spec, data), store)
        other = replace(data, layer=FeatureLayer((6,), steps=5))
        with pytest.raises(InputError, match="the rows of 'wide' differ from those of the runs"):
            run_sweep(Sweep(spec, other), store)


@pytest.mark.slow
def test_the_selection_by_balanced_rows_sees_the_features(tmp_path):
    spec = SweepSpec(("erm",), steps=2, selections=("invariance",), test_envs=(0,))
    with Store(tmp_path / "s.db", write=True) as store:
        run_sweep(Sweep(spec, make_data()), store)
        (run,) = store.outcomes()
    assert np.isfinite(run.measures["accuracy"]["env1_balanced"]).all()
    assert np.isnan(run.measures["accuracy"]["env0_balanced"]).all()  # held out


def test_layers_need_classes_and_memory():
    data = make_data()
    rows = data.bank.features, np.linspace(0, 1, 160), np.repeat([*"abcd"], 40)
    with pytest.raises(InputError, match="a feature layer learns from classes"):
        SweepData.from_rows("numbers", *rows, layer=LAYER)
    large = make_data(400, 400)
    with pytest.raises(InputError, match=r"a run needs about 0\.01"):
        Sweep(SweepSpec(("erm",)), large, memory=1e7)


def test_runs_on_a_layer_are_not_fitted_on_columns(tmp_path):
    data = make_data()
    path = tmp_path / "rows.npz"
    np.savez(path, x=data.bank.features, y=data.bank.targets, site=np.repeat([*"abcd"], 40))
    made = with_layer(load_file(path, "y", "site"), LAYER)
    assert made.preset == "domainbed"
    with pytest.raises(InputError, match="sweep without --feature-layer"):
        reload(made.info, made.fingerprint)
