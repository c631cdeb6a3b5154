"""One registry: adding an objective is its file and one line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import wri
from wri.estimators import ESTIMATORS
from wri.objectives import OBJECTIVES
from wri.registry import ALGORITHMS, BOOSTED
from wri.registry import OBJECTIVES as ENTRIES

ROOT = Path(wri.__file__).parent

TOY = '''"""A toy: the mean risk and the largest one.

    mean_e R_e + λ · max_e R_e
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wri.objectives.base import Batch, Model, Objective, StepContext
from wri.objectives.hyperparameters import HyperParameter, LogUniform, Setting


@dataclass(frozen=True)
class Toy(Objective):
    name = "toy"
    own_hyperparameters = (
        HyperParameter(
            name="penalty_weight",
            meaning="λ, weight of the largest risk",
            settings={"domainbed": Setting(0.5, LogUniform(0.1, 1.0))},
        ),
    )

    def loss(
        self, model: Model, batch: Batch, state: Any, context: StepContext
    ) -> tuple[Tensor, Any]:
        risks = batch.mean(model.losses(batch.x, batch.y))  # [R, E]
        return risks.mean(-1) + context.hyper["penalty_weight"] * risks.amax(-1), state
'''
LINE = '        ObjectiveEntry("toy", "Toy", GREEN, "the worst environment counts twice"),\n'
USE_TOY = """
import sys, wri
from wri import cli
from wri.datasets import hospitals, joined
from wri.objectives import make_objective
from wri.testing import check_objective

check_objective(make_objective("toy"))
x, y, site = joined(hospitals(50, 0))
model = wri.ToyClassifier(steps=20, site_spread=False).fit(x, y, groups=site)
model.save("model")
wri.ToyClassifier.load("model")
wri.ToyRegressor(steps=20, site_spread=False).fit(x, x[:, 0], groups=site)
print(model.spec_.objective, wri.ToyClassifier.__doc__.splitlines()[0])
sweep = "sweep --datasets hospitals --algorithms toy erm --steps 10 --trials 1 --draws 2"
for command in (sweep + " --store s.db", "sweep --help"):
    print("=====", flush=True)
    sys.argv = ["wri", *command.split()]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code
"""


@pytest.fixture
def with_toy(tmp_path):
    """A copy of the package with one more objective, made as CONTRIBUTING says."""
    package = tmp_path / "src" / "wri"
    shutil.copytree(ROOT, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "objectives" / "toy.py").write_text(TOY)
    registry = package / "registry.py"
    text = registry.read_text()
    last = re.search(r'        ObjectiveEntry\("wri".*\n', text)[0]
    registry.write_text(text.replace(last, last + LINE))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "OMP_NUM_THREADS": "1"}

    def run(script):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_an_objective_is_added_by_its_file_and_one_line(with_toy):
    fitted, swept, helped = with_toy(USE_TOY).split("=====\n")
    assert fitted.strip() == "Toy() Toy classifier: the worst environment counts twice."
    assert re.search(r"^toy +\d", swept, re.MULTILINE), swept
    assert "toy" in helped


def test_everything_is_derived_from_the_registry():
    assert list(OBJECTIVES) == list(ENTRIES)
    assert all(OBJECTIVES[name].name == name for name in OBJECTIVES)
    labels = [entry.label for entry in ENTRIES.values()]
    assert [name for name in OBJECTIVES if OBJECTIVES[name].penalises_losses] == list(BOOSTED)
    trees = [f"{ENTRIES[name].label}Boosting" for name in BOOSTED]
    assert list(ESTIMATORS) == [
        f"{label}{kind}"
        for own in (labels, trees)
        for kind in ("Classifier", "Regressor")
        for label in own
    ]
    assert list(ESTIMATORS) == list(wri.ESTIMATORS)
    assert list(ALGORITHMS) == [*OBJECTIVES, *(f"{name}-boosting" for name in BOOSTED)]
    assert len({entry.colour for entry in ALGORITHMS.values()}) == len(ALGORITHMS)
    assert len({entry.colour for entry in ENTRIES.values()}) == len(ENTRIES)
    for name, estimator in ESTIMATORS.items():
        assert getattr(wri, name) is estimator
        assert name in wri.__all__


def test_help_of_an_estimator_is_complete():
    text = wri.WRIClassifier.__doc__
    assert text.startswith("WRI classifier: weighted risk invariance.")
    for parameter in wri.WRIClassifier().get_params():
        assert re.search(rf"^{parameter} : .*default=", text, re.MULTILINE), parameter
    for attribute in ("spec_", "environments_", "evidence_"):
        assert re.search(rf"^{attribute} : ", text, re.MULTILINE), attribute
    assert "Wong" in text.partition("References")[2].partition("Examples")[0]


def test_help_of_an_estimator_of_trees_is_complete():
    text = wri.WRIBoostingRegressor.__doc__
    assert text.startswith("WRI regressor with boosted trees: weighted risk invariance.")
    for parameter in wri.WRIBoostingRegressor().get_params():
        assert re.search(rf"^{parameter} : ", text, re.MULTILINE), parameter
    for attribute in ("spec_", "feature_importances_", "categories_"):
        assert attribute in text
