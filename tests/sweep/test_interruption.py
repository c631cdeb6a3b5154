"""A sweep that is interrupted goes on as if it had not been."""

import os
import signal

import numpy as np
import pytest

from helpers import forked, make_data
from wri.errors import InputError
from wri.sweep import Store, Sweep, SweepSpec, forecast, run_sweep
from wri.sweep.sweep import stack_memory
from wri.sweep.tables import as_rows, build
from wri.training import train_stack

SPEC = SweepSpec(
    ("erm", "irm", "vrex", "wri"), draws=2, trials=2, steps=40, overrides={"density_steps": 1.0}
)


def kill_at(path, share):
    """Run the sweep in a process of its own and kill it at a share of what is left to do."""

    def kill(done, of):
        if done >= share * of:
            os.kill(os.getpid(), signal.SIGKILL)

    def work():
        with Store(path, write=True) as store:
            run_sweep(Sweep(SPEC, [make_data(rows=60)], memory=2e6), store, kill)

    with forked(work) as said:
        assert said == ""


def finish(path):
    with Store(path, write=True) as store:
        trained = run_sweep(Sweep(SPEC, [make_data(rows=60)], memory=2e6), store)
        return trained, store.outcomes(), store.infos().values()


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed of the kills", seed)  # shown when the test fails
    disturbed, finished = tmp_path / "disturbed.db", []
    for share in np.random.default_rng(seed).uniform(0.05, 0.6, 3):
        kill_at(disturbed, share)
        with Store(disturbed) as store:
            finished.append(len(store.finished()))
    trained, outcomes, described = finish(disturbed)
    whole, expected, _ = finish(tmp_path / "undisturbed.db")
    assert whole == len(expected) == 4 * 2 * 2 * 4
    assert finished == sorted(finished)  # none was lost
    assert trained == whole - finished[-1]  # none was repeated
    assert all(len(outcome.steps) for outcome in outcomes)
    for ours, other in zip(outcomes, expected, strict=True):
        assert (ours.algorithm, ours.test_envs) == (other.algorithm, other.test_envs)
        assert set(ours.measures) == set(other.measures) == {"accuracy", "loss"}
        for measure, splits in other.measures.items():
            for split, values in splits.items():
                assert np.array_equal(ours.measures[measure][split], values, equal_nan=True)
    rows = [as_rows(build(each, described)) for each in (outcomes, expected)]
    assert rows[0] == rows[1]


def test_ctrl_c_keeps_what_is_finished_and_a_second_sweep_trains_the_rest(tmp_path):
    sweep = Sweep(SweepSpec(("erm", "groupdro"), trials=2, steps=5), [make_data()])

    def interrupt(done, of):
        if done > of / 2:
            raise KeyboardInterrupt

    with Store(tmp_path / "s.db", write=True) as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, store, interrupt)
        kept = len(store.finished())
        assert run_sweep(sweep, store) == 16 - kept
        assert run_sweep(sweep, store) == 0


def test_unfinished_draws_are_the_reason_of_an_empty_cell(tmp_path):
    sweep = Sweep(SweepSpec(("erm",), draws=3, steps=3), [make_data()])
    with Store(tmp_path / "s.db", write=True) as store:
        store.plan(sweep.spec.setting, sweep.infos, [[run] for run in sweep.planned])
        (first, *_) = store.pending(store.known())
        store.finish(first, train_stack([sweep.run(planned) for planned in first]))
        (table, *_) = build(store.outcomes(), store.infos().values(), ["oracle"])
        reasons = [cell.reason for cell in table.lines["erm"]]
        assert reasons[:2] == ["2 of 3 draws are not finished", "3 of 3 draws are not finished"]


def test_more_trials_train_only_what_is_new(tmp_path):
    def trained(**options):
        return run_sweep(Sweep(SweepSpec(("erm",), **options), [make_data()]), store)

    with Store(tmp_path / "s.db", write=True) as store:
        assert trained(steps=3) == 4
        assert trained(steps=3, trials=2) == 4
        with pytest.raises(InputError, match="have steps = 3, not 4"):
            trained(steps=4, trials=2)
        assert len(store.known()) == 8


def test_stacks_fit_into_the_memory_given():
    sweep = Sweep(SweepSpec(("erm",), draws=4, trials=4), [make_data(rows=200)], memory=1.5e6)
    stacks = [[sweep.run(planned) for planned in stack] for stack in sweep.new_stacks(None)]
    assert max(map(len, stacks)) > 1
    assert all(stack_memory(runs) <= 1.5e6 for runs in stacks)
    assert len(Sweep(sweep.spec, sweep.datasets).new_stacks(None)) < len(stacks)
    with pytest.raises(InputError, match="memory must be a positive number"):
        Sweep(sweep.spec, sweep.datasets, memory=float("inf"))


def test_a_forecast_counts_and_writes_nothing(tmp_path):
    sweep = Sweep(SweepSpec(("erm", "wri"), draws=2, trials=2, steps=100), [make_data()])
    found = forecast(sweep, None)
    assert (found.runs, found.finished, found.to_train) == (32, 0, 32)
    assert found.seconds > 0
    assert found.memory > 0
    assert "32 runs, 0 of them finished; 32 to train" in str(found)
    with Store(tmp_path / "s.db", write=True) as store:
        run_sweep(Sweep(SweepSpec(("erm",), steps=100), [make_data()]), store)
        assert forecast(sweep, store).finished == 4
        assert len(store.known()) == 4
