"""What a killed process leaves is removed by the next one with the same target."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wri.tables.staging import open_stage

HOLD = """
import sys
from pathlib import Path
from wri.tables.staging import open_stage
with open_stage(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("written")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that makes `m`, and where it does so."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "m")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_stay(holder, tmp_path):
    process, folder = holder
    foreign = tmp_path / ".m-abcdefgh"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("not ours")
    (tmp_path / ".m-00000000").mkdir()  # killed before it was locked
    with open_stage(tmp_path / "m") as own:
        assert own != folder
        assert (folder / "half").read_text() == "written"
        process.kill()
        process.wait()
        with open_stage(tmp_path / "other"):
            assert folder.exists()
        with open_stage(tmp_path / "m"):
            assert not folder.parent.exists()
            assert own.exists()
    assert sorted(os.listdir(tmp_path)) == [foreign.name]
    assert (foreign / "notes.txt").read_text() == "not ours"


def test_nothing_is_left_by_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), open_stage(tmp_path / "m"):
        raise ZeroDivisionError
    assert not os.listdir(tmp_path)
