"""A saved model comes back bit for bit; a folder that is not one is refused and runs nothing."""

import hashlib
import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from hospitals import hospitals
from sklearn.exceptions import NotFittedError

import wri
from wri.densities import Bounded, Exact, FittedClassifier
from wri.errors import InputError
from wri.estimators import saving

QUICK = {"steps": 5, "hidden": (8, 4)}
FEATURES = ["cause", "marker", "noise"]
METHODS = ("predict", "score_samples", "score_environments", "rarity", "verdict")


def table(seed=0):
    X, y, site = hospitals(30, seed)
    return pd.DataFrame(X, columns=FEATURES).assign(site=site), np.array(["ill", "well"])[y]


@pytest.fixture(scope="module")
def classifier():
    options = {"density": FittedClassifier(hidden=4, steps=5)}
    return wri.WRIClassifier(environment="site", options=options, **QUICK).fit(*table())


@pytest.fixture(scope="module")
def regressor():
    X, _, site = hospitals(30)
    candidates = [{"penalty_weight": 1.0}, {"penalty_weight": 10.0}]
    model = wri.VRExRegressor(candidates=candidates, evidence_on="phi", **QUICK)
    return model.fit(X, 50 + 7 * X[:, 0], groups=site)


@pytest.fixture
def folder(regressor, tmp_path):
    regressor.save(tmp_path / "model")
    return tmp_path / "model"


def same(one, other, X, methods):
    for method in (*methods, "nearest_environment"):
        expected, found = getattr(one, method)(X), getattr(other, method)(X)
        assert found.dtype == expected.dtype
        if expected.dtype == object:
            assert found.tolist() == expected.tolist()
        else:
            assert found.tobytes() == expected.tobytes()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def edit(folder, change):
    """Change `model.json`."""
    path = folder / "model.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def edit_tensors(folder, **changed):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load(path.read_bytes())
    path.write_bytes(safetensors.numpy.save({**tensors, **changed}))


def refused(folder, words):
    with pytest.raises(InputError, match=words) as caught:
        saving.load(folder)
    assert str(folder) in str(caught.value)


def test_a_classifier_comes_back(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    loaded = wri.WRIClassifier.load(tmp_path / "model")
    X, y = table(1)
    same(classifier, loaded, X, (*METHODS, "predict_proba"))
    same(classifier, loaded, X[FEATURES], (*METHODS, "predict_proba"))
    assert loaded.score(X, y) == classifier.score(X, y)
    assert np.array_equal(loaded.state_, classifier.state_)
    assert loaded.spec_ == classifier.spec_
    assert loaded.score_new_site(X).meaning == classifier.score_new_site(X).meaning
    assert loaded.get_params() == classifier.get_params()
    assert set(vars(classifier)) == set(vars(loaded))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"cause": "effect"}))


def test_a_regressor_comes_back(regressor, folder):
    loaded = wri.VRExRegressor.load(folder)
    same(regressor, loaded, hospitals(30, 1)[0], METHODS)
    assert np.array_equal(loaded.candidate_losses_, regressor.candidate_losses_)
    assert loaded.get_params() == regressor.get_params()
    loaded.fit(*hospitals(30)[:2], groups=hospitals(30)[2])


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, -7]),
        np.array([0.0, 2.0], np.float32),
        np.array([False, True]),
        np.array(["ja", "nein, nie"]),
        np.array(["ja", "nein"], object),
        np.array([0, 255], np.uint8),
    ],
    ids=lambda labels: labels.dtype.name,
)
def test_classes_and_environments_keep_their_type(labels, tmp_path):
    X, y, _ = hospitals(20)
    model = wri.ERMClassifier(evidence_on="x", steps=1, hidden=())
    model.fit(X, labels[y], groups=labels[np.arange(len(y)) % 2]).save(tmp_path / "model")
    loaded = saving.load(tmp_path / "model")
    assert type(loaded) is wri.ERMClassifier
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.environments_.tolist() == model.environments_.tolist()
    same(model, loaded, X, METHODS)


def test_saving_twice_gives_equal_bytes(regressor, folder, tmp_path):
    regressor.save(tmp_path / "again")
    saving.load(folder).save(tmp_path / "loaded")
    assert contents(folder) == contents(tmp_path / "again") == contents(tmp_path / "loaded")


def test_a_model_is_replaced_and_nothing_is_left_beside_it(folder, tmp_path):
    X, y, site = hospitals(20)
    wri.ERMClassifier(**QUICK).fit(X, y, groups=site).save(folder)
    assert type(saving.load(folder)) is wri.ERMClassifier
    assert os.listdir(tmp_path) == ["model"]
    (tmp_path / "empty").mkdir()
    saving.load(folder).save(tmp_path / "empty")
    assert contents(tmp_path / "empty") == contents(folder)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_save_leaves_the_old_model(failing, folder, tmp_path, monkeypatch):
    before, model = contents(folder), saving.load(folder).set_params(verbose=True)
    real, calls = getattr(os, failing), []

    def fail_the_second_time(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, failing, fail_the_second_time)
    with pytest.raises(InputError, match=r"model: No space left on device"):
        model.save(folder)
    assert contents(folder) == before
    assert os.listdir(tmp_path) == ["model"]


