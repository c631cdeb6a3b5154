"""The benchmark's single runs do the work of the stack, and it prints what it promises."""

import importlib
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import make_bank, make_run, train_steps, with_spec
from wri.densities import LabelAwareClassifier
from wri.objectives import OBJECTIVES, WRI, make_objective
from wri.stacked import Streams
from wri.training.sampler import Sampler, StackDraws, StackedRows

FOLDER = Path(__file__).parents[1] / "benchmarks"
STEPS = 12
EIGHT = ("erm", "irm", "vrex", "groupdro", "mixup", "mldg", "coral", "wri")
"""Those of the paper; an objective that comes later is compared if the benchmark has it."""


@pytest.fixture
def single_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("single_runs")


@pytest.mark.parametrize("name", EIGHT)
def test_a_single_run_as_people_write_it_ends_where_the_stack_ends(name, single_runs):
    """Eight algorithms written twice: the same weights after twelve steps on the same batches."""
    hyper = {"batch_size": 16, "weight_decay": 0.01, "anneal_steps": 3, "meta_test": 1}
    hyper |= {"density_every": 2, "density_steps": 3, "density_batch_size": 8}
    known = {parameter.name for parameter in OBJECTIVES[name].hyperparameters()}
    hyper = {key: value for key, value in hyper.items() if key in known}
    train = [np.arange(0, 60), np.arange(60, 120), np.arange(120, 180)]
    run = make_run(make_objective(name), make_bank(width=8), train, hyper, seed=3, hidden=(4, 2))
    (record,) = train_steps([run], STEPS, dtype=torch.float64)

    algorithm = single_runs.ALGORITHMS[name](8, 3, dict(run.hyper))
    copy_weights(algorithm.network, run.network.initial([3]), run.network.packing)
    if name == "wri":
        density = run.objective.density
        packing = density._network(3, 8).packing
        copy_weights(algorithm.densities, density.initial([3], 3, 8), packing)
    feed(algorithm, with_spec(run, precision="double"))
    ours = torch.cat([p.detach().flatten() for p in algorithm.network.parameters()])
    np.testing.assert_allclose(ours, record.parameters, rtol=0, atol=1e-9)
    if name == "wri":
        ours = torch.cat([p.detach().flatten() for p in algorithm.densities.parameters()])
        np.testing.assert_allclose(ours, record.state[0], rtol=0, atol=1e-9)


