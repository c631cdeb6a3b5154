"""Pictures from files, preprocessed for a backbone.

    file ─► upright RGB ─► the middle, a square of `crop` × the shorter side ─► side × side pixels
    x = (pixel − mean) / spread

Grey, palette, CMYK and 16-bit pictures are converted to RGB, transparent ones are put on white, and
the orientation of the camera (EXIF) is applied. Only the formats in `FORMATS` are tried, whatever a
file is called: none of them starts another program. The size in the header is checked before
anything is decoded.
"""

import io
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from wri.errors import InputError, check_option

Interpolation = Literal["bicubic", "bilinear"]
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000
BAND = 256  # rows that are put on white at once
RESAMPLING = {
    "bicubic": Image.Resampling.BICUBIC,
    "bilinear": Image.Resampling.BILINEAR,
}


class UnreadableError(InputError):
    """Error for a file that is not a complete picture."""


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Preprocessing of a picture for a network.

    Parameters
    ----------
    side : int, default=224
        Pixels per side of the square that the network sees.
    crop : float, default=0.875
        Side of the square kept from the picture, as a share of its shorter side.
    mean : tuple of float, default=(123.675, 116.28, 103.53)
        Means of red, green and blue, on the scale 0 to 255.
    spread : tuple of float, default=(58.395, 57.12, 57.375)
        Standard deviations of red, green and blue, on the scale 0 to 255.
    interpolation : {"bicubic", "bilinear"}, default="bicubic"
        Interpolation of the resize.

    Examples
    --------
    >>> import numpy as np
    >>> from wri.features import Preprocessing
    >>> Preprocessing(side=2).normalise(np.zeros((1, 2, 2, 3), np.uint8)).shape
    torch.Size([1, 3, 2, 2])
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
        """Return the square of a picture's file.

        Parameters
        ----------
        data : bytes
            Contents of the file.

        Returns
        -------
        pixels : ndarray of shape (side, side, 3)
            Pixels, uint8.

        Raises
        ------
        UnreadableError
            If the file is not a picture.
        """
        picture = read_picture(data)
        width, height = picture.size
        kept = self.crop * min(width, height)
        left, top = (width - kept) / 2, (height - kept) / 2
        box = (left, top, left + kept, top + kept)
        square = picture.resize((self.side, self.side), RESAMPLING[self.interpolation], box)
        return np.asarray(square)

    def normalise(self, pixels: np.ndarray) -> Tensor:  # [B, H, W, 3], uint8 -> [B, 3, H, W]
        """Standardise pixels; the result is stored with channels last, which is fastest.

        Parameters
        ----------
        pixels : ndarray of shape (B, H, W, 3)
            uint8 pixels.

        Returns
        -------
        x : Tensor of shape (B, 3, H, W)
            (pixel − mean) / spread.
        """
        x = torch.from_numpy(pixels.astype(np.float32))
        x = x.sub_(torch.tensor(self.mean)).div_(torch.tensor(self.spread))
        return x.permute(0, 3, 1, 2)


def read_picture(data: bytes) -> Image.Image:
    """Read an upright RGB picture from the bytes of its file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unusual EXIF and palettes do not matter
            with Image.open(io.BytesIO(data), formats=FORMATS) as file:
                width, height = file.size
                if width * height > MOST_PIXELS:
                    raise UnreadableError(
                        f"{width} × {height} pixels are more than {MOST_PIXELS:,}; make it smaller"
                    )
                ImageOps.exif_transpose(file, in_place=True)
                return _as_rgb(file)
    except UnreadableError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableError(f"not a picture in one of {', '.join(FORMATS)}") from error
    except Exception as error:  # Pillow's readers raise anything on damaged files
        raise UnreadableError(str(error) or type(error).__name__) from error


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16 bits of grey
        grey = np.asarray(picture).clip(0, 65535).astype(np.uint16)
        rounded = grey // 257 + (grey % 257 > 128)
        return Image.fromarray(rounded.astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        return _on_white(picture)
    return picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    """Put a transparent picture on white; band by band, because copies of it are large."""
    whole = Image.new("RGB", picture.size)
    for top in range(0, picture.height, BAND):
        bottom = min(top + BAND, picture.height)
        band = picture.crop((0, top, picture.width, bottom)).convert("RGBA")
        white = Image.new("RGBA", band.size, "white")
        whole.paste(Image.alpha_composite(white, band).convert("RGB"), (0, top))
    return whole
