"""A store keeps what was finished, refuses what is no store, and touches neither."""

import contextlib
import json
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from helpers import forked, make_data, make_info, needs_root
from wri.errors import InputError
from wri.stacked import Network
from wri.sweep.plan import FORMAT, SweepSpec
from wri.sweep.store import Store, digest
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
        with pytest.raises(InputError, match="the rows of 'toy' differ from those of the runs"):
            store.plan(SETTING, {"g": INFO}, [])
        with pytest.raises(InputError, match="have steps = 3, not 4"):
            store.plan({"steps": 4}, {"f": INFO}, [])
        model = replace(runs[0].model, hyper={"learning_rate": 0.5})
        other = replace(runs[0], model=model)
        with pytest.raises(InputError, match="another version of this run: erm on toy"):
            store.plan(SETTING, {"f": INFO}, [runs[2:], [other]])
        assert store.known() == {run.id for run in runs[:2]}  # all or nothing


def test_a_path_may_be_text(path):
    with Store(str(path), write=True) as store:
        assert store.path == path
    with pytest.raises(InputError, match=r"there is no store other\.db"):
        Store("other.db")


def test_a_link_does_not_lead_around_the_lock(path, tmp_path):
    link = tmp_path / "link.db"
    with Store(path, write=True):
        link.symlink_to(path)
        with pytest.raises(InputError, match="another sweep is using"):
            Store(link, write=True)


def test_one_process_writes_while_others_read(path):
    opened = []
    with forked(lambda: opened.append(Store(path, write=True))) as said:
        assert said == "None"
        with pytest.raises(InputError, match="another sweep is using"):
            Store(path, write=True)
        with Store(path) as reader:
            assert reader.known() == set()
    with Store(path, write=True) as store:  # a killed process leaves no lock behind
        assert store.known() == set()


def test_any_thread_may_close_a_store(path):
    store = Store(path, write=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.close).result()
    Store(path, write=True).close()


def test_what_is_left_of_a_deleted_store_is_not_taken_for_its_own(path):
    path.with_name(path.name + "-wal").write_bytes(b"x")
    with pytest.raises(InputError, match="belongs to a store that was deleted"):
        Store(path, write=True)


def test_readers_change_nothing(path):
    runs = planned()
    opened = []

    def plan():
        opened.append(Store(path, write=True))
        opened[0].plan({}, {}, [])

    with forked(plan) as said:
        assert said == "None"
    rest = path.with_name(path.name + "-wal")
    before = path.read_bytes(), rest.read_bytes()
    assert before[1]
    with Store(path) as store:
        assert store.known() == set()
    assert (path.read_bytes(), rest.read_bytes()) == before
    with Store(path, write=True) as store:
        store.plan(SETTING, {}, [runs])


