"""An objective in a file outside the package: registered, swept, estimated, checked."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import wri
from wri.densities import Gaussian
from wri.errors import InputError
from wri.objectives import ERM, OBJECTIVES, Objective, VREx, make_objective
from wri.objectives.plugins import load_installed, load_plugin
from wri.testing import check_density, check_objective

TOY = '''"""The mean risk and a multiple of the largest one."""

from dataclasses import dataclass

from wri.objectives import Objective
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting


@dataclass(frozen=True)
class Worst(Objective):
    """The worst environment counts twice."""

    name = "worst"
    penalises_losses = True
    own_hyperparameters = (
        HyperParameter(
            name="penalty_weight",
            meaning="λ, weight of the largest risk",
            settings={"domainbed": Setting(0.5, LogUniform(0.1, 1.0))},
        ),
    )

    def loss(self, model, batch, state, context):
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        return risks.mean(-1) + context.hyper["penalty_weight"] * risks.amax(-1), state
'''


@pytest.fixture(autouse=True)
def forgotten_modules(restored_registries):
    """Each test imports its own files."""
    yield
    for name in ("worst_risk", "broken_plugin"):
        sys.modules.pop(name, None)


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "worst_risk.py"
    path.write_text(TOY)
    return path


@pytest.mark.slow
def test_a_file_outside_the_package_is_registered_estimated_and_checked(toy):
    load_plugin(str(toy))
    kind = OBJECTIVES["worst"]
    assert make_objective("worst") == kind()
    check_objective(kind())
    random = np.random.default_rng(0)
    x, site = random.normal(size=(90, 2)), np.repeat([0, 1, 2], 30)
    model = wri.estimator(kind)(steps=20, site_spread=False).fit(x, x[:, 0] > 0, groups=site)
    assert type(model).__name__ == "WorstClassifier"
    assert type(model).__doc__.startswith("Worst classifier: The worst environment counts twice.")
    assert wri.estimator(kind) is type(model)
    model.save(toy.parent / "model")
    loaded = wri.estimators.load(toy.parent / "model")
    np.testing.assert_array_equal(loaded.predict_proba(x), model.predict_proba(x))
    assert wri.estimator(kind, "regressor").__name__ == "WorstRegressor"


def test_it_can_be_swept_by_its_name(toy):
    from helpers import make_data
    from wri.sweep import Store, Sweep, SweepSpec, run_sweep

    load_plugin(str(toy))
    sweep = Sweep(SweepSpec(("worst", "erm"), steps=6, test_envs=(0,)), [make_data()])
    with Store(toy.parent / "sweep.db", write=True) as store:
        assert run_sweep(sweep, store) == 2
        assert {each.algorithm for each in store.outcomes()} == {"worst", "erm"}


def test_the_command_line_takes_a_plugin_from_its_folder(toy, command):
    asked = ("--datasets", "hospitals", "--algorithms", "worst,erm", "--plugin", "worst_risk")
    done = command("sweep", *asked, "--steps", "10", "--trials", "1", "--store", "s.db")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^worst +\d", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_ray_workers_know_the_plugin_and_give_the_same_rows_as_this_process(toy, command):
    size = ("--datasets", "simulation", "--algorithms", "worst,erm", "--trials", "2")
    asked = ("sweep", *size, "--plugin", "worst_risk", "--steps", "20", "--json", "--store")
    ours, other = (
        json.loads(command(*asked, f"{name}.db", "--backend", name).stdout)
        for name in ("ray", "local")
    )
    assert ours["trained"] == other["trained"] == 16
    assert {row["algorithm"] for row in ours["rows"]} == {"worst", "erm"}
    assert ours["rows"] == other["rows"]


@pytest.mark.slow
def test_processes_that_this_one_starts_know_the_plugin(toy):
    load_plugin(str(toy))
    assert os.environ["WRI_PLUGINS"] == str(toy)
    code = "from wri.objectives import make_objective; print(make_objective('worst'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "Worst()", done.stderr


def test_installed_distributions_are_found_and_broken_ones_are_named(tmp_path, monkeypatch):
    (tmp_path / "worst_risk.py").write_text(TOY)
    folder = tmp_path / "worst_risk-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: worst-risk\nVersion: 1.0\n")
    points = "[wri.objectives]\nworst = worst_risk:Worst\nlost = worst_risk:Lost\n"
    (folder / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="'lost' of worst_risk:Lost cannot be used: Attribute"):
        load_installed()
    assert OBJECTIVES["worst"].__name__ == "Worst"


@dataclass(frozen=True)
class Nameless(VREx):
    pass


@dataclass(frozen=True)
class Taken(ERM):
    name = "erm"


@dataclass(frozen=True)
class Lacking(Objective):
    name = "lacking"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Nameless, "Nameless needs a class attribute name of its own"),
        (Taken, r"there is another objective 'erm', wri.objectives.erm.ERM; choose a new name"),
        (Lacking, "Lacking lacks loss"),
        (int, "takes a class of objectives or densities"),
    ],
)
def test_a_class_that_cannot_be_registered_is_told_why(kind, sentence):
    with pytest.raises(InputError, match=sentence):
        wri.register(kind)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError: No module"),
        ("x = 1", "defines no objective and no density"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_told_why(text, sentence, tmp_path):
    path = tmp_path / "broken_plugin.py"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence):
        load_plugin(str(path))


def test_trees_need_a_penalty_of_losses():
    with pytest.raises(InputError, match="set penalises_losses = True in its class"):
        wri.estimator(OBJECTIVES["coral"], boosted=True)


@dataclass(frozen=True)
class Faulty(Objective):
    """Mean risk plus a penalty with a fault."""

    fault: str
    name = "faulty"
    own_hyperparameters = VREx.own_hyperparameters

    def loss(self, model: Any, batch: Any, state: Any, context: Any) -> Any:
        losses = model.losses(batch.x, batch.y)  # [R, E, B]
        risks = batch.mean(losses)
        weight, mean = context.hyper["penalty_weight"], risks.mean(-1)
        if self.fault == "mixes runs":
            return mean + weight * (risks - risks.mean()).square().mean(-1), state
        if self.fault == "ignores padding":
            return losses.mean((1, 2)) + weight * risks.var(-1), state
        if self.fault == "root at zero":
            return mean + weight * (0 * risks.var(-1)).sqrt(), state
        if self.fault == "not erm":
            return risks.amax(-1) + weight * risks.var(-1), state
        if self.fault == "raises":
            return mean + weight * losses.sum(-1), state
        return mean + weight * risks.var(-1), state


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("mixes runs", "fails 'a run in a stack equals the run alone': run 0 of seven differs"),
        ("ignores padding", "fails 'a run in a stack .* average rows with batch.mean"),
        ("root at zero", "fails 'a run in a stack .*: run 0 diverges at step .*at zero may be"),
        ("not erm", "fails 'without penalty it is ERM': with penalty_weight = 0, anneal_steps = 0"),
        ("raises", "fails 'a run in a stack .*: RuntimeError: The size of tensor"),
    ],
)
def test_a_broken_objective_gets_the_sentence_that_names_its_fault(fault, sentence):
    with pytest.raises(AssertionError, match=f"Faulty {sentence}"):
        check_objective(Faulty(fault))


def test_the_same_objective_without_a_fault_passes():
    check_objective(Faulty("none"))


@dataclass(frozen=True)
class Blurred(Gaussian):
    """Gaussian that looks at all runs."""

    def log_density(self, flat, x, environments, hyper):
        found = super().log_density(flat, x, environments, hyper)
        return found - found.mean(0, keepdim=True)


@dataclass(frozen=True)
class Turned(Gaussian):
    """Gaussian whose axes are in another order."""

    def log_density(self, flat, x, environments, hyper):
        return torch.movedim(super().log_density(flat, x, environments, hyper), 1, -1)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Blurred, "Blurred fails 'every density at every point and at its own': log_density_own"),
        (Turned, r"has the shape \(2, 3, 5, 3\), not \(2, 3, 3, 5\)"),
    ],
)
def test_a_broken_density_gets_the_sentence_that_names_its_fault(kind, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_density(kind())


def test_a_registered_density_can_be_named_in_a_specification():
    from wri.training import ModelSpec

    @dataclass(frozen=True)
    class Narrow(Gaussian):
        pass

    wri.register(Narrow)
    spec = ModelSpec.of("wri", options={"density": Narrow()})
    assert ModelSpec.from_dict(spec.as_dict()) == spec
