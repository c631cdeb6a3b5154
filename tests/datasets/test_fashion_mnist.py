"""Fashion-MNIST is found where it may be, and is what was published."""

import gzip
import struct
from hashlib import sha256

import numpy as np
import pytest

from wri.datasets import load_fashion_mnist, mnist, where_fashion_mnist
from wri.errors import InputError


@pytest.fixture
def arrays(monkeypatch, tmp_path):
    """Seven random pictures that pass for Fashion-MNIST on a machine that has none."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (7, 28, 28)).astype(np.uint8)
    articles = random.integers(0, 10, 7).astype(np.uint8)
    four = [images[:5], articles[:5], images[5:], articles[5:]]
    parts = [
        part._replace(shape=array.shape, sha256=sha256(array.tobytes()).hexdigest())
        for part, array in zip(mnist.FASHION_PARTS, four, strict=True)
    ]
    monkeypatch.setattr(mnist, "FASHION_PARTS", tuple(parts))
    monkeypatch.setattr(mnist, "PACKAGED", tmp_path / "package")
    monkeypatch.setenv("WRI_DATA", str(tmp_path / "data"))
    return four


def write(folder, arrays, zipped):
    folder.mkdir(parents=True)
    for part, array in zip(mnist.FASHION_PARTS, arrays, strict=True):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        data = header + array.tobytes()
        if zipped:
            (folder / f"{part.idx}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / part.idx).write_bytes(data)


@pytest.mark.parametrize(
    ("place", "zipped"),
    [("data/fashion-mnist", False), ("data/FashionMNIST/raw", True), ("package", True)],
)
def test_the_four_files_are_read_from_each_place(arrays, tmp_path, place, zipped):
    write(tmp_path / place, arrays, zipped)
    found = load_fashion_mnist()
    np.testing.assert_array_equal(found.images, np.concatenate(arrays[0::2]))
    np.testing.assert_array_equal(found.digits, np.concatenate(arrays[1::2]))
    assert not found.images.flags.writeable
    assert where_fashion_mnist().startswith(str(tmp_path / place))


def test_other_pictures_are_refused(arrays, tmp_path):
    write(tmp_path / "package", [255 - arrays[0], *arrays[1:]], zipped=True)
    with pytest.raises(InputError, match="x_train has another SHA-256; remove it or fetch it"):
        load_fashion_mnist()


def test_the_error_says_where_to_get_it(arrays):
    assert where_fashion_mnist() is None
    with pytest.raises(InputError, match="apt-get install dataset-fashion-mnist"):
        load_fashion_mnist()
