"""Memory: what is forecast is what the process takes, and limits hold."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from wri.errors import InputError
from wri.sweep import Sweep, SweepSpec
from wri.sweep.data import SweepData
from wri.sweep.sweep import count_side_by_side, stack_memory
from wri.training import Bank

ROWS, COLUMNS = 800, 10_000
TABLE = 8 * ROWS * COLUMNS / 1e6  # MB

MEASURE = """
import sys
from pathlib import Path

def peak(kind="VmHWM"):
    return int(Path("/proc/self/status").read_text().split(kind + ":")[1].split()[0]) / 1e3

def start():
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    return peak()

from wri.sweep import Store, Sweep, SweepSpec, forecast, run_sweep
from wri.sweep.data import load_file

wide, small = Path(sys.argv[1]), Path(sys.argv[2])
load_file(small, "y", "e")
before = start()
data = load_file(wide, "y", "e")
reading = peak() - before
kept = peak("VmRSS") - before
spec = SweepSpec(("erm",), trials=1, steps=3, preset="table", test_envs=(0,))
sweep = Sweep(spec, [data])
expected = forecast(sweep, None).memory / 1e6
start()
with Store(wide.with_suffix(".db"), write=True) as store:
    run_sweep(sweep, store)
print(reading, kept, expected, peak())
"""


def write_table(path, rows, columns):
    """Rows of numbers from four environments."""
    random = np.random.default_rng(0)
    lines = [",".join(f"{x:.6f}" for x in random.normal(size=columns)) for _ in range(5)]
    with path.open("w") as file:
        file.write("y,e," + ",".join(f"x{n}" for n in range(columns)) + "\n")
        for n in range(rows):
            file.write(f"{n % 2},{'abcd'[n // 2 % 4]},{lines[n % 5]}\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
@pytest.mark.slow
def test_a_wide_table_takes_what_is_forecast(tmp_path):
    write_table(tmp_path / "wide.csv", ROWS, COLUMNS)
    write_table(tmp_path / "small.csv", 40, 3)
    command = [sys.executable, "-c", MEASURE, tmp_path / "wide.csv", tmp_path / "small.csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    reading, kept, expected, taken = map(float, done.stdout.split())
    assert reading < 4.5 * TABLE  # text, places of cells, the columns and the rows
    assert kept < 2 * TABLE
    assert taken == pytest.approx(expected, rel=0.2)


def wide_data(rows=200, columns=1000):
    random = np.random.default_rng(0)
    bank = Bank(random.normal(size=(rows, columns)), np.arange(rows) % 2)
    return SweepData(name="wide", names=("a", "b", "c", "d"), bank=bank, sizes=(rows // 4,) * 4)


def test_a_run_that_does_not_fit_is_refused():
    spec = SweepSpec(("erm",), trials=1, preset="table")
    sweep = Sweep(spec, [wide_data()])
    (run, *_) = (sweep.run(planned) for planned in sweep.planned)
    Sweep(spec, sweep.datasets, memory=1.01 * stack_memory([run]))
    with pytest.raises(InputError, match=r"a run needs about .* GB of memory, but .* is left"):
        Sweep(spec, sweep.datasets, memory=0.9 * stack_memory([run]))


def test_stacks_train_side_by_side_as_far_as_they_fit(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert count_side_by_side([1.0, 3.0, 2.0, 1.0], 6.0) == 3
    assert count_side_by_side([1.0, 3.0, 2.0, 1.0], 5.5) == 2
    assert count_side_by_side([1.0, 3.0], 2.0) == 1
    assert count_side_by_side([], 2.0) == 1


def test_fitting_densities_takes_memory():
    sweeps = [Sweep(SweepSpec((name,), preset="table"), [wide_data()]) for name in ("erm", "wri")]
    erm, wri = (stack_memory([sweep.run(sweep.planned[0])]) for sweep in sweeps)
    assert wri > 1.2 * erm
