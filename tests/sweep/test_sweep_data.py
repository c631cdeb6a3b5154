"""Data sets of a sweep from arrays, tables, pictures and a user's own objects."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pictures import make_backbone, make_folder
from wri.datasets import ImageFolder, hospitals, joined
from wri.errors import InputError
from wri.features import FeatureLayer
from wri.sweep import Sweep, SweepData, SweepSpec, gather

SPEC = SweepSpec(("erm",), steps=2)


def test_arrays_tables_and_environments_are_the_same_rows():
    environments = sorted(hospitals(20, seed=0), key=lambda each: each.name)
    X, y, site = joined(environments)
    table = pd.DataFrame(X, columns=["smoking", "marker", "noise"], index=np.arange(80) + 7)
    label = np.where(y == 1, "sick", "healthy")
    shuffled = np.random.default_rng(0).permutation(80)
    by_site = np.argsort(site[shuffled], kind="stable")
    made = gather("rows", environments)
    from_arrays = SweepData.from_rows("rows", X, y, site)
    assert from_arrays.fingerprint == made.fingerprint
    assert from_arrays.preset == "table"
    from_table = SweepData.from_rows("rows", table.iloc[shuffled], label[shuffled], site[shuffled])
    assert from_table.names == made.names
    np.testing.assert_array_equal(from_table.bank.features, X[shuffled][by_site])
    np.testing.assert_array_equal(from_table.bank.targets, y[shuffled][by_site])


def test_a_sweep_takes_objects_with_name_x_and_y():
    own = [
        SimpleNamespace(name=each.name, x=pd.DataFrame(each.x), y=each.y)
        for each in hospitals(20, seed=0)
    ]
    sweep = Sweep(SPEC, own)
    assert [run.place for run in sweep.planned][:1] == [
        "erm on data, environment 0 held out, draw 0, trial 0"
    ]
    assert sweep.datasets[0].fingerprint == gather("data", hospitals(20, seed=0)).fingerprint
    one, several = gather("one", own), [gather("one", own), gather("two", own)]
    assert [len(Sweep(SPEC, data).planned) for data in (one, several)] == [4, 8]
    for each in own:
        each.y = np.where(each.y == 1, "sick", "healthy")
    assert gather("named", own).bank.n_classes == 2
    for each in own:
        each.y = np.linspace(0, 1, 20) + len(each.name)
    assert gather("numbers", own).bank.n_classes is None
    own[1].x = own[1].x[[2, 1, 0]]
    with pytest.raises(InputError, match="'east' of 'mixed' has other columns than 'north'"):
        gather("mixed", own)
    own[1].x = np.zeros(20)
    with pytest.raises(InputError, match=r"one value per row, not shapes \(20,\) and \(20,\)"):
        gather("flat", own)
    with pytest.raises(InputError, match="environments with name, x and y; SweepData"):
        Sweep(SPEC, np.zeros((4, 2)))
    with pytest.raises(InputError, match=r"y of 'short' has the shape \(3,\) for 4 rows of X"):
        SweepData.from_rows("short", np.zeros((4, 2)), [0, 1, 0], [*"aabb"])


def test_a_sweep_takes_a_folder_of_pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    folder = ImageFolder(make_folder(tmp_path / "photos"))
    monkeypatch.setattr("wri.features.extraction.as_backbone", lambda given: make_backbone())
    sweep = Sweep(SPEC, folder)
    (data,) = sweep.datasets
    assert (data.name, data.names, data.sizes) == ("photos", ("north", "south"), (6, 6))
    assert data.layer == FeatureLayer((64, 32))
    assert {run.width for run in sweep.planned} == {64}
    assert SweepData.from_images(folder, layer=None).layer is None
