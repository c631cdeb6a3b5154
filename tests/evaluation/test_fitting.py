"""Fits in Ray's workers are the fits of this process, and their failures are sentences."""

import os
import signal
import sys
from contextlib import nullcontext
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from wri.datasets.table_rows import read_rows
from wri.errors import InputError, LostBackendError
from wri.evaluation import fitting
from wri.evaluation.fitting import FitOptions, encode, fit_table, preprocessing_of
from wri.jobs import LocalRunner, RayRunner, on_ray, open_runner, run_calls
from wri.jobs import runner as contract
from wri.report.pages.fit_page import coefficient_section

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ROWS = np.zeros(3)


@pytest.fixture
def table(tmp_path):
    random = np.random.default_rng(0)
    site = np.repeat(["u", "v", "w"], 60)
    x = random.normal(size=180)
    y = np.where(x + random.normal(size=180) > 0, "ill", "well")
    kind = random.choice(["red", "blue"], 180)
    path = tmp_path / "rows.csv"
    pd.DataFrame({"x": x, "kind": kind, "y": y, "site": site}).to_csv(path, index=False)
    return path


def work(rows, job):
    if job == "bad":
        raise InputError("column 'x' is bad; drop it")
    if job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{job} on {len(rows)} rows"


def describe(job):
    return f"the fit of {job}"


def test_jobs_run_in_order_in_this_process():
    with open_runner() as runner:
        found = list(run_calls(runner, work, ROWS, ["erm", "wri"], describe))
    assert found == [("erm", "erm on 3 rows"), ("wri", "wri on 3 rows")]


def test_an_unknown_back_end_is_named():
    with pytest.raises(InputError, match=r"--backend.*local, ray"):
        open_runner("cloud")


@needs_ray
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills workers by signal 9")
@pytest.mark.slow
def test_ray_runs_the_same_jobs_and_says_what_went_wrong(table, monkeypatch, ray_runner):
    monkeypatch.setattr(ray_runner, "retries", 0)
    monkeypatch.setattr(contract, "RETRIES", 0)
    jobs = ["erm", "wri", "irm"]
    here = dict(run_calls(LocalRunner(), work, ROWS, jobs, describe))
    assert dict(run_calls(ray_runner, work, ROWS, jobs, describe)) == here
    rows = read_rows([table], "y", "site")
    options = {"steps": 30, "keep": "wri 1", "predictors": ("linear",)}
    here = fit_table(rows, FitOptions(**options))
    monkeypatch.setattr(fitting, "open_runner", lambda name: nullcontext(ray_runner))
    there = fit_table(rows, FitOptions(backend="ray", **options))
    for ours, theirs in zip(here.held_out.scores, there.held_out.scores, strict=True):
        assert (ours.environment, ours.model) == (theirs.environment, theirs.model)
        assert theirs.loss == pytest.approx(ours.loss, abs=1e-8)
    assert there.kept == here.kept
    for name, model in here.models.items():
        expected = model.predict_proba(rows.X)
        assert np.allclose(there.models[name].predict_proba(rows.X), expected, atol=1e-8)
    with pytest.raises(InputError, match="column 'x' is bad; drop it"):
        list(run_calls(ray_runner, work, ROWS, ["bad"], describe))
    with pytest.raises(InputError, match="gave up the fit of dies after 1"):
        list(run_calls(ray_runner, work, ROWS, ["dies"], describe))


def test_a_lost_ray_ends_a_fit_with_one_sentence(command, table, monkeypatch):
    def lose(runner, shared):
        raise LostBackendError("one of Ray's servers was killed or ended")

    monkeypatch.setattr(RayRunner, "start", lose)
    monkeypatch.setattr(on_ray, "find_spec", lambda name: name)
    asked = ("--target", "y", "--env", "site", "-o", "model", "--backend", "ray", "--json")
    done = command("fit", str(table), *asked)
    assert done.returncode == 3
    assert done.stdout == ""
    assert " ".join(done.stderr.split()) == (
        "wri: Ray was lost (one of Ray's servers was killed or ended); nothing was written: run "
        "the same command again, or use --backend local"
    )
    assert not (table.parent / "model").exists()


@pytest.mark.slow
def test_large_tables_are_held_out_in_threads_with_the_same_scores(table, monkeypatch):
    rows = read_rows([table], "y", "site")
    options = FitOptions(predictors=("linear",))
    here = fit_table(rows, options)
    monkeypatch.setattr(fitting, "LARGE_TABLE", 0)
    monkeypatch.setattr(fitting, "cpu_count", lambda: 2)
    plain = LocalRunner()
    assert fitting._side_by_side(rows, plain) is not plain
    there = fit_table(rows, options)
    assert there.held_out.scores == here.held_out.scores
    assert there.kept == here.kept


def test_the_report_shows_what_linear_models_use(table):
    fit = fit_table(read_rows([table], "y", "site"), FitOptions(steps=30, fast=True))
    (_, shown) = coefficient_section(fit).blocks
    names = [row[0] for row in shown.rows]
    assert names[0] == "x"  # the only column that tells something
    assert {"kind = red", "kind = blue"} <= {*names}
    x = encode(fit.rows, preprocessing_of(fit.model)).X
    coefficient = fit.estimator.coef_[0, x.columns.get_loc("x")]
    assert shown.columns == ["column", "WRI, λ = 1.6", "ERM"]
    assert float(shown.rows[0][1]) == pytest.approx(coefficient * x["x"].std(ddof=0), rel=0.01)
