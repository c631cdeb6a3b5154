import json
import os
import runpy
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

# Nothing heavy is imported up here: the process that only hands out tests would import it first,
# and the workers wait for that.

os.environ.setdefault("RAY_worker_niceness", "0")  # or Ray's workers wait for all other tests


def is_of_ray(nodeid):
    return "test_ray" in nodeid or "test_jobs_ray" in nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests go to workers one by one; those that share a long set-up, or Ray, stay together."""
    from xdist.scheduler import LoadScopeScheduling

    class SharedStart(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            if is_of_ray(nodeid):
                return "ray"
            path = nodeid.split("::")[0]
            together = (
                *("test_architecture.py", "test_page.py", "test_page_in_chromium.py"),
                *("test_figure1.py", "test_figure3.py", "test_hospitals.py", "test_theorem1.py"),
                *("test_linear_features.py", "test_simulation_tables.py", "test_verdict.py"),
                *("test_site_answer.py", "test_insurance.py"),
            )
            return path if path.endswith(together) else nodeid

    return SharedStart(config, log) if config.getvalue("dist") == "load" else None


def pytest_collection_modifyitems(config, items):
    """On several cores slow tests start first, so that none is left for the end.

    The very first are those of Ray: mypy has the core while they wait for its servers.
    """

    def place(item):
        return item.get_closest_marker("slow") is None, not is_of_ray(item.nodeid)

    if hasattr(config, "workerinput"):
        items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Every test starts with one thread: for tiny tensors a second one only waits."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def ray_runner():
    """Ray for all tests that need no other; it starts again after a test that kills it."""
    from wri.jobs import RayRunner

    with RayRunner(workers=2) as runner:
        yield runner


@pytest.fixture
def joined_ray(ray_runner, monkeypatch):
    """Commands and fits of this process, and processes that it starts, join that Ray."""
    ray_runner.start()
    monkeypatch.setenv("RAY_ADDRESS", ray_runner.address)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")


@pytest.fixture
def restored_registries(monkeypatch):
    """What a test registers is forgotten afterwards."""
    from wri import registry
    from wri.densities import DENSITIES
    from wri.estimators import ESTIMATORS

    tables = (registry.OBJECTIVES, registry.ALGORITHMS, DENSITIES, ESTIMATORS)
    kept, path = [dict(table) for table in tables], list(sys.path)
    monkeypatch.setenv("WRI_PLUGINS", "")
    yield
    for table, before in zip(tables, kept, strict=True):
        table.clear()
        table.update(before)
    sys.path[:] = path


@pytest.fixture
def short_weights(monkeypatch):
    """Classifiers of environments are fitted in five steps, where a test is not about them."""
    from wri.densities.classifier import ClassifierTraining

    fit = ClassifierTraining.fit

    def fit_shortly(self, *given):
        return fit(self._replace(steps=5), *given)

    monkeypatch.setattr(ClassifierTraining, "fit", fit_shortly)


@pytest.fixture
def bank():
    from helpers import make_bank

    return make_bank()


@pytest.fixture
def environments():
    """Three environments of unequal size within 200 rows, and the rest."""
    import numpy as np

    return [np.arange(0, 60), np.arange(60, 100), np.arange(100, 180)]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command in this process, in an empty folder."""
    from wri import cli

    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wri", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def printed_by(monkeypatch, capsys):
    """What a benchmark or a study prints with --json, in this process, which has PyTorch."""

    def run(script, arguments):
        path = Path(__file__).parents[1] / script
        monkeypatch.syspath_prepend(str(path.parent))
        monkeypatch.setattr(sys, "argv", [script, "--json", *arguments.split()])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as end:
                if end.code:
                    pytest.fail(f"{script} ended with {end.code}")
        return json.loads(capsys.readouterr().out)

    return run
