"""What a killed process leaves is removed by the next one with the same target."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers import forked
from wri.cli import writing
from wri.saving.folder import open_stage


def hold(target):
    """Begin an output and do not end it."""
    held = ExitStack()
    folder = held.enter_context(open_stage(target))
    (folder / "half").write_text("written")
    kept.append(held)
    return folder


kept = []


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_stay(tmp_path):
    foreign = tmp_path / ".m-abcdefgh"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("not ours")
    (tmp_path / ".m-00000000").mkdir()  # killed before it was locked
    with open_stage(tmp_path / "m") as own:
        with forked(lambda: hold(tmp_path / "m")) as folder, open_stage(tmp_path / "m"):
            assert (Path(folder) / "half").read_text() == "written"
        with open_stage(tmp_path / "other"):
            assert Path(folder).exists()
        with open_stage(tmp_path / "m"):
            assert not Path(folder).parent.exists()
            assert own.exists()
    assert sorted(os.listdir(tmp_path)) == [foreign.name]
    assert (foreign / "notes.txt").read_text() == "not ours"


def test_nothing_is_left_by_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), open_stage(tmp_path / "m"):
        raise ZeroDivisionError
    assert not os.listdir(tmp_path)


class StubModel:
    """A model whose process may be killed while it is saved."""

    def __init__(self, killed):
        self.killed = killed

    def save(self, folder):
        folder.mkdir()
        if self.killed:
            os.kill(os.getpid(), signal.SIGKILL)


def test_the_next_fit_removes_what_a_killed_one_left(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "render_page", lambda page: "report")
    target = tmp_path / "m"
    with forked(lambda: writing.write_model(StubModel(killed=True), None, target)) as said:
        assert said == ""
    assert len(os.listdir(tmp_path)) == 1
    report = writing.write_model(StubModel(killed=False), None, target)
    assert report.read_text() == "report"
    assert os.listdir(tmp_path) == ["m"]
