"""Sweep folders of DomainBed: tables by hand, and there and back again."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from helpers import make_outcome, write_run
from wri.cli import options
from wri.errors import InputError
from wri.integrations.domainbed import METHODS, build_tables, export_runs, read_sweep
from wri.integrations.domainbed.hparams import read_hparams
from wri.training import ModelSpec

NAN = math.nan
HYPER = {"vrex": {"penalty_weight": 7.25}, "groupdro": {"eta": 0.1}}


@pytest.fixture
def sweep(tmp_path):
    """Three data sets: a torn line, NaN at step 0, a missing pair, and one that nobody knows."""
    folder = tmp_path / "sweep"
    first = {
        0: [(0.1, 0.1), (0.5, NAN), (0.5, 0.5)],
        100: [(0.60, 0.61), (0.5, 0.80), (0.5, 0.70)],  # 0.75 on training environments
        200: [(0.62, 0.63), (0.5, 0.78), (0.5, 0.70)],
    }
    write_run(folder / "a", "VLCS", "ERM", [0], first)
    second = {
        100: [(0.66, 0.10), (0.5, 0.75), (0.5, 0.75)],  # 0.75 as well, and a later draw
        200: [(0.58, 0.65), (0.5, 0.60), (0.5, 0.60)],
    }
    write_run(folder / "b", "VLCS", "ERM", [0], second, draw=1)
    third = {0: [(0.3, 0.3), (0, 0.4), (0, 0.4)], 100: [(0.70, 0.71), (0, 0.9), (0, 0.9)]}
    write_run(folder / "c", "VLCS", "ERM", [0], third, trial=1)
    with (folder / "c" / "results.jsonl").open("a") as file:
        file.write('{"args": {"dataset": "VL')
    fourth = {100: [(0.0, 0.9), (0.50, 0.5), (0.0, 0.9)]}
    write_run(folder / "d", "VLCS", "ERM", [1], fourth)

    def mnist(name, test_envs, draw, inside):  # accuracies of one environment at two steps
        k = test_envs[-1]
        steps = {
            100 * t: [(value if e == k else 0.0, 0.5) for e in range(3)]
            for t, value in enumerate(inside)
        }
        write_run(folder / name, "RotatedMNIST", "CORAL", test_envs, steps, draw)

    mnist("e", [0], 0, (0.5, 0.6))
    mnist("f", [0, 1], 0, (0.8, 0.7))
    mnist("g", [0, 2], 0, (0.4, 0.6))  # means 0.6 and 0.65, so step 100
    mnist("h", [0], 1, (0.9, 0.9))
    mnist("i", [0, 1], 1, (1.0, 1.0))  # without {0, 2}
    own = {0: [(0.25, 0.3), (0.5, 0.6)], 7: [(0.75, 0.8), (0.5, 0.5)]}
    write_run(folder / "j", "our wards", "DANN", [0], own)
    write_run(folder / "k", "our wards", "DANN", [1], own)
    return folder


def cells(tables, selection, dataset):
    (table,) = (t for t in tables if (t.selection, t.dataset) == (selection, dataset))
    return table.lines


def test_tables_by_hand(sweep):
    found = read_sweep(sweep)
    tables = build_tables(found.outcomes, found.infos)
    assert [info.name for info in found.infos] == ["RotatedMNIST", "VLCS", "our wards"]
    env0, env1, average = cells(tables, "training-domain", "VLCS")["erm"]
    assert env0.scores == pytest.approx((60, 70))  # NaN is never chosen, of a tie the first draw
    assert env0.standard_error == pytest.approx(5)
    assert env1.reason == "1 of 2 trials is missing: no run of erm with env1 held out (trial 1)"
    assert average.reason == "no average without env1"
    env0, *_ = cells(tables, "oracle", "VLCS")["erm"]
    assert env0.scores == pytest.approx((58, 70))  # last steps: 0.63 of draw 0, 0.65 of draw 1
    env0, *_ = cells(tables, "leave-one-out", "VLCS")["erm"]
    assert "pairs {0, 1}, {0, 2} are missing" in env0.reason
    env0, *_ = cells(tables, "leave-one-out", "RotatedMNIST")["coral"]
    assert env0.reason == "pairs {0, 2} are missing for leave-one-out in 1 of 2 draws"
    whole = [run for run in found.outcomes if run.hparams_seed == 0]
    env0, *_ = cells(build_tables(whole, found.infos), "leave-one-out", "RotatedMNIST")["coral"]
    assert [(trial, choice.step) for trial, choice in env0.choices] == [(0, 100)]
    assert env0.scores == pytest.approx((60,))
    wards = cells(tables, "training-domain", "our wards")["DANN"]
    assert [cell.mean for cell in wards] == pytest.approx([25, 50, 37.5])  # steps 0 and 7
    with pytest.raises(InputError, match="must be one of training-domain, leave-one-out, oracle"):
        build_tables(found.outcomes, found.infos, ["invariance"])


def test_what_was_passed_over_is_said(sweep):
    notes = {(note.folder, note.used): note.reason for note in read_sweep(sweep).notes}
    assert notes["c", True] == "line 3, the last, is cut off and was skipped"
    assert "not numbers at step 0, which is never chosen" in notes["a", True]
    assert len(notes) == 2


BROKEN = {
    "no records": (lambda folder: (folder / "results.jsonl").unlink(), "it has no results.jsonl"),
    "torn": (lambda folder: edit(folder, lambda text: text[1:]), "line 1 is not a JSON object"),
    "empty": (lambda folder: edit(folder, lambda text: ""), "holds no complete line"),
    "number": (lambda folder: edit(folder, lambda text: "3\n" + text), "line 1 is not a JSON obj"),
    "binary": (
        lambda folder: (folder / "results.jsonl").write_bytes(b"\xff"),
        "holds no complete line",
    ),
    "gap": (
        lambda folder: edit(folder, lambda text: text.replace("env1", "env2")),
        "env1_in_acc is missing among 3 environments",
    ),
    "key": (
        lambda folder: edit(folder, lambda text: text.replace("trial_seed", "seed2")),
        "line 1 has no args.trial_seed",
    ),
    "step": (
        lambda folder: edit(folder, lambda text: text.replace('"step"', '"time"')),
        "line 1 has no step",
    ),
    "percent": (
        lambda folder: edit(folder, lambda text: text.replace("0.3", "30.0")),
        "env0_out_acc = 30 in line 1 is not from 0 to 1",
    ),
    "null": (
        lambda folder: edit(folder, lambda text: text.replace("0.3", "null")),
        "line 1 has no env0_out_acc",
    ),
    "mixed": (
        lambda folder: edit(folder, lambda text: text + text.replace("DANN", "ERM")),
        "line 3 belongs to another run than line 1",
    ),
    "outside": (
        lambda folder: edit(folder, lambda text: text.replace('envs": [0]', 'envs": [2]')),
        "test_envs [2] are not among the 2 environments",
    ),
}


def edit(folder, change):
    path = folder / "results.jsonl"
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(("damage", "reason"), BROKEN.values(), ids=BROKEN)
def test_an_unusable_run_is_listed_and_the_others_are_read(damage, reason, sweep):
    damage(sweep / "j")
    found = read_sweep(sweep)
    assert len(found.outcomes) == 10
    ((folder, told, used),) = (note for note in found.notes if note.folder == "j")
    assert (folder, used) == ("j", False)
    assert reason in told


def test_runs_that_do_not_fit_the_others_are_listed(sweep):
    two = {0: [(0.5, 0.5), (0.5, 0.5)]}
    write_run(sweep / "x", "VLCS", "ERM", [1], two, trial=5)
    write_run(sweep / "y", "our wards", "DANN", [0], two)
    notes = {note.folder: note.reason for note in read_sweep(sweep).notes if not note.used}
    assert notes["x"] == "VLCS has 3 environments in other runs, 2 here"
    assert notes["y"] == "j holds the same run"


def test_a_restarted_run_counts_its_last_line_of_a_step(sweep):
    edit(sweep / "j", lambda text: text + text.replace("0.25", "0.125"))
    found = read_sweep(sweep)
    (run,) = (r for r in found.outcomes if (r.algorithm, r.test_envs) == ("DANN", (0,)))
    np.testing.assert_array_equal(run.steps, [0, 7])
    np.testing.assert_array_equal(run.measures["accuracy"]["env0_in"], [0.125, 0.75])
    told = [note.reason for note in found.notes if note.folder == "j"]
    assert told[0] == "step 0 is repeated; line 3 counts"


def test_runs_without_done_count_as_in_domainbed_or_are_left_out(sweep):
    (sweep / "j" / "done").unlink()
    assert len(read_sweep(sweep).outcomes) == 11
    assert "may be unfinished" in next(n for n in read_sweep(sweep).notes if n.folder == "j").reason
    found = read_sweep(sweep, only_done=True)
    assert len(found.outcomes) == 10
    assert next(note for note in found.notes if note.folder == "j").used is False


def test_folders_that_are_no_sweep(sweep, tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        read_sweep(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is the folder of one run; name the one above it"):
        read_sweep(sweep / "a")
    (tmp_path / "empty" / "a").mkdir(parents=True)
    with pytest.raises(InputError, match=r"no run that can be used \(a: it has no results.jsonl\)"):
        read_sweep(tmp_path / "empty")


def make_runs():
    """Two data sets, pairs, drawn hyper-parameters; one run diverged and one is not finished."""
    random = np.random.default_rng(0)
    runs = []
    for dataset, n in (("wards", 3), ("stations", 2)):
        for held_out in ((0,), (0, 1), (n - 1,)):
            for draw in (0, 1):
                name = "vrex" if draw else "groupdro"
                model = ModelSpec.of(name, preset="domainbed", hyper=HYPER[name])
                splits = [f"env{k}_{part}" for k in range(n) for part in ("in", "out", "balanced")]
                accuracy = {split: random.random(4) for split in splits}
                steps = np.array([0, 10, 20, 29])
                runs.append(
                    make_outcome(dataset, name, held_out, draw, 3, steps, accuracy, model=model)
                )
    accuracy = {split: np.array([0.9, NAN]) for split in ("env0_in", "env0_out")}
    place = ("wards", "wri", (1,), 0, 0)
    runs.append(make_outcome(*place, np.array([0, 10]), accuracy, diverged_at=7))
    runs.append(make_outcome("wards", "wri", (0,), 0, 0, np.array([]), {}))
    return runs


def test_there_and_back_is_the_identity(tmp_path):
    runs = make_runs()
    done = export_runs(runs, tmp_path / "out", {"wards": "PACS"})
    assert (done.written, done.unregistered) == (12, ["stations"])
    assert [*done.left_out.values()] == ["diverged at step 7", "not finished"]
    found = read_sweep(tmp_path / "out")
    assert not found.notes

    def place(run):
        ours = {"PACS": "wards"}.get(run.dataset, run.dataset)
        return ours, run.algorithm, run.test_envs, run.hparams_seed, run.trial_seed

    back = {place(run): run for run in found.outcomes}
    assert len(back) == 12
    for run in runs[:12]:
        other = back[place(run)]
        np.testing.assert_array_equal(other.steps, run.steps)
        kept = {k: v for k, v in run.measures["accuracy"].items() if "balanced" not in k}
        assert kept.keys() == other.measures["accuracy"].keys()
        for split, values in kept.items():
            np.testing.assert_array_equal(other.measures["accuracy"][split], values)


def test_files_are_as_domainbed_reads_them(tmp_path):
    """It takes the last character of each line away, and then reads JSON."""
    export_runs(make_runs(), tmp_path / "out")
    folders = [path for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert len(folders) == 12
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"results.jsonl", "done"}
        with (folder / "results.jsonl").open() as file:
            lines = [json.loads(line[:-1]) for line in file]
        assert [line["step"] for line in lines] == [0, 10, 20, 29]
        for line in lines:
            assert line["args"]["algorithm"] in ("VREx", "GroupDRO")
            assert {"seed", "output_dir", "holdout_fraction"} <= line["args"].keys()
            hyper = read_hparams(line["args"]["algorithm"].lower(), line["hparams"])
            assert hyper.items() >= HYPER[line["args"]["algorithm"].lower()].items()


def test_an_earlier_export_is_replaced_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    export_runs(make_runs(), out)
    (out / "results.txt").write_text("DomainBed's table")
    before = {path: path.read_text() for path in out.rglob("results.jsonl")}
    export_runs(make_runs()[:5], out)
    after = {path: path.read_text() for path in out.rglob("results.jsonl")}
    assert len(after) == 5
    assert after.items() <= before.items()
    assert (out / "results.txt").exists()
    (out / "notes.md").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes.md, which no export wrote; name a new fol"):
        export_runs(make_runs(), out)
    (out / "notes.md").unlink()
    (next(iter(after)).parent / "model.pkl").write_text("mine")
    with pytest.raises(InputError, match=r"model.pkl, which no export wrote"):
        export_runs(make_runs(), out)
    assert {path: path.read_text() for path in out.rglob("results.jsonl")} == after


def test_a_sweep_of_domainbed_is_never_written_into(sweep):
    with pytest.raises(InputError, match="holds a, which no export wrote"):
        export_runs(make_runs(), sweep)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"ward": "PACS"}, "there are no runs of 'ward', but of stations, wards"),
        ({"wards": "stations"}, "stations and wards would both be called 'stations'"),
    ],
)
def test_names_that_cannot_be(names, message, tmp_path):
    with pytest.raises(InputError, match=message):
        export_runs(make_runs(), tmp_path / "out", names)
    assert not (tmp_path / "out").exists()


def test_nothing_to_export(tmp_path):
    with pytest.raises(InputError, match="diverged at step 7, not finished"):
        export_runs(make_runs()[12:], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_commands(command, sweep):
    """A store that is called export is reached by its path; tables are as before."""
    size = ("--datasets", "gaussian2d", "--algorithms", "erm", "--trials", "1", "--steps", "3")
    assert command("sweep", *size, "--store", "export").returncode == 0
    assert "oracle" in command("results", "./export").stdout
    assert "oracle" in command("results", "--selection", "oracle", "./export").stdout
    done = command("results", "export", "./export", "--domainbed", "out", "--json")
    assert json.loads(done.stdout)["written"] == 3
    assert json.loads(done.stdout)["unregistered"] == ["gaussian2d"]
    done = command("results", "export", "export", "--domainbed", "out", "--name", "gaussian2d=VLCS")
    assert done.stdout == "3 runs written to out\n"
    shown = command("results", "import", "out", "--format", "csv", "--selection", "oracle").stdout
    assert "oracle,VLCS,accuracy,env0,erm," in shown
    assert Path("out").is_dir()
    document = json.loads(command("results", "import", str(sweep), "--json").stdout)
    assert document["runs"] == 11
    assert {note["folder"] for note in document["notes"]} == {"a", "c"}
    row = next(row for row in document["rows"] if row["dataset"] == "VLCS")
    assert (row["n"], row["standard_error"]) == (2, pytest.approx(5))
    done = command("results", "import", str(sweep))
    assert "used: c: line 3, the last, is cut off" in " ".join(done.stderr.split())
    assert "no run of erm with env1 held out (trial 1)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "nowhere"), "there is no folder nowhere"),
        (("import", "x", "--selection", "oracle-early"), "must be one of training-domain, leave-"),
        (("export", "s.db", "--domainbed", "out", "--name", "a"), "--name a must be OURS=THEIRS"),
        (("export", "s.db", "--domainbed", "out"), "there is no store s.db"),
    ],
)
def test_bad_commands_are_one_sentence(arguments, message, command, tmp_path):
    done = command("results", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_help_names_the_commands_and_the_ways_of_choosing(command):
    shown = " ".join(command("results", "--help").stdout.replace("│", " ").split())
    assert "wri results export STORE --domainbed DIR" in shown
    assert "wri results import DIR" in shown
    assert "--best" in shown
    assert options.DOMAINBED_SELECTIONS == METHODS


def test_runs_with_balanced_rows_are_exported_without_them(tmp_path):
    accuracy = {f"env{e}_{part}": np.array([0.6]) for e in (0, 1) for part in ("in", "out")}
    accuracy["env0_balanced"] = np.array([NAN])  # held out: no such rows
    run = make_outcome("wards", "erm", (0,), 0, 0, np.array([9]), accuracy)
    done = export_runs([run], tmp_path / "out")
    assert (done.written, done.left_out) == (1, {})
    assert len(read_sweep(tmp_path / "out").outcomes) == 1
    (records,) = (tmp_path / "out").glob("*/results.jsonl")
    assert "balanced_acc" not in records.read_text()
