"""A saved forest comes back bit for bit; one that was changed never reaches LightGBM's parser."""

import hashlib
import json

import numpy as np
import pytest
import safetensors.numpy

import wri
from hospitals import hospitals
from wri import saving
from wri.boosting import TreeSettings, grow
from wri.boosting.model_text import MOST_TREES, clean_forest
from wri.errors import InputError
from wri.saving.folder import tensors_name
from wri.saving.values import record_digest

pytest.importorskip("lightgbm", reason="boosted trees need LightGBM ([boosting])")

pytestmark = pytest.mark.slow
QUICK = {"rounds": 8, "least_rows": 10}
METHODS = ("predict", "score_samples", "score_environments", "typicality", "verdict")


@pytest.fixture(scope="module")
def model():
    x, y, site = hospitals(60)
    x = x.copy()
    x[::9, 2] = np.nan
    candidates = [{"leaves": 2}, {"leaves": 4}]
    options = {"overlap_power": 1.0}
    model = wri.WRIBoostingClassifier(candidates=candidates, options=options, **QUICK)
    return model.fit(x, np.array(["ill", "well"])[y], groups=site)


@pytest.fixture
def folder(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def edit(folder, change=lambda record: None, **tensors):
    """Change record and tensors as somebody does who knows how the digests are made."""
    (path,) = folder.glob("model-*.safetensors")
    arrays = {**safetensors.numpy.load(path.read_bytes()), **tensors}
    data = safetensors.numpy.save({name: each for name, each in arrays.items() if each is not None})
    sha256 = hashlib.sha256(data).hexdigest()
    path.unlink()
    (folder / tensors_name(sha256)).write_bytes(data)
    record = json.loads((folder / "model.json").read_text())
    record["sha256"] = sha256
    change(record)
    record["digest"] = record_digest(record)
    (folder / "model.json").write_text(json.dumps(record))


def forest_of(folder):
    (path,) = folder.glob("model-*.safetensors")
    return safetensors.numpy.load(path.read_bytes())["forest.0"].tobytes().decode()


def test_it_comes_back_bit_for_bit(model, folder):
    loaded = wri.WRIBoostingClassifier.load(folder)
    x = hospitals(60, 1)[0]
    x[::5, 0] = np.nan
    for method in (*METHODS, "predict_proba", "nearest_environment"):
        found, expected = getattr(loaded, method)(x), getattr(model, method)(x)
        assert found.tolist() == expected.tolist(), method
    assert loaded.spec_ == model.spec_
    assert loaded.get_params() == model.get_params()
    assert set(vars(loaded)) == set(vars(model))
    assert loaded.score_new_site(x).meaning == model.score_new_site(x).meaning
    np.testing.assert_array_equal(loaded.importance_change_, model.importance_change_)


def test_saving_twice_gives_equal_bytes(folder, tmp_path):
    saving.load(folder).save(tmp_path / "again")
    first, second = (
        {path.name: path.read_bytes() for path in each.iterdir()}
        for each in (folder, tmp_path / "again")
    )
    assert first == second


def test_a_regressor_of_several_forms(tmp_path):
    x, _, site = hospitals(60)
    model = wri.VRExBoostingRegressor(compare_erm=False, site_spread=False, **QUICK)
    model.fit(x, 50 + 7 * x[:, 0], groups=site).save(tmp_path / "model")
    loaded = wri.VRExBoostingRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))
    with pytest.raises(AttributeError, match="compare_erm=True"):
        loaded.importance_change_  # noqa: B018
    with pytest.raises(InputError, match="holds VRExBoostingRegressor, not WRIClassifier"):
        wri.WRIClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("right_child=", "right_child=9 ", "which does not fit"),
        ("split_feature=0", "split_feature=7", "a column that the model does not have"),
        ("version=v4", "version=v4\nTree=7", "out of order"),
        ("num_leaves=", "num_leaves=9_", "non-numeric"),
        ("num_cat=0", "num_cat=1", "lacks cat_boundaries, cat_threshold"),
    ],
)
def test_a_forest_that_was_changed_is_refused(old, new, said, folder):
    text = forest_of(folder)
    assert old in text
    changed = np.frombuffer(text.replace(old, new, 1).encode(), np.uint8)
    size = len(changed)
    edit(folder, lambda record: record["forests"].__setitem__(0, size), **{"forest.0": changed})
    with pytest.raises(InputError, match=said):
        saving.load(folder)


def test_a_forest_of_too_many_trees_is_refused():
    tree = "num_leaves=1\nnum_cat=0\nleaf_value=2\nis_linear=0\nshrinkage=1\n\n"
    trees = "".join(f"Tree={number}\n{tree}" for number in range(MOST_TREES + 1))
    with pytest.raises(InputError, match="one too many"):
        clean_forest(f"tree\nversion=v4\n\n{trees}\nend of trees\n", 2, 1)
    settings = TreeSettings(rounds=MOST_TREES)
    with pytest.raises(InputError, match=r"50,000 rounds of 3 classes .* give fewer rounds"):
        grow(None, None, None, {}, settings, classes=3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.pop("forests"), "missing or unknown: forests"),
        (lambda r: r["forests"].append(5), "one forest or two|tensors missing"),
        (lambda r: r["forests"].__setitem__(0, 10**12), "forests of 1,0.* bytes are too large"),
        (lambda r: r["spec"].update(options=None), "options of a model specification must be"),
        (lambda r: r["spec"].update(hyper=3), "hyper of a model specification must be"),
        (lambda r: r["columns"].update(categorical=[9]), "columns in order"),
        (lambda r: r["columns"].update(categories={"a": {}}), "missing or unknown"),
        (lambda r: r["columns"].update(codes=-1), "codes are out of range"),
        (lambda r: r.update(erm_importances=False), "tensors missing or unknown: erm_import"),
        (lambda r: r["spec"].update(shell="rm"), "missing or unknown shell"),
        (lambda r: r["spec"]["trees"].update(leaves=1), "leaves must be"),
        (lambda r: r["spec"]["hyper"].update(weight_decay=1.0), "no hyper-parameter"),
        (lambda r: r.update(estimator="WRIClassifier"), "unexpected keyword argument"),
        (lambda r: r.update(evidence_on="phi"), "evidence_on must be one of"),
    ],
)
def test_a_record_that_says_something_else(change, said, folder):
    edit(folder, change)
    with pytest.raises(InputError, match=said) as caught:
        saving.load(folder)
    assert str(folder) in str(caught.value)


def test_a_network_is_no_forest(folder, tmp_path):
    x, y, site = hospitals(30)
    wri.ERMClassifier(steps=2).fit(x, y, groups=site).save(tmp_path / "network")
    edit(tmp_path / "network", lambda record: record.update(forests=[3]))
    with pytest.raises(InputError, match="missing or unknown: forests"):
        saving.load(tmp_path / "network")
