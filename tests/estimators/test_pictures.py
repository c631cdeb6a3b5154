import json
from copy import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import wri
from pictures import make_backbone, make_folder, make_picture
from wri import ERMClassifier, InputError, PictureClassifier, WRIClassifier, WRIRegressor
from wri.cli.predicting import predict_pictures
from wri.datasets import ImageFolder

# pictures of two domains, which is true of these
pytestmark = pytest.mark.filterwarnings("ignore:.*pairs of sites hardly overlap")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WRI_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ImageFolder(make_folder(tmp_path_factory.mktemp("pictures"), ("a", "b", "c"), each=12))


@pytest.fixture(scope="module")
def fitted(folder):
    estimator = WRIClassifier(steps=40)
    model = PictureClassifier(estimator, backbone=make_backbone(), workers=1)
    return model.fit(folder.only("a", "b"))


@pytest.fixture
def model(fitted):
    return copy(fitted)


def test_from_a_folder_to_predictions_and_verdicts(model, folder):
    train, new = folder.hold_out("c")
    assert model.classes_.tolist() == ["cat", "dog"]
    assert model.estimator_.environments_.tolist() == ["a", "b"]
    assert model.score(train) == 1.0
    assert model.predict(new).shape == (24,)
    assert np.allclose(model.predict_proba(new).sum(1), 1)
    assert set(model.verdict(train)) <= {"supported", "rare", "outside"}
    assert (model.verdict(train) == "supported").mean() > 0.8
    assert ((model.reason(train) == "") == (model.verdict(train) == "supported")).all()
    assert set(model.nearest_environment(train)) == {"a", "b"}
    assert ((model.typicality(new) > 0) & (model.typicality(new) <= 100)).all()
    assert "rows" in model.score_new_site(new).meaning


def test_a_folder_of_pictures_is_predicted_into_a_table(model, folder, tmp_path):
    make_folder(tmp_path / "new", ("d",), each=3)
    (tmp_path / "new" / "d" / "broken.jpg").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 of 7 pictures cannot be read"):
        predict_pictures(model, tmp_path / "new", tmp_path / "out.csv")
    table = pd.read_csv(tmp_path / "out.csv").set_index("picture")
    assert len(table) == 7
    assert table.loc["d/broken.jpg", "verdict"] == "unreadable"
    assert pd.isna(table.loc["d/broken.jpg", "prediction"])
    readable = table.drop("d/broken.jpg")
    paths = [tmp_path / "new" / name for name in readable.index]
    assert readable["prediction"].tolist() == model.predict(paths).tolist()
    assert readable["verdict"].tolist() == model.verdict(paths).tolist()


def test_paths_with_labels_are_the_same_as_a_folder(model, folder):
    train = folder.only("a", "b")
    by_path = clone(model).fit([str(p) for p in train.paths], y=train.y, groups=train.groups)
    new = folder.only("c")
    assert np.array_equal(by_path.predict_proba(new.paths), model.predict_proba(new))
    assert np.array_equal(by_path.score_samples(new), model.score_samples(new))


def test_a_broken_picture_keeps_its_row(model, folder, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no picture")
    paths = [folder.paths[0], broken, folder.paths[-1]]
    with pytest.warns(UserWarning, match=r"1 of 3 pictures cannot be read.*broken\.jpg"):
        assert model.verdict(paths)[1] == model.reason(paths)[1] == "unreadable"
    with pytest.warns(UserWarning, match="1 of 3"):
        assert model.predict(paths).tolist()[1] is None
    with pytest.warns(UserWarning, match="1 of 3"):
        chances = model.predict_proba(paths)
    assert np.isnan(chances).any(1).tolist() == [False, True, False]
    with pytest.warns(UserWarning, match="1 of 3"):
        assert model.score(paths, ["cat", "cat", "dog"]) == 1.0


def test_fit_leaves_out_broken_pictures(tmp_path):
    folder = ImageFolder(make_folder(tmp_path))
    folder.paths[0].write_bytes(b"no picture")
    estimator = PictureClassifier(ERMClassifier(steps=5), backbone=make_backbone())
    with pytest.warns(UserWarning, match="1 of 12 pictures"):
        model = estimator.fit(folder)
    assert list(model.broken_) == [folder.paths[0]]


def test_a_saved_model_names_its_backbone_and_predicts_the_same(model, folder, tmp_path):
    model.save(tmp_path / "model")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    assert record["backbone"] == {"name": "halves", "digest": make_backbone().digest}
    loaded = PictureClassifier.load(tmp_path / "model", backbone=make_backbone())
    new = folder.only("c")
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert np.array_equal(loaded.verdict(new), model.verdict(new))
    any_model = wri.load(tmp_path / "model", backbone=make_backbone())
    assert type(any_model) is PictureClassifier
    assert np.array_equal(any_model.predict_proba(new), model.predict_proba(new))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "model.json").read_bytes() == (
        tmp_path / "model" / "model.json"
    ).read_bytes()


def test_another_backbone_is_refused(model, folder, tmp_path):
    model.save(tmp_path / "model")
    for other in (make_backbone(seed=1), make_backbone(mean=(0, 0, 0))):
        with pytest.raises(InputError, match="weights or preprocessing differ"):
            PictureClassifier.load(tmp_path / "model", backbone=other)
    with pytest.raises(InputError, match="backbone 'halves', which is not part of wri"):
        PictureClassifier.load(tmp_path / "model")
    with pytest.raises(InputError, match="not part of wri; give it as backbone="):
        wri.load(tmp_path / "model")
    assert type(WRIClassifier.load(tmp_path / "model")) is WRIClassifier  # of the features
    model.backbone = make_backbone(seed=1)
    with pytest.raises(InputError, match="weights or preprocessing differ"):
        model.predict(folder)


def test_a_changed_name_of_the_backbone_is_noticed(model, tmp_path):
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    path.write_text(path.read_text().replace('"halves"', '"halfes"'))
    with pytest.raises(InputError, match="was changed after it was written"):
        PictureClassifier.load(tmp_path / "model")


def test_models_of_tables_are_not_models_of_pictures(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    table = WRIClassifier(steps=5).fit(x, x[:, 0] > 0, groups=np.arange(60) % 2)
    table.save(tmp_path / "model")
    assert "backbone" not in json.loads((tmp_path / "model" / "model.json").read_text())
    with pytest.raises(InputError, match=r"a model of tables.*use WRIClassifier\.load"):
        PictureClassifier.load(tmp_path / "model")


def test_bad_input_is_refused(folder, tmp_path):
    estimator = PictureClassifier(WRIClassifier(steps=5), backbone=make_backbone())
    with pytest.raises(InputError, match="y is missing"):
        estimator.fit(folder.paths)
    with pytest.raises(InputError, match="one for each"):
        estimator.fit(folder.paths, y=["cat"])
    with pytest.raises(InputError, match="one of wri's classifiers, not WRIRegressor"):
        PictureClassifier(WRIRegressor(), backbone=make_backbone()).fit(folder)
    one = make_folder(tmp_path / "one", ("a",), each=10)
    with pytest.warns(UserWarning, match="one domain"):
        alone = ImageFolder(one)
    with pytest.warns(UserWarning, match="was given only one, so it trains plain ERM"):
        estimator.fit(alone)


def test_a_picture_unlike_all_others_is_rarer(model, folder, tmp_path):
    strange = tmp_path / "strange.png"
    make_picture(0, 0, 0).point(lambda value: 255 - value).save(strange)
    assert model.typicality([strange])[0] < np.median(model.typicality(folder.only("a", "b")))
