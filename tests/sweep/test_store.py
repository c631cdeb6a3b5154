"""A store keeps what was finished, refuses what is no store, and touches neither."""

import contextlib
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from helpers import make_data, make_info
from wri.errors import InputError
from wri.stacked import Network
from wri.sweep.plan import SweepSpec
from wri.sweep.store import Store
from wri.training import Record


def record(values):
    accuracy = {f"env{e}_{part}": np.array(values) for e in range(4) for part in ("in", "out")}
    return Record(
        steps=np.arange(len(values)),
        measures={"accuracy": accuracy},
        diverged_at=None,
        network=Network((6, 3)),
        parameters=np.zeros(1),
        state=None,
    )


SETTING = {"steps": 3}
INFO = make_info("toy", ("a", "b"), (0.5, 0.25), (0.2, 0.2))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sweep.db"


def planned():
    return SweepSpec(("erm",), trials=2, steps=3).plan([make_data()])


def test_what_is_finished_comes_back(path):
    runs = planned()
    with Store(path, write=True) as store:
        store.plan(SETTING, {"f": INFO}, [runs[:3], runs[3:]])
        store.finish(runs[:3], [record([0.1, np.nan, 0.3])] * 3)
    with Store(path) as store:
        assert store.known() == {run.id for run in runs}
        assert store.finished() == {run.id for run in runs[:3]}
        assert store.pending(store.known()) == [runs[3:]]
        assert store.pending({runs[0].id}) == []
        (first, *_) = store.outcomes()
        assert (first.algorithm, first.test_envs, first.trial_seed) == ("erm", (0,), 0)
        assert np.array_equal(
            first.measures["accuracy"]["env3_out"], [0.1, np.nan, 0.3], equal_nan=True
        )
        assert store.infos() == {"f": INFO}
        assert [len(each.steps) for each in store.outcomes()] == [3] * 3 + [0] * 5


def test_other_rows_settings_and_versions_are_refused(path):
    runs = planned()
    with Store(path, write=True) as store:
        store.plan(SETTING, {"f": INFO}, [runs[:2]])
        with pytest.raises(InputError, match="other rows by the name 'toy'"):
            store.plan(SETTING, {"g": INFO}, [])
        with pytest.raises(InputError, match="holds runs with steps = 3, not 4"):
            store.plan({"steps": 4}, {"f": INFO}, [])
        model = replace(runs[0].model, hyper={"learning_rate": 0.5})
        other = replace(runs[0], model=model)
        with pytest.raises(InputError, match="another version of this run: erm on toy"):
            store.plan(SETTING, {"f": INFO}, [runs[2:], [other]])
        assert store.known() == {run.id for run in runs[:2]}  # all or nothing


def test_a_link_does_not_lead_around_the_lock(path, tmp_path):
    link = tmp_path / "link.db"
    with Store(path, write=True):
        link.symlink_to(path)
        with pytest.raises(InputError, match="another sweep is at work"):
            Store(link, write=True)


