"""Jobs give the same results in this thread, in threads and in processes."""

import os
import signal
import sys
import warnings
from functools import partial
from itertools import count
from time import sleep

import numpy as np
import pytest

from wri.jobs import Jobs, LocalRunner

RUNNERS = {
    "here": LocalRunner,
    "threads": partial(LocalRunner, 2),
    "processes": partial(LocalRunner, 2, lambda job: True),
}
FACTORS = np.arange(3000.0)


def step_forever(job, report):
    for step in count(1):
        report(step)
        sleep(0.01)


def multiply(factors, job, report):
    report(job)
    return job * factors[-1]


@pytest.mark.parametrize("where", RUNNERS)
@pytest.mark.slow
def test_results_do_not_depend_on_where_jobs_run(where):
    steps = {}
    work = partial(multiply, FACTORS)
    jobs = Jobs(work=work, jobs=[5, 7, 9], shared=[FACTORS], on_steps=steps.__setitem__)
    with RUNNERS[where]() as runner:
        found = {ended.number: ended.result for ended in runner.run(jobs)}
    assert found == {0: 5 * 2999.0, 1: 7 * 2999.0, 2: 9 * 2999.0}
    assert set(steps.items()) <= {(0, 5), (1, 7), (2, 9), (0, 0), (1, 0), (2, 0)}


def refuse(job, report):
    if job == 1:
        raise ValueError("job 1 is wrong")
    warnings.warn("few rows", RuntimeWarning, stacklevel=2)


@pytest.mark.parametrize("where", RUNNERS)
@pytest.mark.slow
def test_the_error_of_a_job_is_raised(where):
    with RUNNERS[where]() as runner, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="job 1 is wrong"):
            list(runner.run(Jobs(work=refuse, jobs=[0, 1, 2])))


@pytest.mark.slow
def test_a_warning_of_several_workers_is_given_once():
    with RUNNERS["processes"]() as runner, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(runner.run(Jobs(work=refuse, jobs=[0, 2, 3])))) == 3
    assert [str(each.message) for each in caught] == ["few rows"]


def die_at_first(folder, job, report):
    """Kill the worker at the first try of a job."""
    if not (folder / str(job)).exists():
        (folder / str(job)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return job


@pytest.mark.skipif(sys.platform == "win32", reason="kills workers by signal 9")
@pytest.mark.slow
def test_jobs_whose_workers_die_are_tried_again_and_given_up_alone(tmp_path):
    runner = RUNNERS["processes"]()
    jobs = Jobs(work=partial(die_at_first, tmp_path), jobs=[0, 1])
    assert sorted(ended.result for ended in runner.run(jobs)) == [0, 1]
    (tmp_path / "1").unlink()
    runner.retries = 0
    lost = {ended.number: ended.lost for ended in runner.run(jobs)}
    assert lost == {0: None, 1: "its worker process died"}


def scale_what_is_sent(factors, job, report):
    job[0] *= factors[0]  # the job is a copy, shared rows are mapped
    return job, isinstance(factors.base.base, np.memmap)


@pytest.mark.slow
def test_shared_arrays_are_mapped_and_jobs_are_copies():
    shared, job = np.full(3000, 2.0), np.ones(2)
    jobs = Jobs(work=partial(scale_what_is_sent, shared), jobs=[job], shared=[shared])
    ((_, (scaled, mapped), _),) = LocalRunner(1, lambda job: True).run(jobs)
    assert mapped
    assert scaled.tolist() == [2.0, 1.0]
    assert job.tolist() == [1.0, 1.0]
