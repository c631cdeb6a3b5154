"""A folder of Parquet files is fitted in chunks, with the result of the table in memory."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wri import ERMClassifier, ERMRegressor
from wri.datasets import parquet_folders as folders
from wri.datasets import table_files
from wri.datasets.parquet_folders import Folder, find_files, scan_folder
from wri.datasets.table_rows import read_rows
from wri.errors import InputError
from wri.estimators import load
from wri.evaluation.fitting import FitOptions, find_schema, fit_table
from wri.evaluation.folder_fit import fit_folder
from wri.jobs import LocalRunner

FIT = ("--target", "y", "--env", "site", "-o", "model")


def table(n=1500, awkward=False, numbers=False, seed=0):
    random = np.random.default_rng(seed)
    site = random.integers(0, 3, n)
    cause = random.normal(0.5 * site, 1)
    y = cause + random.normal(size=n)
    marker = random.normal((0.2 + 0.6 * site) * y, 1)
    frame = pd.DataFrame({"cause": 3 * cause + 40, "marker": marker})
    if awkward:
        frame["marker"] = frame["marker"].where(random.random(n) > 0.1)
        frame["ward"] = random.choice(["red", "blue", None], n)
    frame["site"] = np.array(["u", "v", "w"])[site]
    return frame.assign(y=y if numbers else np.where(y > 0.3, "ill", "well"))


def write(frame, path, files=3):
    path.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), files)):
        frame.iloc[rows].to_parquet(path / f"{number}.parquet", index=False)
    return path


def fit(path, runner=None, **options):
    folder = Folder(path, find_files(path), runner or LocalRunner(), lambda text: None)
    rows = scan_folder(folder, target="y", environment="site")
    options = FitOptions(fast=True, **options)
    return fit_folder(rows, options, folder=folder, schema=find_schema(rows))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(table_files, "MOST_ROWS", 130)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.slow
def test_a_folder_is_fitted_like_the_same_rows_in_memory(tmp_path, numbers):
    frame = table(900, awkward=True, numbers=numbers)
    path = write(frame, tmp_path / "rows")

    there = fit(path)
    here = fit_table(read_rows(find_files(path), "y", "site"), FitOptions(fast=True))
    assert there.rows.environments == here.rows.environments
    new = frame.drop(columns=["y", "site"])
    for name in ("erm", "wri 1.6"):
        mine, known = there.models[name], here.models[name]
        predict = "predict" if numbers else "predict_proba"
        np.testing.assert_allclose(
            getattr(mine, predict)(new), getattr(known, predict)(new), atol=1e-6
        )
        np.testing.assert_allclose(mine.score_samples(new), known.score_samples(new), atol=1e-4)
        assert list(mine.verdict(new)) == list(known.verdict(new))


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.slow
def test_rows_beyond_the_sample_count(tmp_path, monkeypatch, numbers):
    frame = table(1500, numbers=numbers)
    monkeypatch.setattr(folders, "SAMPLE", 300)
    found = fit(write(frame, tmp_path / "rows"), algorithms=("erm",))
    assert len(found.rows.y) == 300
    kind = ERMRegressor if numbers else ERMClassifier
    known = kind(site_spread=False).fit(
        frame[["cause", "marker"]].to_numpy(), frame["y"], groups=frame["site"]
    )
    np.testing.assert_allclose(found.estimator.coef_, known.coef_, atol=1e-6)
    np.testing.assert_allclose(found.estimator.intercept_, known.intercept_, atol=1e-5)
    assert found.estimator.left_out_ is None


def test_the_sample_depends_on_contents_only(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "SAMPLE", 240)
    frame = table()
    mixed = frame.sample(frac=1, random_state=1)
    paths = write(frame, tmp_path / "a"), write(mixed, tmp_path / "b", files=7)
    found = []
    for path in paths:
        folder = Folder(path, find_files(path), LocalRunner(), lambda text: None)
        found.append(scan_folder(folder, target="y", environment="site"))
    pd.testing.assert_frame_equal(found[0].X, found[1].X)
    assert np.unique(found[0].groups, return_counts=True)[1].tolist() == [80, 80, 80]
    assert found[0].environments == frame["site"].value_counts().sort_index().to_dict()


def wrong_files(frame):
    lost = frame.copy()
    lost.loc[700, "site"] = None
    rare = frame.copy()
    rare.loc[701, "y"] = "unheard of"
    infinite = frame.copy()
    infinite.loc[702, "cause"] = np.inf
    first = frame.drop(columns="marker").iloc[:10]
    return {
        "column 'site', row 201 is missing": lost,
        "class 'unheard of' of column 'y' is so rare that the sample has no row": rare,
        r"'cause' \(row 203 is infinite\)": infinite,
        "has no column 'marker', which other files have": first,
    }


@pytest.mark.parametrize("case", range(4))
def test_wrong_files_are_named(tmp_path, monkeypatch, case):
    monkeypatch.setattr(folders, "SAMPLE", 240)
    frame = table()
    message, wrong = [*wrong_files(frame).items()][case]
    path = write(frame if case == 3 else wrong, tmp_path / "rows")
    if case == 3:
        wrong.to_parquet(path / "9.parquet", index=False)
    with pytest.raises(InputError, match=rf"\.parquet.*{message}"):
        fit(path)


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.slow
def test_ray_sums_the_same(tmp_path, ray_runner):
    path = write(table(600), tmp_path / "rows")
    here = fit(path, algorithms=("wri",))
    there = fit(path, ray_runner, algorithms=("wri",))
    np.testing.assert_allclose(there.estimator.parameters_, here.estimator.parameters_, atol=1e-12)


@pytest.mark.slow
def test_the_command_saves_an_ordinary_model_and_says_that_no_site_was_held_out(command):
    frame = table(600)
    write(frame, Path("rows"))
    done = command("fit", "rows", *FIT, "--fast")
    assert done.returncode == 0, done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert "--fast: no site is held out" in said
    assert "pass 2, units: 600 rows" in said
    assert "solved on all 600 rows" in said
    assert "on some of the files" in said
    assert "left-out" not in said
    assert "sites left out" not in said
    assert load("model")[-1].candidate_losses_ is None
    frame.drop(columns="y").to_csv("new.csv", index=False)
    assert command("predict", "model", "new.csv", "-o", "out.csv").returncode == 0
    assert set(pd.read_csv("out.csv")["prediction"]) == {"ill", "well"}


@pytest.mark.slow
def test_a_folder_that_fits_into_memory_is_a_table_and_a_larger_one_needs_fast(command):
    write(table(300), Path("rows"))
    done = command("fit", "rows", *FIT, "--algorithms", "erm")
    assert done.returncode == 0, done.stderr
    assert "Will it hold at a new site?" in done.stdout
    write(table(100_000), Path("large"), files=1)
    done = command("fit", "large", *FIT, "--memory", "0.01")
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "large/0.parquet needs about 0.011 GB, but" in said
    assert "--fast sums the folder in chunks" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hidden", "8"), "leave out --hidden and --steps"),
        (("--algorithms", "groupdro"), "which groupdro with these options does not allow"),
        (("--blocks", "cause"), "needs --env, and allows no --blocks"),
    ],
)
def test_what_cannot_be_summed_is_refused_before_the_first_pass(command, options, message):
    write(table(60), Path("rows"))
    done = command("fit", "rows", *FIT, "--fast", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert "pass 1" not in done.stderr


def test_an_interrupted_pass_leaves_nothing(command, monkeypatch):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("wri.evaluation.folder_fit._sum_moments", interrupted)
    write(table(60), Path("rows"))
    done = command("fit", "rows", *FIT, "--fast")
    assert done.returncode == 130
    assert "stopped; nothing was written" in done.stderr
    assert [path.name for path in Path().iterdir()] == ["rows"]
