"""Sweeps in Ray's workers: the same tables, whoever dies on the way."""

import json
import os
import signal
import socket
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from helpers import make_data
from lost_servers import SERVERS, find_ancestor, find_server
from wri import cli
from wri.errors import InputError
from wri.jobs import RayRunner
from wri.stacked import SQUARED
from wri.sweep import Store, Sweep, SweepSpec, run_sweep
from wri.sweep.tables import as_rows, build
from wri.training import Bank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for workers in /proc"),
]
SPEC = SweepSpec(
    ("erm", "wri"),
    draws=2,
    steps=200,
    test_envs=(0,),
    overrides={"density_steps": 1.0},
)
ERM = SweepSpec(("erm",), test_envs=(0,), steps=60)
LONG = ("--datasets", "simulation", "--algorithms", "erm", "--trials", "1", "--steps", "200000")


@pytest.fixture(scope="module", autouse=True)
def losing_servers():
    """A process that loses servers of Ray. It starts now, and other tests run while it waits."""
    script = Path(__file__).with_name("lost_servers.py")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def make_numbers():
    """A data set whose targets are numbers."""
    data = make_data(rows=60, name="numbers")
    targets = data.bank.features @ np.arange(6) + data.bank.targets
    return replace(data, bank=Bank(data.bank.features, targets, loss=SQUARED))


def make_sweep():
    return Sweep(SPEC, [make_data(rows=60), make_numbers()], memory=2e6)


def train_to(path, sweep, backend=None, progress=None):
    with Store(path, write=True) as store:
        trained = run_sweep(sweep, store, progress, backend)
        return trained, store.outcomes(), store.infos().values()


def check_equal(outcomes, expected, infos):
    """Every checkpoint, bit for bit, and every cell of the tables."""
    assert all(len(outcome.steps) for outcome in outcomes)
    for ours, other in zip(outcomes, expected, strict=True):
        assert (ours.algorithm, ours.test_envs) == (other.algorithm, other.test_envs)
        assert ours.diverged_at == other.diverged_at
        assert np.array_equal(ours.steps, other.steps)
        assert ours.measures.keys() == other.measures.keys()
        for measure, splits in other.measures.items():
            assert splits.keys() == ours.measures[measure].keys()
            for split, values in splits.items():
                assert np.array_equal(ours.measures[measure][split], values, equal_nan=True)
    rows = [as_rows(build(each, infos)) for each in (outcomes, expected)]
    assert rows[0] == rows[1]


