"""Features of environments: fitted on the training ones, standardised, kept and never mixed up."""

import os
from typing import NamedTuple

import numpy as np
import pytest

from wri.errors import InputError
from wri.paper.features import CNN, PCA, Autoencoder, cached, feature_environments, fitted_features
from wri.paper.features.cached import content_key, remembered


class Site(NamedTuple):
    name: str
    images: np.ndarray
    y: np.ndarray


def sites(seed=0):
    random = np.random.default_rng(seed)
    made = []
    for name in ("first", "second", "test"):
        images = random.integers(0, 256, (30, 1, 16, 16)).astype(np.uint8)
        made.append(Site(name, images, np.arange(30) % 2))
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the default cache lies."""
    monkeypatch.setenv("WRI_CACHE", str(tmp_path))
    return tmp_path / "features"


@pytest.fixture
def fits(monkeypatch):
    """Counts what is fitted rather than read."""
    counted, fit = [], PCA._fit
    monkeypatch.setattr(PCA, "_fit", lambda self, *rest: counted.append(self) or fit(self, *rest))
    return counted


def test_training_features_have_mean_zero_and_spread_one(folder):
    data = sites()
    made = feature_environments(data, PCA(width=4))
    assert [e.name for e in made] == ["first", "second", "test"]
    training = np.concatenate([made[0].x, made[1].x])
    assert training.dtype == np.float32
    np.testing.assert_allclose(training.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(training.std(0), 1, atol=1e-5)
    assert abs(made[2].x.std() - 1) > 0.01
    for environment, site in zip(made, data, strict=True):
        assert np.array_equal(environment.y, site.y)


def test_columns_without_spread_become_zero(folder):
    data = sites()
    for site in data[:2]:
        site.images[:] = site.images[:, :, :1, :1]  # all pixels alike: one component
    made = feature_environments(data, PCA(width=3))
    assert made[0].x[:, 0].std() > 0.5
    for environment in made:
        assert (environment.x[:, 1:] == 0).all()


def test_features_are_those_of_the_extractor_and_further_images_share_the_scale(folder, fits):
    data = sites()
    standard = feature_environments(data, PCA(width=4))
    features = fitted_features(data, PCA(width=4))
    assert len(fits) == 1
    training = np.concatenate([data[0].images, data[1].images])
    direct = PCA(width=4).fit(training, np.zeros(60, int))
    for scaled, site in zip(standard, data, strict=True):
        assert np.array_equal(scaled.x, features.standardised(direct.transform(site.images)))
        assert np.array_equal(scaled.x, features.transform(site.images))
    assert features.fitted.reconstruction_error(training) == direct.reconstruction_error(training)


def test_test_images_have_no_influence_on_the_features_of_others(folder):
    data = sites()
    one = feature_environments(data, PCA(width=4))
    data[2] = data[2]._replace(images=255 - data[2].images)
    other = feature_environments(data, PCA(width=4))
    assert np.array_equal(one[0].x, other[0].x)
    assert np.array_equal(one[1].x, other[1].x)
    assert not np.array_equal(one[2].x, other[2].x)


@pytest.mark.parametrize(
    "extractor", [PCA(4), Autoencoder(4, epochs=1), CNN(4, epochs=1)], ids=["PCA", "AE", "CNN"]
)
def test_the_second_time_everything_is_read(folder, monkeypatch, extractor):
    data = sites()
    one = feature_environments(data, extractor)
    assert len(list(folder.iterdir())) == 4  # the extractor and three environments
    monkeypatch.setattr(type(extractor), "_fit", None)
    monkeypatch.setattr(cached.FittedFeatures, "transform", None)
    for first, again in zip(one, feature_environments(data, extractor), strict=True):
        assert np.array_equal(first.x, again.x)


def test_whatever_features_depend_on_is_in_the_key(folder):
    def key(data, extractor=None, **options):
        return fitted_features(data, extractor or PCA(width=4), **options).key

    shorter, swapped, relabelled = sites(), sites(), sites()
    shorter[1] = Site("second", *(part[:-1] for part in shorter[1][1:]))
    swapped[0], swapped[1] = swapped[1], swapped[0]
    relabelled[0] = relabelled[0]._replace(y=1 - relabelled[0].y)
    small = CNN(width=4, epochs=1)
    keys = [
        key(sites()),
        key(sites(seed=1)),
        key(shorter),
        key(swapped),
        key(sites(), seed=1),
        key(sites(), train=(0, 2)),
        key(sites(), PCA(width=5)),
        key(sites(), Autoencoder(width=4, epochs=1)),
        key(sites(), Autoencoder(width=4, epochs=2)),
        key(sites(), small),
        key(relabelled, small),
    ]
    assert len(set(keys)) == len(keys)
    assert key(relabelled) == keys[0]  # PCA does not look at labels


def test_the_shape_and_type_of_an_array_are_in_its_key():
    zeros = np.zeros(4, np.uint8)
    keys = {content_key(each) for each in (zeros, zeros[:, None], zeros.view(np.int8), zeros[:3])}
    assert len(keys) == 4
    assert content_key("ab", "c") != content_key("a", "bc")


@pytest.mark.parametrize("bytes_kept", [0, 100, -100])
def test_a_truncated_file_is_named_and_made_anew(folder, fits, bytes_kept):
    data = sites()
    one = feature_environments(data, PCA(width=4))
    names = sorted(path.name for path in folder.iterdir())
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:bytes_kept])
    with pytest.warns(UserWarning, match=r"\.npz is damaged or foreign and is made again") as said:
        again = feature_environments(data, PCA(width=4))
    assert sorted(str(each.message).split(" is ")[0] for each in said) == [
        str(folder / name) for name in names
    ]
    assert len(fits) == 2
    for first, second in zip(one, again, strict=True):
        assert np.array_equal(first.x, second.x)
    feature_environments(data, PCA(width=4))
    assert len(fits) == 2


def test_a_file_under_another_key_or_of_another_kind_is_not_taken(folder, fits):
    data = sites()
    path = folder / f"{fitted_features(data, PCA(width=4)).key}.npz"
    foreign = folder / f"{fitted_features(data, PCA(width=5)).key}.npz"
    own = path.read_bytes()
    strange = folder / "strange.npz"
    np.savez(strange, key=np.array(path.stem), mean=np.zeros(3))
    np.save(folder / "array.npy", np.zeros(3))
    for other in (foreign, strange, folder / "array.npy"):
        path.write_bytes(other.read_bytes())
        with pytest.warns(UserWarning, match=path.name):
            fitted_features(data, PCA(width=4))
        assert path.read_bytes() == own


def test_pickles_are_not_opened(folder, tmp_path):
    folder.mkdir()
    with open(folder / "k.npz", "wb") as file:
        np.savez(file, key=np.array("k"), x=np.array([print], object))
    with pytest.warns(UserWarning, match="allow_pickle=False"):
        remembered(folder, "k", lambda: {"x": np.zeros(1)}, lambda arrays: arrays["x"])


def test_an_interruption_leaves_nothing_behind(folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        feature_environments(sites(), PCA(width=4), progress=interrupt)
    assert not folder.exists()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            feature_environments(sites(), PCA(width=4))
    assert list(folder.iterdir()) == []
    feature_environments(sites(), PCA(width=4))
    assert {path.suffix for path in folder.iterdir()} == {".npz"}


def test_a_cache_that_cannot_be_written_costs_a_warning_only(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written .* WRI_CACHE"):
        made = feature_environments(sites(), PCA(width=4), folder=blocked / "below")
    assert made[0].x.shape == (30, 4)


def test_features_that_are_not_finite_are_refused_and_not_kept(folder, monkeypatch):
    monkeypatch.setattr(
        "wri.paper.features.extractors._PrincipalComponents.forward",
        lambda self, x: x.flatten(1)[:, :4] * np.inf,
    )
    with pytest.raises(InputError, match="not finite; try another seed or fewer epochs"):
        fitted_features(sites(), PCA(width=4))
    assert not folder.exists()