def test_a_single_recommended_run_ends_where_the_stack_ends(single_runs):
    hyper = {"batch_size": 16, "anneal_steps": 3, "ramp_steps": 4}
    train = [np.arange(0, 60), np.arange(60, 120), np.arange(120, 180)]
    density = LabelAwareClassifier(steps=20, refit_steps=20)
    objective = replace(make_objective("wri", **WRI.presets["coloured"]), density=density)
    run = make_run(
        objective, make_bank(width=8), train, hyper, seed=3, hidden=(4, 2), preset="coloured"
    )
    (record,) = train_steps([run], STEPS, dtype=torch.float64)

    algorithm = single_runs.ALGORITHMS["wri recommended"](8, 3, dict(run.hyper))
    copy_weights(algorithm.network, run.network.initial([3]), run.network.packing)
    algorithm.steps = STEPS
    flat = torch.tensor(record.state)
    algorithm.densities = lambda x: density.log_density(flat, x[None], 3, {})[0]
    feed(algorithm, with_spec(run, precision="double"))
    ours = torch.cat([p.detach().flatten() for p in algorithm.network.parameters()])
    assert np.abs(record.parameters - run.network.initial([3])[0]).max() > 1e-2
    np.testing.assert_allclose(ours, record.parameters, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_recommended_weights_of_a_single_run_tell_environments(single_runs):
    """Fitted as people write it: rows are more common where they come from."""
    torch.manual_seed(0)
    x = torch.randn(2, 300, 4) + torch.tensor([0.0, 1.5])[:, None, None]
    y = torch.randint(2, (2, 300))
    densities = single_runs.LabelAware(2, 4, 2)
    densities.fit(x, y)
    with torch.no_grad():
        logs = densities(x)  # [density, rows, row]
    assert (logs.argmax(0) == torch.arange(2)[:, None]).double().mean() > 0.85


@pytest.fixture
def children_here(monkeypatch, capsys):
    """Python processes that a benchmark starts run in this one, which has imported PyTorch."""

    def run(command, **options):
        python, *arguments = command
        assert python == sys.executable
        start = runpy.run_path
        if arguments[0] == "-m":
            start = runpy.run_module
            del arguments[0]
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", arguments)
            try:
                start(arguments[0], run_name="__main__")
            except SystemExit as end:
                if end.code:
                    pytest.fail(f"{command} ended with {end.code}")
        return subprocess.CompletedProcess(command, 0, capsys.readouterr().out)

    monkeypatch.setattr(subprocess, "run", run)


def copy_weights(module, rows, packing):
    module.double()
    for parameter, piece in zip(
        module.parameters(), packing.views(torch.tensor(rows)), strict=True
    ):
        parameter.data = piece.reshape(parameter.shape).clone()


def feed(algorithm, run):
    """Give the algorithm the batches and draws that the run's seed gives the stack."""
    algorithm.reset()
    features = StackedRows([run], "cpu")
    random = Streams([run.seed], "objective", torch.float64, "cpu")
    algorithm.order = lambda n: random.permutations(n)[0]
    algorithm.shares = lambda n: random.beta(torch.tensor([run.hyper["alpha"]]), n)[0]
    draws = StackDraws([run], features, torch.float64)

    def density_batches():
        while True:
            for drawn in draws.density_rows([0], [int(run.hyper["density_steps"])]):
                batch = draws.batch(drawn.rows)
                yield from zip(batch.x[0], batch.y[0], strict=True)

    algorithm.draw = density_batches().__next__
    sampler = Sampler([run], features, [int(run.hyper["batch_size"])], "batches", torch.float64)
    for drawn in sampler.stream(STEPS):
        batch = features.batch(drawn.rows)
        algorithm.update(batch.x[0], batch.y[0])


@pytest.mark.slow
@pytest.mark.usefixtures("children_here")
def test_stack_vs_loop_prints_its_ratios(printed_by):
    tiny = "--steps 1 --stack 2 --lean 1 --usual 1 --objectives wri"
    result = printed_by("benchmarks/stack_vs_loop.py", tiny)
    for key in ("ratios", "ratios_tensor_loop"):
        assert set(result[key]) == {"wri"}
        assert all(value > 0 for value in result[key].values())
    assert set(result["seconds_per_run"]["wri"]) == {"stack", "lean", "usual"}
    assert result["peak_mb"] > 0


@pytest.mark.slow
@pytest.mark.usefixtures("children_here")
def test_sweep_speed_prints_its_ratios(printed_by):
    result = printed_by(
        "benchmarks/sweep_speed.py", "--steps 1 --draws 1 --trials 1 --usual 1 --algorithms erm"
    )
    assert result["ratios"]["erm"] == result["usual"]["erm"] / result["seconds_per_run"]["erm"]
    assert result["usual"]["erm"] == result["walls"]["erm"][0]
    assert "peak_mb" in result


@pytest.mark.slow
@pytest.mark.usefixtures("children_here")
def test_estimator_scale_measures_time_and_memory(printed_by):
    lines = printed_by("benchmarks/estimator_scale.py", "--quick --estimators ERMClassifier/4")
    assert [line["rows"] for line in lines] == [2000, 4000]
    assert lines[1]["ratio"] == lines[1]["seconds"] / lines[0]["seconds"]
    assert all(line["megabytes"] > 50 for line in lines)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory per load is measured on Linux")
def test_damaged_files_are_refused_or_say_what_was_written(printed_by):
    result = printed_by("benchmarks/fuzz_files.py", "--folders 20 --stores 20 --models 4 --seed 3")
    for damaged in ("folders", "pipelines", "stores"):
        assert sum(result[damaged].values()) == 20
    assert len(result["models"]) == 8
    for bad in ("foreign", "silent", "crash", "heavy", "slow", "nan"):
        assert result[bad] == 0


@pytest.mark.slow
def test_predict_speed_tells_reading_evaluation_and_writing_apart(printed_by):
    result = printed_by("benchmarks/predict_speed.py", "--rows 3000 --train 300")
    assert result["rows"] == 3000
    assert set(result["rows_per_second"]) == {"reading", "evaluation", "writing"}
    assert 100 < result["largest_mb"] < 2000


@pytest.mark.slow
def test_scaling_prints_its_curves(printed_by):
    result = printed_by(
        "benchmarks/scaling.py", "--axes runs --most 1 --algorithms wri --least 0.1"
    )
    curve = result["runs"]["wri"]
    assert len(curve["sizes"]) == len(curve["seconds"]) == len(curve["memory"]) == 1
    assert min(curve["seconds"]) > 0
