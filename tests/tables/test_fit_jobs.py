"""Fits in Ray's workers are the fits of this process, and their failures are sentences."""

import os
import signal
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from wri.errors import InputError, LostBackendError
from wri.tables import fit_jobs
from wri.tables.coefficients import coefficient_section
from wri.tables.fit_jobs import FitJob, LocalRunner, RayRunner, open_runner
from wri.tables.fitting import FitOptions, fit_table, prepared_columns
from wri.tables.held_out import SiteData
from wri.tables.reading import read_rows

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
DATA = SiteData(np.zeros((3, 1)), np.zeros(3), np.array(["a", "b", "c"]), None)


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


def work(data, job):
    if job.algorithm == "bad":
        raise InputError("column 'x' is bad; drop it")
    if job.algorithm == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{job.algorithm} without {job.held_out} of {len(data.y)} rows"


def test_jobs_run_in_order_in_this_process():
    jobs = [FitJob("erm", "a"), FitJob("wri")]
    with open_runner() as runner:
        found = list(runner.run(work, DATA, jobs))
    assert found == [(jobs[0], "erm without a of 3 rows"), (jobs[1], "wri without None of 3 rows")]


def test_an_unknown_back_end_is_named():
    with pytest.raises(InputError, match=r"--backend.*local, ray"):
        open_runner("cloud")


@needs_ray
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills workers by signal 9")
@pytest.mark.slow
def test_ray_runs_the_same_jobs_and_says_what_went_wrong(table, monkeypatch, ray_session):
    class SharedRunner(RayRunner):
        def __init__(self):
            super().__init__(workers=2)
            self._session = ray_session

        def close(self):
            """Leave Ray running for other tests."""

    monkeypatch.setattr(fit_jobs, "RETRIES", 0)
    monkeypatch.setitem(fit_jobs.RUNNERS, "ray", SharedRunner)
    runner = SharedRunner()
    jobs = [FitJob("erm", "a"), FitJob("wri", "b"), FitJob("wri")]
    assert dict(runner.run(work, DATA, jobs)) == dict(LocalRunner().run(work, DATA, jobs))
    with pytest.raises(InputError, match="column 'x' is bad; drop it"):
        list(runner.run(work, DATA, [FitJob("bad", "a")]))
    with pytest.raises(InputError, match="gave up the fit of dies without site 'a' after 1"):
        list(runner.run(work, DATA, [FitJob("dies", "a")]))
    rows = read_rows([table], "y", "site")
    options = {"steps": 30, "keep": "wri 1", "predictors": ("linear",)}
    here = fit_table(rows, FitOptions(**options))
    there = fit_table(rows, FitOptions(backend="ray", **options))
    for ours, theirs in zip(here.held_out.scores, there.held_out.scores, strict=True):
        assert (ours.environment, ours.model) == (theirs.environment, theirs.model)
        assert theirs.loss == pytest.approx(ours.loss, abs=1e-8)
    assert there.kept == here.kept
    for name, model in here.models.items():
        expected = model.predict_proba(rows.frame)
        assert np.allclose(there.models[name].predict_proba(rows.frame), expected, atol=1e-8)


def test_a_lost_ray_ends_a_fit_with_one_sentence(command, table, monkeypatch):
    class LostSession:
        closed = False

        def __init__(self, *size, **sizes):
            raise LostBackendError("one of Ray's servers was killed or ended")

    monkeypatch.setattr(fit_jobs, "RaySession", LostSession)
    monkeypatch.setattr(fit_jobs, "check_ray", lambda: None)
    asked = ("--target", "y", "--env", "site", "-o", "model", "--backend", "ray", "--json")
    done = command("fit", str(table), *asked)
    assert done.returncode == 3
    assert done.stdout == ""
    assert " ".join(done.stderr.split()) == (
        "wri: Ray was lost (one of Ray's servers was killed or ended); nothing was written: give "
        "the same command again, or use --backend local"
    )
    assert not (table.parent / "model").exists()


@pytest.mark.slow
def test_the_report_shows_what_linear_models_use(table):
    fit = fit_table(read_rows([table], "y", "site"), FitOptions(steps=30, fast=True))
    (_, shown) = coefficient_section(fit).blocks
    names = [row[0] for row in shown.rows]
    assert names[0] == "x"  # the only column that tells something
    assert {"kind = red", "kind = blue"} <= {*names}
    x, columns = prepared_columns(fit.model, fit.data.X)
    coefficient = fit.estimator.coef_[0, columns.index("x")]
    assert shown.columns == ["column", "WRI, λ = 1.6", "ERM"]
    assert float(shown.rows[0][1]) == pytest.approx(coefficient * x[:, 0].std(), rel=0.01)
