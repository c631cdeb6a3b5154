import os
import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch

from helpers import make_bank
from wri import cli

os.environ.setdefault("RAY_worker_niceness", "0")  # or Ray's workers wait for all other tests
torch.set_num_threads(1)  # tiny tensors: a second thread only waits


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests go to workers one by one; those that share a long set-up stay together."""
    from xdist.scheduler import LoadScopeScheduling

    class SharedStart(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.split("::")[0]
            together = (
                *("test_ray.py", "test_page.py", "test_page_in_chromium.py"),
                *("test_figure3.py", "test_hospitals.py", "test_simulation_tables.py"),
            )
            return path if path.endswith(together) else nodeid

    return SharedStart(config, log) if config.getvalue("dist") == "load" else None


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
def bank():
    return make_bank()


@pytest.fixture
def environments():
    """Three environments of unequal size within 200 rows, and the rest."""
    return [np.arange(0, 60), np.arange(60, 100), np.arange(100, 180)]


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["wri", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return run
