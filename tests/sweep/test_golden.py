"""Results of small runs, kept: ids promise that equal sweeps give equal results.

A change that moves these numbers must raise `FORMAT` in `wri/sweep/plan.py`, so that stores of old
results are refused, and write the numbers anew: `python tests/sweep/test_golden.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from wri.objectives import OBJECTIVES
from wri.sweep import SweepSpec, gather
from wri.sweep.plan import FORMAT
from wri.training import train_stack

FILE = Path(__file__).with_name("golden.json")
STEPS = 16
TOLERANCE = 1e-4
"""Relative. Other processors order sums otherwise; a changed algorithm moves more than this."""


def golden_data():
    from wri.datasets import Environment

    random = np.random.default_rng(7)
    environments = []
    for e in range(4):
        x = random.normal(size=(40, 5)) + 0.3 * e
        y = (x[:, 0] + 0.5 * x[:, 1] * (-1) ** e + 0.3 * random.normal(size=40) > 0).astype(int)
        environments.append(Environment(f"site {e}", x, y))
    return gather("golden", environments, classes=2)


def golden_numbers(name):
    """Losses of drawn hyper-parameters in two presets, at the first and at the last checkpoint."""
    data, numbers = golden_data(), []
    for preset in ("domainbed", "table"):
        spec = SweepSpec((name,), steps=STEPS, draws=2, preset=preset, test_envs=(3,))
        for planned in spec.plan([data]):
            run = planned.run(data, data.splits(planned.trial_seed))
            (record,) = train_stack([run], checkpoint_every=STEPS, measures=("loss",))
            losses = [record.measures["loss"][split] for split in run.evaluate]
            numbers += np.array(losses).T.ravel().tolist()
    return numbers


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_results_are_those_of_this_format(name):
    kept = json.loads(FILE.read_text())
    if name not in kept["numbers"]:
        pytest.skip(f"{name} has no golden numbers yet: python {Path(__file__).name} writes them")
    assert kept["format"] == FORMAT, "write the golden numbers of this FORMAT"
    message = "results changed: raise FORMAT in wri/sweep/plan.py and write golden.json anew"
    np.testing.assert_allclose(
        golden_numbers(name), kept["numbers"][name], rtol=TOLERANCE, err_msg=message
    )


def test_a_changed_result_would_be_seen():
    """A learning rate 1 % larger moves the numbers by more than the tolerance."""
    data = golden_data()
    losses = []
    for rate in (0.01, 0.0101):
        spec = SweepSpec(("erm",), steps=STEPS, test_envs=(3,), overrides={"learning_rate": rate})
        (planned,) = spec.plan([data])
        (record,) = train_stack([planned.run(data, data.splits(0))], measures=("loss",))
        losses.append(record.measures["loss"]["env0_in"][-1])
    assert abs(losses[1] / losses[0] - 1) > TOLERANCE


if __name__ == "__main__":
    rounded = {
        name: [float(f"{number:.8g}") for number in golden_numbers(name)] for name in OBJECTIVES
    }
    FILE.write_text(json.dumps({"format": FORMAT, "numbers": rounded}, indent=0) + "\n")
