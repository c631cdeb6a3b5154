import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch

from helpers import make_bank
from wri import cli

torch.set_num_threads(1)  # tiny tensors: a second thread only waits


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