def test_a_second_sweep_gets_a_clear_error_and_a_reader_does_not(path):
    with (
        Store(path, write=True),
        Store(path),
        forked(lambda: Store(path, write=True)) as said,
    ):
        assert said.startswith("InputError")
        assert "another sweep is using" in said
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
    unchanged(path, whole[: len(whole) // 2], "is damaged or not a store")


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
    with pytest.raises(InputError, match=r"another version of wri .* name another store"):
        Store(path)


def test_a_newer_format_and_a_missing_store(path, tmp_path):
    with pytest.raises(InputError, match="there is no store"):
        Store(path)
    with Store(path, write=True) as store:
        store._connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="another version of wri"):
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
        with pytest.raises(InputError, match="the disk is full or failing"):
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


@needs_root
def test_a_disk_that_is_really_full_recovers(small_disk):
    folder, runs = small_disk(1024), planned()
    with Store(folder / "s.db", write=True) as store:
        store.plan(SETTING, {}, [runs])
        filler = folder / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(bytes(2**20))
        with pytest.raises(InputError, match="the disk is full or failing"):
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


def fill(path):
    """A store with two finished runs and six planned ones."""
    runs = planned()
    with Store(path, write=True) as store:
        store.plan(SETTING, {"f": INFO}, [runs[:2], runs[2:]])
        store.finish(runs[:2], [record([0.1, 0.2, 0.3])] * 2)
    return runs


def change(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


VALUES = "zeroblob(24)"
FIRST = "(SELECT id FROM results LIMIT 1)"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (f'UPDATE measured SET "values" = {VALUES} WHERE id = {FIRST}', "1 damaged runs .erm on t"),
        (f"UPDATE measured SET split = 'x' || split WHERE id = {FIRST}", "1 damaged runs"),
        (f"DELETE FROM measured WHERE split = 'env0_in' AND id = {FIRST}", "1 damaged runs"),
        ("UPDATE results SET steps = zeroblob(24)", "2 damaged runs"),
        ("UPDATE results SET steps = 'text'", "2 damaged runs"),
        ("UPDATE results SET diverged_at = 1", "2 damaged runs"),
        ("UPDATE runs SET planned = replace(planned, 'erm', 'irm')", "8 damaged runs .* and 3 mo"),
        ("UPDATE runs SET planned = CAST(x'ff' AS TEXT)", "8 damaged runs"),
        ("UPDATE runs SET stack = 7", "8 damaged runs"),
        ("UPDATE runs SET id = id || 'x'", "damaged runs"),
        ("UPDATE datasets SET info = replace(info, '0.5', '0.6')", "a damaged row of its datasets"),
        ("UPDATE setting SET fields = '{}'", "a damaged row of its setting"),
        (f"DELETE FROM results WHERE id = {FIRST}", "1 damaged runs"),
        ("DELETE FROM runs WHERE stack = 1", "rows are missing"),
        ("DELETE FROM datasets", "rows are missing"),
        ("DELETE FROM seal", "rows are missing"),
    ],
)
def test_a_changed_store_is_refused_and_repaired(statement, words, path):
    """What is damaged is named; after a repair it is trained anew, the rest stays."""
    runs = fill(path)
    change(path, statement)
    for write in (False, True):
        with pytest.raises(InputError, match=f"was changed or damaged: .*{words}.*--repair"):
            Store(path, write=write)
    with Store(path, write=True, repair=True) as store:
        assert bool(store.dropped) == ("damaged runs" in words)
        store.plan(SETTING, {"f": INFO}, [[run] for run in runs if run.id not in store.known()])
        for stack in store.pending(store.known()):
            store.finish(stack, [record([0.1, 0.2, 0.3])] * len(stack))
        assert store.finished() == {run.id for run in runs}
    with Store(path) as store:
        assert store.infos() == {"f": INFO}
        for each in store.outcomes():
            assert each.steps.tolist() == [0, 1, 2]
            assert [*each.measures["accuracy"]["env0_in"]] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("table", ["setting", "datasets", "runs", "results", "measured", "seal"])
def test_a_lost_table_is_refused(table, path):
    fill(path)
    change(path, f"DROP TABLE {table}")
    for write in (False, True):
        with pytest.raises(InputError, match=f"no such table: {table}"):
            Store(path, write=write)


@pytest.mark.parametrize(
    ("planned_text", "words"),
    [
        ({}, "another version of wri"),
        ({"format": FORMAT - 1}, "another version of wri"),
        (
            {"format": FORMAT, "model": {"objective": "invented"}, "test_envs": []},
            "unknown objective 'invented'",
        ),
    ],
)
def test_a_run_that_this_version_cannot_read_is_a_sentence(planned_text, words, path):
    """Runs of another version, and of a plugin that is not loaded."""
    with Store(path, write=True) as store:
        store.plan(SETTING, {"f": INFO}, [planned()[:1]])
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        ((name, place, stack),) = connection.execute("SELECT id, place, stack FROM runs")
        text = json.dumps(planned_text)
        new = (text, digest(name, place, text, stack))
        connection.execute("UPDATE runs SET planned = ?, digest = ?", new)
        connection.execute("DELETE FROM seal")
    with (
        Store(path, write=True, repair=True) as store,
        pytest.raises(InputError, match=words) as caught,
    ):
        store.outcomes()
    assert str(path) in str(caught.value)


def killed(path):
    """A store whose writer was killed after a finished stack."""
    opened = []

    def write():
        opened.append(Store(path, write=True))
        runs = planned()
        opened[0].plan(SETTING, {"f": INFO}, [runs[:2], runs[2:]])
        opened[0].finish(runs[:2], [record([0.1, 0.2])] * 2)

    with forked(write) as said:
        assert said == "None"


def test_a_copy_of_the_file_alone_has_every_finished_run(path, tmp_path):
    killed(path)
    shutil.copy(path, tmp_path / "copy.db")
    with Store(tmp_path / "copy.db") as store:
        assert len(store.finished()) == 2
        assert len(store.known()) == 8


@needs_root
@pytest.mark.parametrize("was_killed", [True, False])
def test_a_store_on_a_read_only_file_system_is_read(was_killed, small_disk):
    folder = small_disk(1024)
    (killed if was_killed else fill)(folder / "s.db")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    with Store(folder / "s.db") as store:
        assert len(store.finished()) == 2
    with pytest.raises(InputError, match="Read-only file system"):
        Store(folder / "s.db", write=True)


def test_a_name_that_no_file_has(tmp_path):
    for write in (False, True):
        with pytest.raises(InputError) as caught:
            Store(tmp_path / ("s" * 300), write=write)
        assert len(str(caught.value)) < 300