def test_one_process_writes_while_others_read(path):
    code = (
        "import sys; from pathlib import Path; from wri.sweep.store import Store\n"
        "store = Store(Path(sys.argv[1]), write=True)\n"
        "print('writing', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(path)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert writer.stdout.readline().strip() == b"writing"
        with pytest.raises(InputError, match="another sweep is at work"):
            Store(path, write=True)
        with Store(path) as reader:
            assert reader.known() == set()
    finally:
        writer.kill()
        writer.communicate(timeout=60)
    with Store(path, write=True) as store:  # a killed process leaves no lock behind
        assert store.known() == set()


def test_any_thread_may_close_a_store(path):
    store = Store(path, write=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.close).result()
    Store(path, write=True).close()


def test_what_is_left_of_a_deleted_store_is_not_taken_for_its_own(path):
    path.with_name(path.name + "-wal").write_bytes(b"x")
    with pytest.raises(InputError, match="left of a store that was deleted"):
        Store(path, write=True)


def test_readers_change_nothing(path):
    runs = planned()
    code = (
        "import os, sys; from pathlib import Path; from wri.sweep.store import Store\n"
        "store = Store(Path(sys.argv[1]), write=True); store.plan({}, {}, []); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    rest = path.with_name(path.name + "-wal")
    before = path.read_bytes(), rest.read_bytes()
    assert before[1]
    with Store(path) as store:
        assert store.known() == set()
    assert (path.read_bytes(), rest.read_bytes()) == before
    with Store(path, write=True) as store:
        store.plan(SETTING, {}, [runs])


def test_a_second_sweep_gets_a_clear_error_and_a_reader_does_not(path):
    with Store(path, write=True), Store(path):
        code = (
            "from pathlib import Path; from wri.sweep.store import Store; import sys\n"
            "Store(Path(sys.argv[1]), write=True)"
        )
        command = [sys.executable, "-c", code, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "another sweep is at work" in done.stderr
    Store(path, write=True).close()


def unchanged(path, content, message):
    path.write_bytes(content)
    for write in (True, False):
        with pytest.raises(InputError, match=message):
            Store(path, write=write)
        assert path.read_bytes() == content


def test_foreign_and_damaged_files_are_not_touched(path, tmp_path):
    unchanged(path, b"", "is not a store of wri")
    unchanged(path, b"site,y\na,1\n" * 50, "is not a store of wri")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    unchanged(path, other.read_bytes(), "SQLite file of another program")
    path.unlink()
    with Store(path, write=True) as store:
        store.plan(SETTING, {}, [planned()])
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = path.read_bytes()
    unchanged(path, whole[: len(whole) // 2], "is cut short")


def test_measures_come_back_by_name_and_split(path):
    """Splits keep their names, whatever they are called and in whatever order they come."""
    runs = planned()
    values = {"south_out": np.array([0.1, 0.2]), "north": np.array([np.nan, 3.0])}
    found = replace(
        record([0.5, 0.6]), measures={"r2": values, "squared_error": {"x": values["north"]}}
    )
    with Store(path, write=True) as store:
        store.plan(SETTING, {"f": INFO}, [runs[:1]])
        store.finish(runs[:1], [found])
    with Store(path) as store:
        (outcome,) = store.outcomes()
    assert set(outcome.measures) == {"r2", "squared_error"}
    assert set(outcome.measures["r2"]) == {"south_out", "north"}
    np.testing.assert_array_equal(outcome.measures["r2"]["north"], [np.nan, 3.0])
    np.testing.assert_array_equal(outcome.measures["squared_error"]["x"], [np.nan, 3.0])
    assert outcome.model == runs[0].model


def test_an_older_format_is_refused_untouched(path):
    with Store(path, write=True) as store:
        store._connection.execute("PRAGMA user_version = 1")
    with pytest.raises(InputError, match=r"written by an older wri .* name another store"):
        Store(path)


def test_a_newer_format_and_a_missing_store(path, tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        Store(path)
    with Store(path, write=True) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="newer wri"):
        Store(path)
    with pytest.raises(InputError, match="is not a file"):
        Store(tmp_path, write=True)
    with pytest.raises(InputError, match="cannot be used: No such file"):
        Store(tmp_path / "nowhere" / "s.db", write=True)


def test_a_full_disk_loses_nothing(path):
    """SQLite is held to its present size, which is what a full disk looks like to it."""
    runs = planned()
    with Store(path, write=True) as store:
        store.plan(SETTING, {}, [runs[:1], runs[1:]])
        store.finish(runs[:1], [record([0.5])])
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(InputError, match="the disk is full or fails"):
            store.finish(runs[1:], [record(np.linspace(0, 1, 5000))] * (len(runs) - 1))
        assert store.finished() == {runs[0].id}
        store._connection.execute("PRAGMA max_page_count = 1000000")
        store.finish(runs[1:], [record([0.5])] * (len(runs) - 1))
        assert len(store.finished()) == len(runs)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many kilobytes, where this process may."""
    mounted = []

    def mount(kilobytes):
        folder = tmp_path / f"{kilobytes}k"
        folder.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        done = subprocess.run(["mount", *options], capture_output=True)
        if done.returncode:
            pytest.skip("this machine allows no mounts")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")


@needs_root
def test_a_disk_that_is_really_full_recovers(small_disk):
    folder, runs = small_disk(1024), planned()
    with Store(folder / "s.db", write=True) as store:
        store.plan(SETTING, {}, [runs])
        filler = folder / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(2**20))
        with pytest.raises(InputError, match="the disk is full or fails"):
            store.finish(runs, [record(np.linspace(0, 1, 5000))] * len(runs))
    filler.unlink()
    with Store(folder / "s.db", write=True) as store:
        assert store.pending(store.known()) == [runs]
        store.finish(runs, [record([0.5])] * len(runs))
        assert len(store.finished()) == len(runs)


@needs_root
@pytest.mark.parametrize("kilobytes", [8, 16, 24, 32, 48, 64, 84, 108])
def test_a_store_is_made_whole_or_not_at_all(small_disk, kilobytes):
    path = small_disk(kilobytes) / "s.db"
    with contextlib.suppress(InputError), Store(path, write=True) as store:
        store.plan(SETTING, {}, [planned()])
    subprocess.run(["mount", "-o", "remount,size=2m", str(path.parent)], check=True)
    with Store(path, write=True) as store:
        if not store.known():
            store.plan(SETTING, {}, [planned()])
        assert len(store.known()) == 8
