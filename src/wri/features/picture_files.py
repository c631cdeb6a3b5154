"""Pictures from files, as a backbone was trained to see them.

    file ─► upright RGB ─► the middle, a square of `crop` × the shorter side ─► side × side pixels
    x = (pixel − mean) / spread

Grey, palette, CMYK and 16-bit pictures become RGB, transparent ones lie on white, and the
orientation that a camera noted (EXIF) is heeded.
"""

import io
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from wri.errors import InputError, check_option

Interpolation = Literal["bicubic", "bilinear"]
RESAMPLING = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
}


class UnreadableError(ValueError):
    """A file that is no picture, or not a whole one."""


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How a picture becomes the input of a network.

    Parameters
    ----------
    side
        Pixels of the square that the network sees.
    crop
        Side of the square that is kept of the picture, as a share of its shorter side.
    mean, spread
        Of red, green and blue, on the scale 0 to 255.
    interpolation
        "bicubic" or "bilinear".
    """

    side: int = 224
    crop: float = 0.875
    mean: tuple[float, float, float] = (123.675, 116.28, 103.53)
    spread: tuple[float, float, float] = (58.395, 57.12, 57.375)
    interpolation: Interpolation = "bicubic"

    def __post_init__(self) -> None:
        check_option("interpolation", self.interpolation, get_args(Interpolation))
        if self.side < 1 or not 0 < self.crop <= 1 or min(self.spread) <= 0:
            raise InputError(
                f"side must be 1 or more, crop in (0, 1] and spread positive, not {self}"
            )

    def pixels(self, data: bytes) -> np.ndarray:  # [side, side, 3], uint8
        """The square of a picture's file; UnreadableError for what is no picture."""
        picture = read_picture(data)
        width, height = picture.size
        kept = self.crop * min(width, height)
        left, top = (width - kept) / 2, (height - kept) / 2
        box = (left, top, left + kept, top + kept)
        square = picture.resize((self.side, self.side), RESAMPLING[self.interpolation], box)
        return np.asarray(square)

    def normalise(self, pixels: np.ndarray) -> Tensor:  # [B, H, W, 3], uint8 -> [B, 3, H, W]
        """x, in memory with the channels last, where convolutions are fastest."""
        x = torch.from_numpy(pixels.astype(np.float32))
        x = x.sub_(torch.tensor(self.mean)).div_(torch.tensor(self.spread))
        return x.permute(0, 3, 1, 2)


def read_picture(data: bytes) -> Image.Image:
    """An upright RGB picture from the bytes of its file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF and palettes: what can be read is read
            with Image.open(io.BytesIO(data)) as file:
                return _as_rgb(ImageOps.exif_transpose(file))
    except Exception as error:  # Pillow's readers raise anything on damaged files
        raise UnreadableError(str(error) or type(error).__name__) from error


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16 bits of grey
        grey = np.asarray(picture).astype(np.float64) / 257
        return Image.fromarray(grey.round().clip(0, 255).astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return picture.convert("RGB")