def find_workers(driver):
    """Workers that train a stack, of the Ray that a process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::train_stack") and (
                find_ancestor(folder.name, 3) == driver  # raylet, driver of Ray, command
            ):
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended
    return found


class KillOnce:
    """Progress that kills a worker in the middle of its first stack."""

    def __init__(self):
        self.killed = None

    def __call__(self, done, of):
        if done > 0 and self.killed is None:
            workers = find_workers(os.getpid())
            if workers:
                self.killed = workers[0]
                os.kill(self.killed, signal.SIGKILL)


def test_a_killed_worker_changes_nothing(ray_runner, monkeypatch, tmp_path):
    sweep, kill = make_sweep(), KillOnce()
    said = []
    monkeypatch.setattr(ray_runner, "status", said.append)
    trained, outcomes, infos = train_to(tmp_path / "ray.db", sweep, ray_runner, kill)
    assert kill.killed is not None
    stacks = len(sweep.new_stacks(None))
    assert stacks > 2
    assert f"{stacks} of {stacks} stacks done, 0 running" in said
    assert any(line.endswith(("1 running", "2 running")) for line in said)
    whole, expected, _ = train_to(tmp_path / "local.db", make_sweep())
    assert trained == whole == 8
    check_equal(outcomes, expected, infos)


def test_what_one_back_end_left_the_other_finishes(ray_runner, tmp_path):
    def interrupt(done, of):
        if done > of / 2:
            raise KeyboardInterrupt

    spec = replace(ERM, draws=4, selections=("invariance",))
    sweep = Sweep(spec, [make_data(rows=60)], memory=1e6)  # balanced rows are sent too
    with Store(tmp_path / "mixed.db", write=True) as store:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(sweep, store, interrupt)
        kept = len(store.finished())
    trained, outcomes, infos = train_to(tmp_path / "mixed.db", sweep, ray_runner)
    assert trained == len(sweep.planned) - kept > 0
    check_equal(outcomes, train_to(tmp_path / "local.db", sweep)[1], infos)


def test_a_warning_is_given_once_and_here(ray_runner, tmp_path):
    data = make_data(rows=60)
    targets = np.where(np.arange(240) < 60, 0, data.bank.targets)
    data = replace(data, bank=Bank(data.bank.features, targets))
    spec = replace(ERM, steps=3, test_envs=(3,))
    with pytest.warns(UserWarning, match="environment 0 holds a single class"):
        sweep = Sweep(spec, [data])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert train_to(tmp_path / "s.db", sweep, ray_runner)[0] == 1
    assert not [each for each in caught if "single class" in str(each.message)]


def test_workers_with_other_code_are_refused(ray_runner, monkeypatch, tmp_path):
    versions = {"wri": "0.0.1", "torch": "2", "numpy": "2"}
    monkeypatch.setattr("wri.sweep.sweep.find_versions", lambda: versions)
    sweep = Sweep(ERM, [make_data(rows=60)])
    with pytest.raises(InputError, match=r"a Ray worker on .* has wri .*, and the sweep has 0.0.1"):
        train_to(tmp_path / "s.db", sweep, ray_runner)


def test_a_cluster_that_does_not_answer_is_named(monkeypatch, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    sweep = Sweep(ERM, [make_data(rows=60)])
    with pytest.raises(InputError, match=r"127\.0\.0\.1:\d+ cannot be joined \(.*refused\); start"):
        train_to(tmp_path / "s.db", sweep, RayRunner())


def test_a_stack_that_kills_its_workers_is_named(ray_runner, monkeypatch, tmp_path):
    sweep = Sweep(replace(ERM, steps=100_000), [make_data(rows=60)])
    monkeypatch.setattr(ray_runner, "retries", 0)
    with pytest.raises(InputError, match=r"Ray gave up erm on toy, .* after 1 attempts \(Worker"):
        train_to(tmp_path / "s.db", sweep, ray_runner, KillOnce())
    with Store(tmp_path / "s.db") as store:
        assert len(store.known()) == 1
        assert not store.finished()


def start_command(folder, *arguments):
    """The command in a process that has PyTorch; what it prints goes to files of the folder."""

    def run():
        for number, name in enumerate(("stdout", "stderr"), 1):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        sys.argv = ["wri", "sweep", *arguments, "--backend", "ray"]
        cli.main()

    process = get_context("fork").Process(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process
        process.start()
    return process


def wait_for(found):
    for _ in range(1200):
        if found():
            return
        sleep(0.1)
    raise AssertionError("waited for two minutes")


@pytest.mark.usefixtures("joined_ray")
def test_ctrl_c_on_a_cluster_ends_the_sweep_and_not_the_cluster(tmp_path):
    store = tmp_path / "s.db"
    process = start_command(tmp_path, *LONG, "--store", str(store))
    wait_for(lambda: find_workers(os.getpid()))
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 130
    said = (tmp_path / "stderr").read_text()
    assert said.strip().startswith("stopped; 0 finished runs are in")
    assert said.strip().endswith("run the same command to continue")
    wait_for(lambda: not find_workers(os.getpid()))
    joined = RayRunner(workers=1)
    joined.start()
    joined.close()
    assert [node["CPU"] for node in joined.nodes] == [2]
    with Store(store) as kept:
        assert len(kept.known()) == 4


def test_a_killed_sweep_leaves_no_workers(tmp_path):
    process = start_command(tmp_path, *LONG, "--store", str(tmp_path / "s.db"))
    wait_for(lambda: find_workers(process.pid))
    (worker, *_) = find_workers(process.pid)
    raylet = find_ancestor(worker, 1)
    process.kill()
    process.join()
    for pid in (worker, raylet):
        wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists() or is_zombie(pid))
    with Store(tmp_path / "s.db", write=True) as kept:  # the lock is free
        assert len(kept.known()) == 4


def is_zombie(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_process_survives_a_server_of_ray(losing_servers):
    answers = losing_servers.stdout.read()
    assert losing_servers.wait() == 0
    assert json.loads(answers) == ["one of Ray's servers was killed or ended"] * len(SERVERS)


def test_a_lost_ray_is_one_sentence_and_standard_output_stays_empty(tmp_path):
    store = tmp_path / "s.db"
    process = start_command(tmp_path, *LONG, "--store", str(store), "--json")
    wait_for(lambda: find_workers(process.pid))
    (worker, *_) = find_workers(process.pid)
    os.kill(find_server(find_ancestor(worker, 2), "ray::DashboardAgent"), signal.SIGKILL)
    process.join()
    assert process.exitcode == 3
    assert (tmp_path / "stdout").read_text() == ""
    assert " ".join((tmp_path / "stderr").read_text().split()) == (
        "wri: Ray was lost (one of Ray's servers was killed or ended); 0 finished runs are in "
        f"{store}: run the same command to continue"
    )
    with Store(store, write=True) as kept:
        assert len(kept.known()) == 4
