import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from pictures import Halves, make_backbone, make_folder, make_picture
from wri import InputError
from wri.datasets import ImageFolder
from wri.features import (
    Backbone,
    Preprocessing,
    extract,
    extraction,
    load_backbone,
    picture_environments,
)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    return ImageFolder(make_folder(tmp_path / "pictures", each=4))


def test_a_row_is_what_the_network_gives_for_the_picture(folder, cache):
    backbone = make_backbone()
    found = extract(folder, backbone, folder=cache)
    assert found.x.shape == (16, 6)
    assert found.x.dtype == np.float32
    assert found.kept.tolist() == list(range(16))
    assert (found.backbone, found.digest) == ("halves", backbone.digest)
    pixels = backbone.preprocessing.pixels(folder.paths[5].read_bytes())
    with torch.no_grad():
        alone = backbone.network(backbone.preprocessing.normalise(pixels[None]))
    assert np.allclose(found.x[5], alone[0])


@pytest.mark.slow
def test_workers_do_not_change_a_bit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "CHUNK", 3)
    network = nn.Sequential(nn.Conv2d(3, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backbone = Backbone("small", network, Preprocessing(side=20))
    one = extract(folder, backbone, 1, tmp_path / "one")
    two = extract(folder, backbone, 2, tmp_path / "two")
    some = extract(folder.paths[7:9], backbone, 1, tmp_path / "some")
    assert np.array_equal(one.x, two.x)
    assert np.array_equal(one.x[7:9], some.x)


def test_kept_features_are_not_made_again(folder, cache, monkeypatch):
    before = extract(folder, make_backbone(), folder=cache)
    monkeypatch.setattr(Backbone, "features", lambda self, data: pytest.fail("made again"))
    again = extract(folder.paths[::-1], make_backbone(), folder=cache)
    assert np.array_equal(before.x[::-1], again.x)


def test_another_picture_backbone_or_preprocessing_is_made_anew(folder, cache):
    before = extract(folder, make_backbone(), folder=cache)
    make_picture(1, 2, 9).save(folder.paths[0])
    after = extract(folder, make_backbone(), folder=cache)
    assert not np.allclose(before.x[0], after.x[0])
    assert np.array_equal(before.x[1:], after.x[1:])
    others = make_backbone(seed=1), make_backbone(mean=(0, 0, 0))
    assert len({make_backbone().digest, *(other.digest for other in others)}) == 3
    for other in others:
        assert not np.allclose(extract(folder, other, folder=cache).x, after.x)


def test_an_interruption_costs_one_picture(folder, cache, monkeypatch):
    made, features = [], Backbone.features

    def interrupted(self, data):
        made.append(data)
        if len(made) == 11:
            raise KeyboardInterrupt
        return features(self, data)

    monkeypatch.setattr(Backbone, "features", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(folder, make_backbone(), 1, cache)
    made += [b""] * 100
    extract(folder, make_backbone(), 1, cache)
    assert len(made) == 111 + 6  # ten were kept


def test_broken_pictures_are_named_and_left_out(folder, cache):
    paths = folder.paths
    paths[3].write_bytes(b"no picture")
    paths[5].unlink()
    with pytest.warns(UserWarning, match=r"2 of 16 pictures cannot be read .*03\.png.*01\.png"):
        found = extract(folder, make_backbone(), folder=cache)
    assert set(found.broken) == {paths[3], paths[5]}
    assert found.kept.tolist() == [n for n in range(16) if n not in (3, 5)]
    assert len(found.x) == 14
    with pytest.raises(InputError, match=r"none of the 2 pictures .*03\.png \(not a picture in"):
        extract([paths[3], paths[5]], make_backbone(), folder=cache)


def test_progress_reaches_the_number_of_pictures(folder, cache):
    told = []
    for _ in range(2):
        extract(folder, make_backbone(), 1, cache, lambda done, of: told.append((done, of)))
    assert told == [(n, 16) for n in range(1, 17)] * 2


@pytest.mark.parametrize("damage", [b"", b"x" * 500, b"\x93NUMPY"])
def test_damaged_features_are_made_anew(folder, cache, damage):
    before = extract(folder, make_backbone(), folder=cache)
    kept = sorted(cache.glob("*/*.npy"))
    assert len(kept) == 16
    kept[3].write_bytes(damage)
    again = extract(folder, make_backbone(), folder=cache)
    assert np.array_equal(before.x, again.x)
    assert kept[3].stat().st_size == kept[0].stat().st_size


def test_where_nothing_can_be_kept_it_is_said(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="will be made again next time"):
        assert len(extract(folder, make_backbone(), folder=tmp_path / "file").x) == 16


def test_domains_become_environments(folder, cache):
    environments = picture_environments(folder, make_backbone(), folder=cache)
    assert [e.name for e in environments] == ["north", "south"]
    assert [e.y.tolist() for e in environments] == [[0] * 4 + [1] * 4] * 2
    assert np.array_equal(
        np.concatenate([e.x for e in environments]),
        extract(folder, make_backbone(), folder=cache).x,
    )


def test_the_network_is_left_as_it_is(folder, cache):
    network = nn.Sequential(Halves(), nn.Dropout(0.5))
    network.train()
    backbone = Backbone("drops", network, Preprocessing(side=8))
    one = extract(folder, backbone, folder=cache / "a")
    two = extract(folder, backbone, folder=cache / "b")
    assert np.array_equal(one.x, two.x)
    assert network.training
    assert all(p.requires_grad for p in network.parameters())


def test_the_digest_sees_layers_and_training():
    one, other = nn.Sequential(nn.Flatten(), nn.ReLU()), nn.Sequential(nn.Flatten(), nn.GELU())
    assert Backbone("x", one).digest != Backbone("x", other).digest
    backbone = make_backbone()
    before = backbone.digest
    with torch.no_grad():
        backbone.network.layer.bias += 1e-3
    assert backbone.digest != before


def test_a_map_of_features_is_refused(folder, cache):
    backbone = Backbone("map", nn.Conv2d(3, 2, 3), Preprocessing(side=8))
    with pytest.raises(InputError, match=r"'map' gives \(1, 2, 6, 6\) for one picture"):
        extract(folder, backbone, folder=cache)


def test_what_is_not_finite_is_refused(folder, cache):
    backbone = make_backbone()
    with torch.no_grad():
        backbone.network.layer.bias.fill_(torch.nan)
    with pytest.raises(InputError, match=r"00\.png are not finite"):
        extract(folder, backbone, folder=cache)


def test_bad_arguments_are_refused(folder):
    with pytest.raises(InputError, match="workers must be 1 or more"):
        extract(folder, make_backbone(), 0)
    with pytest.raises(InputError, match="is one path"):
        extract("picture.png", make_backbone())
    with pytest.raises(InputError, match="there are no pictures"):
        extract([], make_backbone())
    with pytest.raises(InputError, match="wrap a module"):
        extract(folder, Halves())
    with pytest.raises(InputError, match="backbone must be one of efficientnet-lite0, resnet18"):
        load_backbone("vgg")


def test_resnets_come_from_torchvision_or_timm_or_are_refused(monkeypatch):
    for name in ("torchvision", "torchvision.models", "timm"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"resnet50 and its weights are not available.*timm"):
        load_backbone("resnet50")

    def unreachable(*_, **__):
        raise OSError("no network")

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=unreachable))
    with pytest.raises(InputError, match="timm: no network"):
        load_backbone("resnet18")
    network = nn.Sequential(nn.Flatten())
    network.fc = nn.Linear(2, 1000)
    models = SimpleNamespace(resnet18=lambda weights: network)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    backbone = load_backbone("resnet18")
    assert backbone.preprocessing.interpolation == "bilinear"
    assert isinstance(backbone.network.fc, nn.Identity)
