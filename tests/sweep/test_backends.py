"""Back ends without Ray: what they refuse, and what a worker does."""

import pickle
import re
import warnings
from functools import partial

import numpy as np
import pytest

from helpers import make_data
from wri.cli import options
from wri.errors import InputError
from wri.jobs import RUNNERS, Ended, LocalRunner
from wri.paper.experiments import BACKEND
from wri.stacked.losses import LOSSES
from wri.sweep import Store, Sweep, SweepSpec, open_backend, run_sweep
from wri.sweep.sweep import check_versions, find_versions, train_stack_for_store
from wri.training import scheduling
from wri.training.scheduling import StackJob, run_stacks

SPEC = SweepSpec(("erm",), draws=2, trials=2, steps=20, test_envs=(0,))


class SendingRunner(LocalRunner):
    """Runs jobs in this process as a worker would."""

    def run(self, jobs):
        self.sent, self.warnings = jobs.send(), []
        for number, job in enumerate(jobs.jobs):
            report = partial(jobs.on_steps, number)
            result, given = self.sent.open()(jobs.pack(job), report)
            self.warnings += given
            yield Ended(number, pickle.loads(pickle.dumps(result)))


def train_as_worker(sweep, progress=lambda done, of: None):
    (stack,) = sweep.new_stacks(None)
    runs = [sweep.run_to_train(planned) for planned in stack]
    job = StackJob(runs=runs, checkpoint_every=10, measures="all", threads=1)
    runner, work = SendingRunner(), partial(train_stack_for_store, versions=find_versions())
    (ended,) = run_stacks(runner, work, [job], progress)
    return runner, ended.result


def test_a_stack_sent_to_a_worker_gives_the_records_of_the_local_back_end(tmp_path):
    sweep, reported = Sweep(SPEC, [make_data(rows=60)]), []
    _, found = train_as_worker(sweep, lambda done, of: reported.append(done))
    with Store(tmp_path / "s.db", write=True) as store:
        run_sweep(sweep, store)
        outcomes = store.outcomes()
    assert reported
    for ours, other in zip(found, outcomes, strict=True):
        assert np.array_equal(ours.steps, other.steps)
        for measure, splits in other.measures.items():
            for split, values in splits.items():
                assert np.array_equal(ours.measures[measure][split], values)


def test_rows_and_splits_are_sent_once(monkeypatch):
    monkeypatch.setattr("wri.jobs.runner.MAPPED", 1)
    runner, found = train_as_worker(Sweep(SPEC, [make_data(rows=60)]))
    assert len(found) == 4  # runs
    trials, splits = 2, 8
    assert len(runner.sent.arrays) == 2 + trials * splits  # features and targets


def test_a_worker_reads_rows_that_it_may_not_write():
    data = make_data(rows=60)
    sweep = Sweep(SPEC, [data])
    before = data.bank.features.copy()
    data.bank.features.flags.writeable = False
    assert train_as_worker(sweep)[0].warnings == []
    assert np.array_equal(data.bank.features, before)


def test_warnings_of_a_worker_are_sent_back(monkeypatch):
    def train_stack(runs, **options):
        warnings.warn("rows are few", RuntimeWarning, stacklevel=2)
        return []

    monkeypatch.setattr(scheduling, "train_stack", train_stack)
    runner, _ = train_as_worker(Sweep(SPEC, [make_data(rows=60)]))
    assert runner.warnings == [(RuntimeWarning, "rows are few")]


def test_a_worker_with_another_version_refuses():
    check_versions(find_versions())
    with pytest.raises(InputError, match=r"has torch .*, and the sweep has 1\.0; install the same"):
        check_versions(find_versions() | {"torch": "1.0"})


def test_losses_are_the_same_objects_in_another_process():
    for loss in LOSSES.values():
        assert pickle.loads(pickle.dumps(loss)) is loss


def test_the_command_and_the_experiments_know_every_back_end():
    kind = options.Backend.__args__[0]
    assert kind.__args__ == BACKEND.kind.__args__ == tuple(RUNNERS)
    with pytest.raises(InputError, match="backend must be one of local, ray, not 'dask'"):
        open_backend("dask")


def test_without_ray_the_back_end_says_how_to_get_it(command, monkeypatch, tmp_path):
    monkeypatch.setattr("wri.jobs.on_ray.find_spec", lambda name: None)
    asked = ("sweep", "--datasets", "simulation", "--store", "s.db", "--backend", "ray")
    done = command(*asked)
    assert done.returncode == 2
    sentence = "--backend ray needs Ray: pip install 'weighted-risk-invariance[ray]'"
    assert sentence in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_the_address_of_a_ray_client_is_refused(monkeypatch):
    monkeypatch.setattr("wri.jobs.on_ray.find_spec", lambda name: name)
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(InputError, match="is an address for Ray's client; give the command on a"):
        open_backend("ray")


@pytest.mark.parametrize("option", [("--backend", "ray"), ("--backend=ray",)])
def test_experiments_without_a_sweep_refuse_a_back_end(option, command, tmp_path):
    done = command("reproduce", "figure1", *option)
    assert done.returncode == 2
    assert re.search("No such option:? '?--backend", " ".join(done.stderr.split()))
    assert not list(tmp_path.iterdir())
