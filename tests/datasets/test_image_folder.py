import shutil
import unicodedata
import warnings

import numpy as np
import pytest

from pictures import make_folder, make_picture
from wri import InputError
from wri.datasets import IMAGE_SETS, ImageFolder, load_images, where_images


def names(folder):
    return [(p.domain, p.label, p.path.name) for p in folder.pictures]


def test_domains_are_environments_and_folders_are_classes(tmp_path):
    folder = ImageFolder(make_folder(tmp_path))
    assert folder.domains == ("north", "south")
    assert folder.classes == ("cat", "dog")
    assert len(folder) == 12
    assert folder.count() == {"north": 6, "south": 6}
    assert folder.y.tolist() == (["cat"] * 3 + ["dog"] * 3) * 2
    assert folder.groups.tolist() == ["north"] * 6 + ["south"] * 6
    assert folder.paths[0] == tmp_path / "north" / "cat" / "00.png"


def test_order_is_that_of_code_points(tmp_path):
    make_folder(tmp_path, each=0)
    for name in ("b.png", "B.JPG", "a10.jpeg", "a2.PNG", "ä.png"):
        make_picture(0, 0, 0).save(tmp_path / "north" / "cat" / name)
    make_picture(0, 0, 0).save(tmp_path / "south" / "dog" / "x.png")
    with pytest.warns(UserWarning, match="has no picture in"):
        folder = ImageFolder(tmp_path)
    assert [n for _, _, n in names(folder)] == [
        "B.JPG", "a10.jpeg", "a2.PNG", "b.png", "ä.png", "x.png",
    ]  # fmt: skip


def test_other_and_hidden_files_are_not_looked_at(tmp_path):
    before = names(ImageFolder(make_folder(tmp_path)))
    (tmp_path / "north" / "cat" / "notes.txt").write_text("x")
    (tmp_path / "north" / "cat" / "._00.png").write_bytes(b"x")
    (tmp_path / "north" / "cat" / "a folder.png").mkdir()
    (tmp_path / ".git" / "x").mkdir(parents=True)
    (tmp_path / "readme.md").write_text("x")
    assert names(ImageFolder(tmp_path)) == before


def test_names_with_spaces_and_umlauts_agree_whoever_wrote_them(tmp_path):
    make_folder(tmp_path, domains=("Real World", "Köln"), classes=("Bär", "Tür zu"))
    make_folder(tmp_path, domains=("München",), classes=("Tür zu",))
    decomposed = unicodedata.normalize("NFD", "Bär")
    shutil.copytree(tmp_path / "Köln" / "Bär", tmp_path / "München" / decomposed)
    folder = ImageFolder(tmp_path)
    assert folder.domains == ("Köln", "München", "Real World")
    assert folder.classes == ("Bär", "Tür zu")
    assert len(folder.only(unicodedata.normalize("NFD", "München"))) == 6


def test_holding_out_a_domain_leaves_the_others(tmp_path):
    folder = ImageFolder(make_folder(tmp_path, domains=("a", "b", "c")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train, new = folder.hold_out("b")
    assert train.domains == ("a", "c")
    assert new.domains == ("b",)
    assert sorted(names(train) + names(new)) == names(folder)
    assert ImageFolder(tmp_path, ["b"]).paths == new.paths
    with pytest.raises(InputError, match=r"no domain 'd', only 'a', 'b', 'c'"):
        folder.hold_out("d")
    with pytest.raises(InputError, match="left to learn from"):
        folder.hold_out("a", "b", "c")


def test_classes_must_agree_over_domains(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "south" / "dog").rename(tmp_path / "south" / "dogs")
    with pytest.raises(InputError, match="domain 'south' has no folder for class 'dog'"):
        ImageFolder(tmp_path)


def test_an_empty_class_is_named(tmp_path):
    make_folder(tmp_path)
    shutil.rmtree(tmp_path / "south" / "dog")
    (tmp_path / "south" / "dog").mkdir()
    with pytest.warns(UserWarning, match="class 'dog' has no picture in 'south'"):
        folder = ImageFolder(tmp_path)
    assert folder.count() == {"north": 6, "south": 3}
    shutil.rmtree(tmp_path / "north" / "dog")
    (tmp_path / "north" / "dog").mkdir()
    with pytest.raises(InputError, match="class 'dog' has no picture in any domain"):
        ImageFolder(tmp_path)


def test_one_domain_is_warned_of(tmp_path):
    make_folder(tmp_path, domains=("north",))
    with pytest.warns(UserWarning, match="'north': this is enough for predictions"):
        ImageFolder(tmp_path)


@pytest.mark.parametrize(
    ("below", "words"),
    [
        ("north", "north holds no pictures .*; pictures lie in ROOT/DOMAIN/CLASS"),
        ("north/cat", "holds no folders of domains"),
        ("nowhere", "cannot be read as a folder: No such file"),
    ],
)
def test_a_folder_of_another_level_is_refused(tmp_path, below, words):
    with pytest.raises(InputError, match=words):
        ImageFolder(make_folder(tmp_path) / below)


def test_published_totals_are_those_of_the_papers():
    totals = {each.name: (each.total, each.classes) for each in IMAGE_SETS.values()}
    assert totals == {
        "VLCS": (10_729, 5),
        "PACS": (9_991, 7),
        "OfficeHome": (15_588, 65),
        "TerraIncognita": (24_788, 10),
        "DomainNet": (586_575, 345),
    }
    assert sum(IMAGE_SETS["terraincognita"].counts[1].values()) == 24_330


def test_a_named_set_is_found_and_checked(tmp_path, monkeypatch, command):
    monkeypatch.setenv("WRI_DATA", str(tmp_path))
    assert where_images("pacs") is None
    with pytest.raises(InputError, match=r"PACS was not found as PACS, pacs, kfold below WRI_DATA"):
        load_images("PACS")
    assert "not found as PACS" in command("data", "PACS").stdout
    pacs = IMAGE_SETS["pacs"]
    make_folder(tmp_path / "PACS", pacs.domains, [f"class {n}" for n in range(7)], each=1)
    with pytest.warns(UserWarning, match="photo has 7 pictures instead of 1,670"):
        folder = load_images("pacs")
    assert folder.domains == pacs.domains
    assert "sketch has 7 pictures instead of 3,929" in command("data", "pacs").stdout
    shutil.rmtree(tmp_path / "PACS" / "photo")
    with pytest.raises(InputError, match="is not PACS: it has no folder 'photo'"):
        load_images("PACS")
    make_folder(tmp_path / "VLCS", IMAGE_SETS["vlcs"].domains, each=1)
    with pytest.raises(InputError, match="has 2 classes, but VLCS has 5"):
        load_images("VLCS")


def test_an_unknown_set_is_named(command):
    with pytest.raises(InputError, match="no set of pictures 'CIFAR', only VLCS, PACS"):
        load_images("CIFAR")
    assert "there is no data set 'CIFAR'" in command("data", "CIFAR").stderr


def test_labels_are_plain_texts(tmp_path):
    assert ImageFolder(make_folder(tmp_path)).y.dtype == np.dtype("<U3")


def test_the_first_pictures_of_every_class_and_domain(tmp_path):
    folder = ImageFolder(make_folder(tmp_path / "data", each=3))
    few = folder.first(2)
    assert few.count() == {"north": 4, "south": 4}
    assert [path.name for path in few.paths[:4]] == ["00.png", "01.png", "00.png", "01.png"]
    assert (few.domains, few.classes) == (folder.domains, folder.classes)
    assert folder.first(9).pictures == folder.pictures
