"""A saved model comes back bit for bit; a folder that is not one is refused and runs nothing."""

import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import time
import warnings
from itertools import cycle

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

import wri
from hospitals import hospitals
from wri import saving
from wri.densities import Bounded, Exact, FittedClassifier
from wri.errors import InputError
from wri.saving.folder import tensors_name
from wri.saving.values import record_digest

QUICK = {"steps": 5, "hidden": (8, 4), "penalty_weight": None}
FEATURES = ["cause", "marker", "noise"]
METHODS = ("predict", "score_samples", "score_environments", "typicality", "verdict")


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


def read_record(folder):
    return json.loads((folder / "model.json").read_text())


def edit(folder, change):
    """Change `model.json` as somebody does who knows how its digest is made."""
    record = read_record(folder)
    change(record)
    record["digest"] = record_digest(record)
    (folder / "model.json").write_text(json.dumps(record))


def tensors_of(folder):
    (path,) = folder.glob("model-*.safetensors")
    return path


def edit_tensors(folder, **changed):
    """Change tensors, and the digests with them; None drops one."""
    path = tensors_of(folder)
    tensors = {**safetensors.numpy.load(path.read_bytes()), **changed}
    data = safetensors.numpy.save({n: each for n, each in tensors.items() if each is not None})
    sha256 = hashlib.sha256(data).hexdigest()
    path.unlink()
    (folder / tensors_name(sha256)).write_bytes(data)
    edit(folder, lambda record: record.update(sha256=sha256))


def file_of(folder, kind):
    return folder / "model.json" if kind == "record" else tensors_of(folder)


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
    assert set(vars(classifier)) == set(vars(loaded)) | {"penalty_path_"}
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"cause": "effect"}))


def test_a_regressor_comes_back(regressor, folder):
    loaded = wri.VRExRegressor.load(folder)
    same(regressor, loaded, hospitals(30, 1)[0], METHODS)
    assert np.array_equal(loaded.candidate_losses_, regressor.candidate_losses_)
    assert np.array_equal(loaded.left_out_, regressor.left_out_)
    np.testing.assert_equal(loaded.ranges_, regressor.ranges_)
    assert loaded.get_params() == regressor.get_params()
    loaded.fit(*hospitals(30)[:2], groups=hospitals(30)[2])


def test_dicts_among_the_parameters_come_back(tmp_path):
    X, y, site = hospitals(20)
    given = {
        "hyper": {"clip_norm": 1.0},
        "options": {"density": FittedClassifier(hidden=4, steps=5)},
        "candidates": [{"hidden": (3, 2)}, {"density": Bounded(), "penalty_weight": 0.0}],
    }
    model = wri.WRIClassifier(steps=2, site_spread=False)
    model.fit(X, y, groups=site).set_params(**given).save(tmp_path / "model")
    assert {name: getattr(saving.load(tmp_path / "model"), name) for name in given} == given


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


@pytest.mark.parametrize(("failing", "time"), [("fsync", 1), ("fsync", 3), ("replace", 2)])
def test_a_failed_save_leaves_the_old_model(failing, time, folder, tmp_path, monkeypatch):
    before, model = contents(folder), saving.load(folder).set_params(verbose=True)
    real, calls = getattr(os, failing), []

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == time:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(os, failing, fail_once)
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
    with pytest.raises(InputError, match=r"holds model\.json, which is not part of a saved model"):
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
    with pytest.raises(InputError, match=r"cannot be saved: labels must be .* not tuple"):
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
    with pytest.raises(InputError, match=r"; use wri\.load or "):
        wri.WRIClassifier.load(folder)


def test_any_saved_model_is_loaded_without_naming_its_class(regressor, classifier, tmp_path):
    X, y, site = hospitals(30)
    steps = wri.make_pipeline(StandardScaler(), wri.ERMClassifier(**QUICK))
    pipeline = steps.fit(X, y, groups=site)
    for model, rows in ((regressor, X), (classifier, table(1)[0]), (pipeline, X)):
        model.save(tmp_path / "model")
        loaded = wri.load(tmp_path / "model")
        assert type(loaded) is type(model)
        same(model, loaded, rows, METHODS)
    with pytest.raises(InputError, match="holds a model of tables, which has no backbone="):
        wri.load(tmp_path / "model", backbone=object())


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("a pickle was run",)


@pytest.mark.parametrize("kind", ["record", "tensors"])
def test_a_pickle_in_disguise(kind, folder):
    file_of(folder, kind).write_bytes(pickle.dumps(Bomb()))
    refused(folder, "is not JSON" if kind == "record" else "is a pickle .* was not opened")