def test_other_peoples_folders_are_left_alone(regressor, folder, tmp_path):
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt.* give another folder"):
        regressor.save(folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.json").write_text('{"format": "another"}')
    with pytest.raises(InputError, match=r"holds model\.json, which is not a saved model's"):
        regressor.save(other)
    with pytest.raises(InputError, match="is a file; give a folder"):
        regressor.save(folder / "notes.txt")
    with pytest.raises(InputError, match="create it first"):
        regressor.save(tmp_path / "no" / "model")
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["model", "other"]


def test_what_cannot_be_saved_is_said_before_anything_is_written(regressor, folder, tmp_path):
    class Own(wri.ERMClassifier):
        pass

    X, y, site = hospitals(20)
    with pytest.raises(InputError, match="Own is not one of wri's own estimators"):
        Own(**QUICK).fit(X, y, groups=site).save(tmp_path / "new")
    pairs = [(name, 1) for name in site]
    with pytest.raises(
        InputError, match=r"cannot be saved: environments must be .*strings, numbers"
    ):
        wri.ERMClassifier(**QUICK).fit(X, y, groups=pairs).save(tmp_path / "new")
    with pytest.raises(NotFittedError):
        wri.ERMClassifier().save(tmp_path / "new")
    broken = saving.load(folder)
    broken.parameters_[0] = np.nan
    with pytest.raises(InputError, match=r"cannot be saved: .*parameters holds NaN"):
        broken.save(tmp_path / "new")
    assert os.listdir(tmp_path) == ["model"]


def test_the_wrong_class(folder):
    with pytest.raises(InputError, match=r"holds VRExRegressor, not WRIClassifier; .*VRExRegr"):
        wri.WRIClassifier.load(folder)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pickle_in_disguise(name, folder):
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    refused(folder, "is not JSON" if name == "model.json" else "is a pickle .* was not opened")


@pytest.mark.parametrize("left", [0, 5, 100, 0.5, -1])
@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_truncated_file(name, left, folder):
    data = (folder / name).read_bytes()
    cut = data[: int(left * len(data)) if isinstance(left, float) else left]
    (folder / name).write_bytes(cut if name != "model.json" else cut.rstrip(b"\n}"))
    words = {"model.json": "is not JSON", "model.safetensors": "cut off|announces a header"}
    refused(folder, f"{name}: .*({words[name]}).*save the model again")


def test_wrong_tensors(folder):
    tensors = safetensors.numpy.load((folder / "model.safetensors").read_bytes())
    weights = tensors["parameters"]
    edit_tensors(folder, parameters=weights[:-1])
    refused(folder, r"parameters is float64\[72\], but model\.json implies float64\[73\]")
    edit_tensors(folder, parameters=weights.astype(np.float32))
    refused(folder, r"parameters is float32\[73\], but")
    edit_tensors(folder, parameters=weights * np.nan)
    refused(folder, "parameters holds NaN or infinity")
    edit_tensors(folder, parameters=weights, surplus=weights)
    refused(folder, "tensors missing or unknown: surplus")
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save({"parameters": weights}))
    refused(folder, r"missing or unknown: candidate_losses, densities, densities\.units")
    changed = {**tensors, "parameters": weights + 1e-9}
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(changed))
    refused(folder, r"not those that model\.json was written with")


@pytest.mark.parametrize(("column", "value"), [(-3, -1.0), (-2, 0.5), (-2, 9.0), (-1, 0.0)])
def test_held_out_rows_that_cannot_be(column, value, folder):
    """A negative loss, half an environment, one too many, a share of nothing."""
    tensors = safetensors.numpy.load((folder / "model.safetensors").read_bytes())
    tensors["known"][0, column] = value
    edit_tensors(folder, known=tensors["known"])
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    edit(folder, lambda record: record.update(sha256=digest))
    refused(folder, "known holds rows that cannot be")


def test_a_density_that_holds_a_function_is_described_and_not_kept(tmp_path):
    X, y, site = hospitals(30)
    options = {"weighting": "density", "density": Exact(lambda x: x[..., :4])}
    X = np.column_stack([X, X[:, 0]])
    model = wri.WRIClassifier(options=options, steps=5).fit(X, y, groups=site)
    with pytest.warns(UserWarning, match="options, density: objects are not saved"):
        model.save(tmp_path / "model")
    loaded = wri.WRIClassifier.load(tmp_path / "model")
    assert (loaded.options, loaded.spec_.objective.density) == (None, Bounded())
    same(model, loaded, X, METHODS)


