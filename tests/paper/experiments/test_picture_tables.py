"""Tables 4 and E.4 on small pictures made up, with features of a stand-in for the backbone."""

import numpy as np
import pytest

from wri.errors import InputError
from wri.features.extraction import PictureFeatures, list_paths
from wri.paper.experiments import ExperimentTask, pictures, run_experiment
from wri.paper.experiments.pictures import DOMAINS, RECOMMENDED, PictureTableSize
from wri.paper.result import read_printed
from wri.sweep import Store

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "hut", "person")
OF_CLASS = 8


@pytest.fixture
def data(tmp_path):
    """PACS in little: files that nobody reads."""
    for domain in DOMAINS["PACS"]:
        for label in CLASSES:
            folder = tmp_path / "data" / "PACS" / domain / label
            folder.mkdir(parents=True)
            for n in range(OF_CLASS):
                (folder / f"{n}.png").write_bytes(f"{domain}{label}{n}".encode())
    return tmp_path / "data"


@pytest.fixture
def stand_in(monkeypatch, short_weights):
    """Stands in for the backbone, and shortens the training."""

    def extract(paths, backbone=None, **rest):
        found = list_paths(paths)
        random = np.random.default_rng(0)
        x = random.normal(size=(len(found), 12)).astype(np.float32)
        for n, path in enumerate(found):
            x[n, CLASSES.index(path.parent.name)] += 2.0
        return PictureFeatures(
            x=x, kept=np.arange(len(found)), broken={}, backbone="stand-in", digest="0" * 64
        )

    monkeypatch.setattr(pictures, "extract", extract)
    monkeypatch.setattr(
        pictures, "QUICK", PictureTableSize(draws=2, trials=2, steps=20, layer_steps=5)
    )


@pytest.mark.filterwarnings("ignore:.*not all of PACS as published")
@pytest.mark.slow
def test_the_whole_table(data, stand_in, tmp_path):
    told = []
    options = {"datasets": "pacs,VLCS", "data": str(data)}
    task = ExperimentTask(
        name="pictures",
        folder=tmp_path,
        options=options,
        progress=lambda done, of: told.append(done / of),
    )
    both = run_experiment(task)
    assert [result.experiment for result in both] == ["table4", "tableE4"]
    small, large = both
    assert [len(table.lines) for table in small.tables] == [5] * 4
    assert [len(table.lines) for table in large.tables] == [9] * 4
    rows = {(row.table[:12], row.algorithm, row.column): row for row in large.rows}
    cell = rows["PACS, oracle", "WRI", "sketch"]
    assert (cell.paper, cell.paper_spread, cell.n) == (80.7, 0.1, 2)
    assert rows["PACS, oracle", RECOMMENDED, "sketch"].paper is None
    mean = np.mean([rows["PACS, oracle", "ERM", domain].ours for domain in DOMAINS["PACS"]])
    assert rows["PACS, oracle", "ERM", "average"].ours == pytest.approx(mean)
    assert mean > 30  # seven classes
    assert any(note.startswith("VLCS is not here: get it from") for note in large.notes)
    assert any("PACS, oracle, minus ERM: IRM" in note for note in large.notes)
    assert told == sorted(told)
    stores = sorted(path.name for path in tmp_path.glob("*.db"))
    assert stores == ["pictures-PACS-coloured-quick.db", "pictures-PACS-domainbed-quick.db"]
    again = run_experiment(task)
    assert [result.rows for result in again] == [result.rows for result in both]


@pytest.mark.filterwarnings("ignore:.*not all of PACS as published")
@pytest.mark.slow
def test_the_printed_predictor_is_offered(data, stand_in, tmp_path, monkeypatch):
    size = PictureTableSize(draws=1, trials=2, steps=4, layer_steps=2)
    monkeypatch.setattr(pictures, "QUICK", size)
    options = {"datasets": "PACS", "data": str(data), "preset": "one-layer"}
    task = ExperimentTask(name="pictures", outputs=("table4",), folder=tmp_path, options=options)
    (result,) = run_experiment(task)
    names = ["ERM", "IRM", "VREx", "WRI", RECOMMENDED]
    assert [*dict.fromkeys(row.algorithm for row in result.rows)] == names
    with Store(tmp_path / "pictures-PACS-one-layer-quick.db") as store:
        assert {run.algorithm for run in store.outcomes()} == {"erm", "irm", "vrex", "wri"}


@pytest.mark.slow
def test_a_folder_of_ones_own_has_the_tables_without_printed_numbers(
    data, stand_in, tmp_path, monkeypatch
):
    size = PictureTableSize(draws=1, trials=2, steps=4, layer_steps=2)
    monkeypatch.setattr(pictures, "QUICK", size)
    own = tmp_path / "office"
    (data / "PACS").rename(own)
    (own / "sketch").rename(own / "webcam")
    task = ExperimentTask(
        name="pictures", outputs=("table4",), folder=tmp_path, options={"data": str(own)}
    )
    (result,) = run_experiment(task)
    columns = ["office", "art_painting", "cartoon", "photo", "webcam", "average"]
    assert [*dict.fromkeys(row.column for row in result.rows)] == columns
    assert all(row.paper is None and 0 <= row.ours <= 100 for row in result.rows)
    assert not any("is not here" in note for note in result.notes)
    (own / "webcam").rename(own / "sketch")
    own.rename(tmp_path / "PACS")  # published ones are known by name and domains
    with pytest.warns(UserWarning, match="not all of PACS as published"):
        (result,) = run_experiment(
            ExperimentTask(
                name="pictures",
                outputs=("table4",),
                folder=tmp_path,
                options={"data": str(tmp_path / "PACS")},
            )
        )
    assert {row.paper for row in result.rows if row.algorithm == "ERM"} >= {80.5, 84.7}


def test_sets_that_are_not_here_are_named(tmp_path):
    task = ExperimentTask(name="pictures", folder=tmp_path, options={"data": str(tmp_path)})
    with pytest.raises(InputError, match=r"VLCS, PACS, .*: not found below .*`wri data VLCS` says"):
        run_experiment(task)
    with pytest.raises(InputError, match="mnist"):
        run_experiment(
            ExperimentTask(name="pictures", folder=tmp_path, options={"datasets": "mnist"})
        )


def test_the_printed_numbers_fit_together():
    for name, domains in DOMAINS.items():
        lines = read_printed(name)
        assert lines.keys() == read_printed("table4").keys()
        for cells in lines.values():
            assert [*cells] == [*domains, "average"]
            mean = np.mean([cells[domain][0] for domain in domains])
            assert mean == pytest.approx(cells["average"][0], abs=0.06)