@pytest.mark.parametrize("left", [0, 5, 100, 0.5, -1])
@pytest.mark.parametrize("kind", ["record", "tensors"])
def test_a_truncated_file(kind, left, folder):
    path = file_of(folder, kind)
    data = path.read_bytes()
    cut = data[: int(left * len(data)) if isinstance(left, float) else left]
    path.write_bytes(cut if kind == "tensors" else cut.rstrip(b"\n}"))
    words = {"record": "is not JSON", "tensors": "contents are not those|announces a header"}
    refused(folder, f"{path.name}: .*({words[kind]}).*save the model again")


def test_a_changed_digit_is_refused(folder):
    """Every single digit of `model.json`: none of them may be another."""
    path = folder / "model.json"
    text = path.read_text()
    digits = [place for place, letter in enumerate(text) if letter.isdigit()]
    assert len(digits) > 100
    for place in digits[::7]:
        changed = str((int(text[place]) + 1) % 10)
        other = text[:place] + changed + text[place + 1 :]
        if json.loads(other) == json.loads(text):
            continue  # beyond the precision of a number
        path.write_text(other)
        with pytest.raises(InputError, match=re.escape(str(folder))):
            saving.load(folder)
    path.write_text(text.replace('"rare_threshold": -', '"rare_threshold": '))
    refused(folder, "was changed after it was written; damaged")


def test_another_layout_of_the_same_record_is_read(folder):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    saving.load(folder)


def test_wrong_tensors(folder):
    weights = safetensors.numpy.load(tensors_of(folder).read_bytes())["parameters"]
    edit_tensors(folder, parameters=weights[:-1])
    refused(folder, r"parameters is float64\[72\], but model\.json implies float64\[73\]")
    edit_tensors(folder, parameters=weights.astype(np.float32))
    refused(folder, r"parameters is float32\[73\], but")
    edit_tensors(folder, parameters=weights * np.nan)
    refused(folder, "parameters holds NaN or infinity")
    edit_tensors(folder, parameters=weights, surplus=weights)
    refused(folder, "tensors missing or unknown: surplus")
    edit_tensors(folder, surplus=None, candidate_losses=None, densities=None)
    refused(folder, r"missing or unknown: candidate_losses, densities")


def test_other_tensors_under_the_same_name(folder):
    path = tensors_of(folder)
    tensors = safetensors.numpy.load(path.read_bytes())
    tensors["parameters"] += 1e-9
    path.write_bytes(safetensors.numpy.save(tensors))
    refused(folder, r"not those that model\.json was written with")
    edit(folder, lambda record: record.update(sha256="../secret"))
    refused(folder, "sha256 is not a SHA-256")


@pytest.mark.parametrize(("column", "value"), [(-3, -1.0), (-2, 0.5), (-2, 9.0), (-1, 0.0)])
def test_held_out_rows_that_cannot_be(column, value, folder):
    """A negative loss, half an environment, one too many, a share of nothing."""
    tensors = safetensors.numpy.load(tensors_of(folder).read_bytes())
    tensors["known"][0, column] = value
    edit_tensors(folder, known=tensors["known"])
    refused(folder, "known holds impossible values")


def test_weights_of_1e308_give_no_prediction(folder):
    """They are finite and load; NaN beside a prediction would look like an answer."""
    weights = safetensors.numpy.load(tensors_of(folder).read_bytes())["parameters"]
    edit_tensors(folder, parameters=np.full_like(weights, 1e308))
    loaded = saving.load(folder)
    for method in ("predict", "assess"):
        with pytest.raises(InputError, match=r"the prediction for row 0 is not finite"):
            getattr(loaded, method)(hospitals(5)[0])


def test_probabilities_are_never_nan(classifier, tmp_path):
    classifier.save(tmp_path / "model")
    weights = safetensors.numpy.load(tensors_of(tmp_path / "model").read_bytes())["parameters"]
    edit_tensors(tmp_path / "model", parameters=np.full_like(weights, 1e308))
    loaded = saving.load(tmp_path / "model")
    for method in ("predict", "predict_proba", "assess"):
        with pytest.raises(InputError, match=r"the prediction for row 0 is not finite"):
            getattr(loaded, method)(table()[0])


def test_the_number_of_processes_is_neither_written_nor_read(folder, regressor, tmp_path):
    assert "n_jobs" not in read_record(folder)["parameters"]
    edit(folder, lambda record: record["parameters"].update(n_jobs=12))
    assert saving.load(folder).n_jobs is None


