import io
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageFile

from wri import InputError
from wri.features import Preprocessing
from wri.features.backbones import UnreadableError, read_picture

PLAIN = Preprocessing(side=4, crop=1.0, mean=(0, 0, 0), spread=(255, 255, 255))


def as_file(picture, kind="PNG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def corner_picture():
    """White in the upper left corner, 6 × 4 pixels."""
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:2, :2] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "1", "CMYK", "I;16"])
def test_every_mode_becomes_the_same_rgb(mode):
    colours = corner_picture()
    if mode == "I;16":
        wide = np.asarray(colours.convert("L")).astype(np.uint16) * 257
        data = as_file(Image.fromarray(wide))
    else:
        data = as_file(colours.convert(mode), "TIFF" if mode == "CMYK" else "PNG")
    read = read_picture(data)
    assert read.mode == "RGB"
    assert np.array_equal(np.asarray(read), np.asarray(colours))


def test_what_is_transparent_is_white():
    pixels = np.zeros((2, 2, 4), np.uint8)
    pixels[0] = (10, 20, 30, 255)
    read = np.asarray(read_picture(as_file(Image.fromarray(pixels))))
    assert read.tolist() == [[[10, 20, 30]] * 2, [[255, 255, 255]] * 2]
    palette = Image.fromarray(np.array([[0, 1]], np.uint8)).convert("P")
    palette.putpalette([0, 0, 0, 200, 0, 0])
    read = np.asarray(read_picture(as_file(palette, transparency=0)))
    assert read.tolist() == [[[255, 255, 255], [200, 0, 0]]]


def test_a_turned_camera_is_heeded():
    turned = corner_picture().transpose(Image.Transpose.ROTATE_90)  # 4 × 6, white below left
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    read = read_picture(as_file(turned, exif=exif))
    assert np.array_equal(np.asarray(read), np.asarray(corner_picture()))


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", as_file(corner_picture())[:-30], as_file(corner_picture(), "JPEG")[:-300]],
)
def test_what_is_no_whole_picture_is_unreadable(data):
    with pytest.raises(UnreadableError):
        read_picture(data)


def test_only_named_formats_are_tried(monkeypatch):
    """Pillow hands an EPS to Ghostscript, whatever the file is called."""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"
    assert Image.open(io.BytesIO(eps)).format == "EPS"
    with pytest.raises(UnreadableError, match="not a picture in one of JPEG, PNG"):
        read_picture(eps)


def test_too_many_pixels_are_refused_before_they_are_decoded(monkeypatch):
    data = as_file(Image.new("1", (8000, 7000)))
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("it was decoded"))
    with pytest.raises(UnreadableError, match="8000 × 7000 pixels are more than 50,000,000"):
        read_picture(data)


def test_sixteen_bits_of_grey_are_rounded():
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    read = np.asarray(read_picture(as_file(Image.fromarray(values))))[..., 0]
    assert np.array_equal(read, np.rint(values / 257).astype(np.uint8))


def test_the_middle_square_is_kept():
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, 2:6] = 200
    assert (PLAIN.pixels(as_file(Image.fromarray(pixels))) == 200).all()
    half = Preprocessing(side=4, crop=0.5)
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[2:6, 2:6] = 200
    assert (half.pixels(as_file(Image.fromarray(pixels))) == 200).all()


def test_x_is_pixel_minus_mean_over_spread():
    known = Preprocessing(side=1, mean=(127, 0, 1), spread=(128, 1, 2))
    x = known.normalise(np.array([[[[255, 3, 5]]]], np.uint8))
    assert x.flatten().tolist() == [1, 3, 2]
    assert x.shape == (1, 3, 1, 1)


@pytest.mark.parametrize("bad", [{"side": 0}, {"crop": 0}, {"spread": (1, 0, 1)}])
def test_impossible_preprocessing_is_refused(bad):
    with pytest.raises(InputError, match="side must be 1 or more"):
        Preprocessing(**bad)
