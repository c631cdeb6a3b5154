"""A sweep that is killed goes on as if it had not been."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import make_data
from wri.errors import InputError
from wri.sweep.local import forecast, sweep
from wri.sweep.plan import Question
from wri.sweep.store import Store
from wri.sweep.tables import as_rows, build

QUESTION = Question(
    ("erm", "irm", "vrex", "wri"), draws=3, trials=2, steps=80, overrides={"density_steps": 1.0}
)
WORKER = """
import sys
from pathlib import Path
from helpers import make_data
from test_interruption import QUESTION
from wri.sweep.local import sweep
from wri.sweep.store import Store

with Store(Path(sys.argv[1]), write=True) as store:
    print("started", flush=True)
    sweep(QUESTION, [make_data(rows=60)], store)
"""


def start(path):
    here = Path(__file__).parent
    folders = [str(here), str(here.parent)]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {folders}\n{WORKER}", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(path):
    with Store(path, write=True) as store:
        trained = sweep(QUESTION, [make_data(rows=60)], store)
        return trained, store.outcomes(), store.described()


def test_three_kills_change_nothing(tmp_path):
    random = np.random.default_rng()
    disturbed = tmp_path / "disturbed.db"
    for _ in range(3):
        process = start(disturbed)
        assert process.stdout.readline() == "started\n"
        time.sleep(random.uniform(0, 4))
        process.kill()
        process.wait()
        process.stdout.close()
    trained, outcomes, described = finish(disturbed)
    whole, expected, _ = finish(tmp_path / "undisturbed.db")
    assert whole == len(expected) == 4 * 3 * 2 * 4
    assert trained <= whole
    assert len(outcomes) == len(expected)
    for ours, other in zip(outcomes, expected, strict=True):
        assert (ours.algorithm, ours.test_envs) == (other.algorithm, other.test_envs)
        for split in other.accuracy:
            assert np.array_equal(ours.accuracy[split], other.accuracy[split], equal_nan=True)
    rows = [as_rows(build(each, described)) for each in (outcomes, expected)]
    assert rows[0] == rows[1]


def test_ctrl_c_keeps_what_is_finished_and_a_second_sweep_trains_the_rest(tmp_path):
    path, question = tmp_path / "s.db", Question(("erm", "groupdro"), trials=2, steps=5)

    def interrupt(done, of):
        if done > of / 2:
            raise KeyboardInterrupt

    with Store(path, write=True) as store:
        with pytest.raises(KeyboardInterrupt):
            sweep(question, [make_data()], store, interrupt)
        kept = len(store.finished())
        assert sweep(question, [make_data()], store) == 16 - kept
        assert sweep(question, [make_data()], store) == 0


def test_more_trials_train_only_what_is_new(tmp_path):
    with Store(tmp_path / "s.db", write=True) as store:
        assert sweep(Question(("erm",), steps=3), [make_data()], store) == 4
        assert sweep(Question(("erm",), trials=2, steps=3), [make_data()], store) == 4
        with pytest.raises(InputError, match="holds runs with steps = 3, not 4"):
            sweep(Question(("erm",), trials=2, steps=4), [make_data()], store)
        assert len(store.known()) == 8


def test_stacks_fit_into_the_memory_given(tmp_path):
    question = Question(("erm",), draws=4, trials=4, steps=2)
    sizes = {}
    for memory in (2e9, 1e6):
        with Store(tmp_path / f"{memory}.db", write=True) as store:
            sweep(question, [make_data(rows=200)], store, memory=memory)
            assert len(store.finished()) == 64
            stacks = store._read("SELECT stack, count(*) FROM runs GROUP BY stack")
            sizes[memory] = max(count for _, count in stacks)
    assert sizes[1e6] < sizes[2e9]


def test_a_forecast_counts_and_writes_nothing(tmp_path):
    question = Question(("erm", "wri"), draws=2, trials=2, steps=100)
    found = forecast(question, [make_data()], None)
    assert (found.runs, found.finished) == (32, 0)
    assert found.seconds > 0
    assert found.memory > 0
    assert "32 runs, 0 of them finished" in str(found)
    with Store(tmp_path / "s.db", write=True) as store:
        sweep(Question(("erm",), steps=100), [make_data()], store)
        assert forecast(question, [make_data()], store).finished == 4
        assert len(store.known()) == 4