def test_a_density_that_holds_a_function_is_described_and_not_kept(tmp_path):
    X, y, site = hospitals(30)
    options = {"weighting": "density", "density": Exact(lambda x: x[..., :4])}
    X = np.column_stack([X, X[:, 0]])
    model = wri.WRIClassifier(options=options, steps=5, penalty_weight=None).fit(X, y, groups=site)
    with pytest.warns(UserWarning, match="options, density cannot be saved"):
        model.save(tmp_path / "model")
    loaded = wri.WRIClassifier.load(tmp_path / "model")
    assert (loaded.options, loaded.spec_.objective.density) == (None, Bounded())
    same(model, loaded, X, METHODS)


def test_a_newer_version(folder):
    edit(folder, lambda record: record.update(format_version=9, wri_version="9.1", new=1))
    refused(folder, r"written by wri '9\.1' in format 9, .* format 7; pip install --upgrade")


def test_an_older_version(folder):
    edit(folder, lambda record: record.update(format_version=1, wri_version="0.0"))
    refused(folder, r"written by wri '0\.0' in format 1, .* format 7; fit and save the model again")


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_labels_that_json_has_not(unit, tmp_path):
    X, y, _ = hospitals(20)
    days = pd.to_datetime(["2026-01-01", "2026-01-02"]).as_unit(unit)[np.arange(len(y)) % 2]
    model = wri.ERMClassifier(**QUICK).fit(X, y, groups=days)
    with pytest.raises(InputError, match=r"cannot be saved: labels must be .* groups as strings"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r.update(tensors="../../secret"), "missing or unknown: tensors"),
        (lambda r: r.pop("spec"), "missing or unknown: spec"),
        (lambda r: r.update(format="torch"), "has no entry"),
        (lambda r: r.update(format_version="1"), "format_version must be 7"),
        (lambda r: r.update(estimator="os.system"), "estimator 'os.system' is unknown"),
        (lambda r: r.update(features=4), r"parameters is float64\[73\], but"),
        (lambda r: r["spec"].update(hidden=[10**30, 4]), "more than 134,217,728 weights"),
        (lambda r: r["spec"].update(hidden=[-8, 4]), "hidden layers need at least one unit"),
        (lambda r: r["spec"].update(hidden=[]), r"parameters is float64\[73\], but"),
        (lambda r: r["spec"].update(hidden=["8"]), "save the model again"),
        (lambda r: r["spec"].update(shell="rm"), "a model specification has no 'shell'"),
        (lambda r: r["spec"].update(objective="os.system"), "unknown objective 'os.system'"),
        (lambda r: r["spec"].update(steps="many"), "save the model again"),
        (lambda r: r["spec"]["options"].update(divided={"kind": "Exact"}), "density must be one"),
        (lambda r: r.update(classes=r["environments"]), "a regressor has no classes"),
        (lambda r: r.update(backbone={"name": "a", "digest": "b"}), "a regressor has no backbone"),
        (lambda r: r["parameters"].update(shell="rm"), "shell"),
        (lambda r: r["parameters"].update(hidden=3), "hidden must be a tuple"),
        (lambda r: r["parameters"].update(environment=["a"]), "must be the name of a column"),
        (lambda r: r["spec"].update(options=None), "options of a model specification must be"),
        (lambda r: r["spec"].update(hyper=3), "hyper of a model specification must be"),
        (lambda r: r.update(state=["a", 10**12]), "state must be a shape"),
        (lambda r: r.update(features=0), "0 features are impossible"),
        (lambda r: r.update(evidence_on="y"), "evidence_on must be one of"),
        (lambda r: r.update(feature_names=["a"]), "feature_names must be 3 names"),
        (lambda r: r["environments"].update(dtype="<U999999999"), "environments must be"),
        (
            lambda r: r["environments"].update(dtype="<U9999", values=[*map(str, range(100_000))]),
            "its arrays would take 3,999,600,000 bytes",
        ),
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


def test_ranges_and_left_out_sites_that_cannot_be(regressor, folder):
    low, high, _ = regressor.ranges_
    edit_tensors(folder, ranges=np.stack([high, low]))
    refused(folder, "ranges must have low <= high")
    edit_tensors(folder, ranges=np.stack([low, high]), left_out=-np.stack(regressor.left_out_))
    refused(folder, "left_out holds impossible values")


def test_numbers_that_overflow_and_nesting_without_end(folder):
    edit(folder, lambda record: record.update(rare_threshold=float("inf")))
    refused(folder, "thresholds must be numbers")
    (folder / "model.json").write_text("[" * 100_000)
    refused(folder, "is not JSON")
    (folder / "model.json").write_text("1" * 100_000)
    refused(folder, r"model\.json: .*save the model again")


