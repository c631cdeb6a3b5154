"""The code of docs/howto/domainbed.md runs; stand-ins replace what is not installed."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from helpers import write_run

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "domainbed.md"
CODE = [
    re.sub("^" + indent, "", code, flags=re.MULTILINE)
    for indent, code in re.findall(
        r"^( *)```python\n(.*?)^ *```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
]
SWEEP, LOOP, REGISTER, HPARAMS, OVERLAP, LIGHTNING = CODE


def run(code, **given):
    space = dict(given)
    exec(compile(code, str(PAGE), "exec"), space)
    return space


def test_a_sweep_in_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "sweep" / "a", "PACS", "ERM", [0], {0: [(0.5, 0.6), (0.7, 0.8)]})
    run(SWEEP)
    assert "erm  50.0*" in capsys.readouterr().out


def test_an_algorithm_on_a_featurizer(capsys):
    run(LOOP)
    assert "penalty" in capsys.readouterr().out


def test_registering_in_domainbed():
    """Its list of names, its lookup by name, and its function that takes a default and a draw."""
    algorithms = run(REGISTER, ALGORITHMS=["ERM"])
    assert algorithms["ALGORITHMS"] == ["ERM", "WRI"]
    registered = {}

    def register(name, default, draw):
        registered[name] = (default, draw(np.random.RandomState(1)))

    run(HPARAMS, algorithm="WRI", _hparam=register)
    assert registered["wri_lambda"][0] == 1.0
    defaults = {name: default for name, (default, _) in registered.items()}
    drawn = {name: value for name, (_, value) in registered.items()}
    for hparams in (defaults, drawn):
        algorithm = algorithms["WRI"]((6,), 2, 2, {"lr": 1e-3, "batch_size": 32} | hparams)
        algorithm.update([(torch.randn(4, 6), torch.arange(4) % 2)] * 2)


def test_other_weights():
    algorithm = run(OVERLAP)["OverlapWRI"]((6,), 2, 2, {})
    assert algorithm.objective.weighting == "overlap"


@pytest.fixture
def lightning(monkeypatch):
    """A module that logs, with the calls that Lightning makes."""

    class LightningModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.logged = {}

        def log(self, name, value):
            self.logged[name] = float(value)

        def log_dict(self, values):
            self.logged |= values

    stand_in = ModuleType("lightning")
    stand_in.LightningModule = LightningModule
    monkeypatch.setitem(sys.modules, "lightning", stand_in)


def test_lightning(lightning):
    module = run(LIGHTNING)["module"]
    assert module.automatic_optimization is False
    assert module.configure_optimizers() is None
    before = [p.detach().clone() for p in module.parameters()]
    for step in range(3):
        module.training_step([(torch.randn(5, 6), torch.arange(5) % 2) for _ in range(3)], step)
    module.validation_step((torch.randn(5, 6), torch.arange(5) % 2), 0)
    assert module.logged.keys() == {"loss", "risk", "penalty", "accuracy"}
    assert not all(map(torch.equal, before, module.parameters()))
