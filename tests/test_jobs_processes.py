"""Stacks in worker processes: the same records, whoever dies on the way, and nobody is left."""

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from threading import Thread
from time import sleep

import numpy as np
import pytest

from helpers import make_bank, make_run
from test_jobs import step_forever
from wri.errors import InputError
from wri.jobs import Jobs, LocalRunner, runner
from wri.training import finished_stacks
from wri.training.scheduling import StackJob, pays_for_processes, takes_side_steps

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="looks for workers in /proc"
)
HYPER = {"batch_size": 16, "density_batch_size": 8, "density_steps": 2}
SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_jobs import step_forever
from wri.jobs import Jobs, LocalRunner

list(LocalRunner(1, lambda job: True).run(Jobs(work=step_forever, jobs=[0])))
"""


def make_runs(steps):
    bank = make_bank()
    rows = np.array_split(np.arange(len(bank.features)), 3)
    settings = {"evaluate": {"all": np.arange(90)}, "steps": steps}
    runs = [make_run("wri", bank, rows, HYPER, seed=n, **settings) for n in range(3)]
    return [*runs, make_run("erm", bank, rows, {"batch_size": 16}, **settings)]


def workers_of(parent):
    """Processes that train for a process; the one that cleans up after them is not among them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, owner = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            command = (folder / "cmdline").read_text()
        except OSError:  # it has ended meanwhile
            continue
        if int(owner) == parent and state != "Z" and "popen_loky" in command:
            found.append(int(folder.name))
    return found


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    """Other tests that run at the same time leave no folders here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def folders():
    return set(Path(tempfile.gettempdir()).glob("wri-jobs-*"))


def records_of(runs, stacks, **options):
    found = {}
    for numbers, records in finished_stacks(runs, stacks, threads=1, **options):
        found.update(zip(numbers, records, strict=True))
    return [found[n] for n in sorted(found)]


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    runs, stacks = make_runs(120), [[0, 2], [1], [3]]
    expected = records_of(runs, stacks, processes=False)
    seen, killed = [], []

    def progress(done, of):
        seen.append((done, of))
        if done > 160 and not killed:
            killed.append(workers_of(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = records_of(runs, stacks, processes=True, progress=progress)
    assert killed
    assert seen[-1] == (360, 360)
    for ours, other in zip(found, expected, strict=True):
        assert np.array_equal(ours.parameters, other.parameters)
        assert np.array_equal(ours.steps, other.steps)
        assert np.array_equal(ours.measures["accuracy"]["all"], other.measures["accuracy"]["all"])
        if other.state is not None:
            assert np.array_equal(ours.state, other.state)
    assert (workers_of(os.getpid()), folders()) == ([], set())


@pytest.mark.slow
def test_ctrl_c_ends_the_workers():
    def interrupt(number, steps):
        if steps:
            assert workers_of(os.getpid())
            raise KeyboardInterrupt

    jobs = Jobs(work=step_forever, jobs=[0], on_steps=interrupt)  # needs no PyTorch
    with pytest.raises(KeyboardInterrupt):
        list(LocalRunner(1, lambda job: True).run(jobs))
    assert (workers_of(os.getpid()), folders()) == ([], set())


@pytest.mark.slow
def test_a_stack_whose_workers_always_die_is_given_up(monkeypatch):
    monkeypatch.setattr(runner, "RETRIES", 0)

    def kill():
        os.kill(wait_for(lambda: workers_of(os.getpid()))[0], signal.SIGKILL)

    killer = Thread(target=kill)  # at once, before the worker has imported PyTorch
    killer.start()
    with pytest.raises(InputError, match="died 1 times while it trained 1 runs of wri"):
        records_of(make_runs(100_000), [[0]], processes=True)
    killer.join()


@pytest.mark.slow
def test_a_killed_script_without_a_guard_of_main_leaves_no_worker(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    process = subprocess.Popen([sys.executable, str(script)])
    workers = wait_for(lambda: workers_of(process.pid))
    wait_for(lambda: any(np.fromfile(f / "steps-0", np.int64) for f in folders()))
    process.kill()
    process.wait()
    wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    assert folders() == set()


def wait_for(fact, seconds=60):
    for _ in range(10 * seconds):
        if found := fact():
            return found
        sleep(0.1)
    raise AssertionError("it did not come true")


def test_processes_are_for_much_work_with_density_steps():
    short, long = make_runs(20), make_runs(1_000_000)
    assert [takes_side_steps(as_job([run])) for run in short] == [True, True, True, False]
    assert pays_for_processes([as_job(long[:2]), as_job(long[2:3])], 2)
    assert not pays_for_processes([as_job(short[:2]), as_job(short[2:3])], 2)
    assert not pays_for_processes([as_job(long[3:])], 2)
    assert not pays_for_processes([as_job(long[:2]), as_job(long[2:3])], 1)


def as_job(runs):
    return StackJob(runs=runs, checkpoint_every=10, measures=None)