@pytest.mark.parametrize("kind", ["record", "tensors"])
def test_links_and_pipes(kind, folder, tmp_path):
    path, outside = file_of(folder, kind), tmp_path / "elsewhere"
    os.replace(path, outside)
    gone = "is not a saved model" if kind == "record" else f"{path.name}: No such file"
    refused(folder, gone)
    path.symlink_to(outside)
    refused(folder, f"{path.name}: is a link; links are not followed")
    path.unlink()
    os.mkfifo(path)
    refused(folder, f"{path.name}: is not a regular file")


def test_ten_gigabytes(folder):
    size = 10 << 30
    path = tensors_of(folder)
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


def test_a_file_of_more_bytes_than_its_tensors_take_is_not_read(folder):
    """The record implies 8 bytes for each number; a header has at most one megabyte."""
    os.truncate(tensors_of(folder), 1 << 29)  # sparse, and below the limit of every model
    refused(folder, r"has 536,870,912 bytes, more than 1,0\d\d,\d\d\d")


def test_no_folder(tmp_path):
    refused(tmp_path / "nowhere", "does not exist or is not a folder")
    refused(tmp_path, r"is not a saved model: it has no model\.json")


@pytest.mark.parametrize("path", ["model\0", "m" * 5000, "m" * 300, None, 3.5])
def test_what_cannot_be_a_path(path, regressor):
    for use in (wri.VRExRegressor.load, regressor.save):
        with pytest.raises(InputError, match="cannot be a folder: ") as caught:
            use(path)
        assert len(str(caught.value)) < 300


def save_in_turn(models, target):
    """Another process that saves models over each other until it is killed; its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads of this process
        pid = os.fork()
    if not pid:
        try:
            for model in cycle(models):
                model.save(target)
        finally:
            os._exit(1)
    return pid


@pytest.mark.slow
def test_a_killed_save_leaves_the_old_model_or_the_new_one(regressor, folder, tmp_path):
    """A process saves two models in turn over each other and is killed at random moments."""
    other, target = tmp_path / "other", tmp_path / "target"
    saving.load(folder).set_params(verbose=True).save(other)
    models = [saving.load(folder), saving.load(other)]
    regressor.save(target)
    X = hospitals(5)[0]
    expected = regressor.predict(X).tobytes()
    random, mixed = np.random.default_rng(0), 0
    for _ in range(3):
        process = save_in_turn(models, target)
        for _ in range(40):
            time.sleep(random.uniform(0, 0.01))
            os.kill(process, signal.SIGSTOP)
            loaded = saving.load(target)
            assert loaded.predict(X).tobytes() == expected
            mixed += len(os.listdir(target)) != 2  # the process was in the middle of a save
            os.kill(process, signal.SIGCONT)
        os.kill(process, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL  # it saved until then
        assert saving.load(target).predict(X).tobytes() == expected
    assert mixed
    regressor.save(target)
    assert contents(target) == contents(folder)
    assert sorted(os.listdir(tmp_path)) == ["model", "other", "target"]


STEPS = ("open", "fsync", "replace", "listdir", "unlink", "mkdir")


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.slow
def test_a_save_that_stops_before_any_of_its_steps(old, regressor, folder, tmp_path):
    """A kill runs no clean-up: after each call of the system the old or the new model is there."""
    X, y, site = hospitals(20)
    new = wri.ERMClassifier(**QUICK).fit(X, y, groups=site)
    stops = 0
    while True:
        target = tmp_path / f"target{stops}"
        if old:
            shutil.copytree(folder, target)
        pid = os.fork()
        if pid == 0:
            _exit_at_call(stops)
            new.save(target)
            os._exit(0)
        finished = os.waitpid(pid, 0)[1] == 0
        if finished or (old and stops):
            loads = saving.load(target)
            assert type(loads) in (wri.ERMClassifier, type(regressor))
        if finished:
            assert type(saving.load(target)) is wri.ERMClassifier
            break
        regressor.save(target)  # over whatever is left
        assert contents(target) == contents(folder)
        stops += 1
    assert stops > 8


def _exit_at_call(number):
    """End this process without clean-up at its nth call that changes or reads a folder."""
    left = [number]

    def stopping(real):
        def call(*arguments, **options):
            if not left[0]:
                os._exit(1)
            left[0] -= 1
            return real(*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, stopping(getattr(os, name)))