def test_a_newer_version(folder):
    edit(folder, lambda record: record.update(format_version=9, wri_version="9.1", new=1))
    refused(folder, r"written by wri '9\.1' in format 9; .* up to 3: pip install --upgrade")


def test_an_older_version(folder):
    edit(folder, lambda record: record.update(format_version=1, wri_version="0.0"))
    refused(folder, r"written by wri '0\.0' in format 1, .* fit and save the model again")


def test_labels_that_json_has_not(tmp_path):
    X, y, _ = hospitals(20)
    days = pd.to_datetime(["2026-01-01", "2026-01-02"])[np.arange(len(y)) % 2]
    model = wri.ERMClassifier(**QUICK).fit(X, y, groups=days)
    with pytest.raises(InputError, match=r"cannot be saved: labels must be .* groups as strings"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(tensors="../../secret"), "missing or unknown: tensors"),
        (lambda r: r.pop("spec"), "missing or unknown: spec"),
        (lambda r: r.update(format="torch"), "has no entry"),
        (lambda r: r.update(format_version="1"), "format_version must be 3"),
        (lambda r: r.update(estimator="os.system"), "estimator 'os.system' is unknown"),
        (lambda r: r.update(features=4), r"parameters is float64\[73\], but"),
        (lambda r: r["spec"].update(hidden=[10**30, 4]), r"parameters is float64\[73\], but"),
        (lambda r: r["spec"].update(hidden=[-8, 4]), "hidden layers need at least one unit"),
        (lambda r: r["spec"].update(hidden=[]), r"parameters is float64\[73\], but"),
        (lambda r: r["spec"].update(hidden=["8"]), "save the model again"),
        (lambda r: r["spec"].update(shell="rm"), "a model specification has no 'shell'"),
        (lambda r: r["spec"].update(objective="os.system"), "unknown objective 'os.system'"),
        (lambda r: r["spec"].update(steps="many"), "save the model again"),
        (lambda r: r["spec"]["options"].update(divided={"kind": "Exact"}), "density must be one"),
        (lambda r: r.update(classes=r["environments"]), "a regressor has no classes"),
        (lambda r: r["parameters"].update(shell="rm"), "shell"),
        (lambda r: r["parameters"].update(hidden=3), "model.json: .*save the model again"),
        (lambda r: r["parameters"].update(environment=["a"]), "environment must name a column"),
        (lambda r: r.update(evidence_on="y"), "evidence_on must be one of"),
        (lambda r: r.update(feature_names=["a"]), "feature_names must be 3 names"),
        (lambda r: r["environments"].update(dtype="<U999999999"), "environments must be"),
        (lambda r: r["environments"].update(values=["a", "a"]), "environments must be"),
        (lambda r: r["environments"].update(values=[["a"]]), "environments must be"),
        (lambda r: r.update(components=10**12), "densities is"),
        (lambda r: r.update(tail_power=10**6), "evidence is out of range"),
        (
            lambda r: r.update(rare_threshold=float("nan")),
            "thresholds must be numbers",
        ),
        (lambda r: r.update(rare_threshold=None), "rare_threshold has the wrong type: None"),
        (lambda r: r.update(rare_threshold=-1e9), "outside <= rare"),
        (lambda r: r["spec"]["hyper"].update(learning_rate="many"), "must be a number"),
    ],
)
def test_a_record_that_says_something_else(change, words, folder):
    edit(folder, change)
    refused(folder, words)


def test_numbers_that_overflow_and_nesting_without_end(folder):
    text = (folder / "model.json").read_text()
    record = json.loads(text)
    (folder / "model.json").write_text(text.replace(str(record["rare_threshold"]), "1e999"))
    refused(folder, "thresholds must be numbers")
    (folder / "model.json").write_text("[" * 100_000)
    refused(folder, "is not JSON")
    (folder / "model.json").write_text("1" * 100_000)
    refused(folder, r"model\.json: .*save the model again")


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_links_and_pipes(name, folder, tmp_path):
    outside = tmp_path / "elsewhere"
    os.replace(folder / name, outside)
    refused(folder, f"{name}: No such file")
    (folder / name).symlink_to(outside)
    refused(folder, f"{name}: is a link, and links are not followed")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, f"{name}: is not a regular file")


def test_ten_gigabytes(folder):
    size = 10 << 30
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(size.to_bytes(8, "little") + data[8:])
    refused(folder, r"announces a header of 10,737,418,240 bytes in a file of")
    os.truncate(path, size + 100)  # sparse
    refused(folder, "announces a header of 10,737,418,240 bytes")
    path.write_bytes(data)
    os.truncate(path, size)
    refused(folder, "has 10,737,418,240 bytes, more than")
    path.write_bytes(data)
    os.truncate(folder / "model.json", size)
    refused(folder, r"model\.json: has 10,737,418,240 bytes, more than")


def test_no_folder(tmp_path):
    refused(tmp_path / "nowhere", "is not a folder")
    refused(tmp_path, r"model\.json: No such file")
