"""Backbones: networks with fixed weights and the preprocessing of their training.

    file ─► upright RGB ─► the middle, a square of `crop` × the shorter side ─► side × side pixels
    x = (pixel − mean) / spread ─► network ─► features

The digest of a backbone covers its name, layers, weights and preprocessing. A model trained on its
features is valid for that digest only.

Grey, palette, CMYK and 16-bit pictures are converted to RGB, transparent ones are put on white, and
the orientation of the camera (EXIF) is applied. Only the formats in `FORMATS` are tried, whatever a
file is called: none of them starts another program. The size in the header is checked before
anything is decoded.
"""

import hashlib
import io
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor, nn

from wri.errors import InputError, check_option, shorten
from wri.features.efficientnet import load_efficientnet

DEFAULT = "efficientnet-lite0"
Interpolation = Literal["bicubic", "bilinear"]
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
MOST_PIXELS = 50_000_000


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
        square = picture.resize(
            (self.side, self.side), Image.Resampling[self.interpolation.upper()], box
        )
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
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


@dataclass(frozen=True, eq=False)
class Backbone:
    """Network with fixed weights that computes features of pictures.

    Parameters
    ----------
    name : str
        Name in saved models.
    network : torch.nn.Module
        Module from `[B, 3, side, side]` to `[B, width]`. For extraction it is copied to the CPU and
        put in evaluation mode; the module itself is not changed.
    preprocessing : Preprocessing, default=Preprocessing()
        Preprocessing that the network was trained with; by default the usual one of ImageNet.

    Examples
    --------
    >>> from torch import nn
    >>> from wri.features import Backbone, Preprocessing
    >>> backbone = Backbone("pixels", nn.Flatten(), Preprocessing(side=2))
    >>> len(backbone.digest)
    64
    """

    name: str
    network: nn.Module
    preprocessing: Preprocessing = Preprocessing()

    @property
    def digest(self) -> str:
        """SHA-256 of all that determines the features; it changes with further training."""
        digest = hashlib.sha256(f"{self.name};{self.preprocessing!r}".encode())
        for name, module in self.network.named_modules():
            digest.update(f"{name}:{type(module).__name__};".encode())
        for name, value in self.network.state_dict().items():
            array = value.detach().cpu().contiguous()
            digest.update(f"{name}{array.dtype}{tuple(array.shape)}".encode())
            digest.update(array.view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def for_extraction(self) -> "Backbone":
        """Return a copy on the CPU in evaluation mode.

        Returns
        -------
        backbone : Backbone
            The copy.
        """
        network: Any = deepcopy(self.network).cpu().eval().requires_grad_(False)
        network = network.to(memory_format=torch.channels_last)
        return Backbone(self.name, network, self.preprocessing)

    def features(self, data: bytes) -> np.ndarray:  # -> [width], float32
        """Compute the features of one picture's file.

        Pictures are processed one at a time, so features depend neither on other pictures nor on
        the number of workers. On CPUs this is as fast as batches.

        Parameters
        ----------
        data : bytes
            Contents of the file.

        Returns
        -------
        features : ndarray of shape (width,)
            Features, float32.

        Raises
        ------
        UnreadableError
            If the file is not a picture.
        InputError
            If the network returns another shape.
        """
        pixels = self.preprocessing.pixels(data)[None]
        with torch.inference_mode():
            made = self.network(self.preprocessing.normalise(pixels))
        if not isinstance(made, torch.Tensor) or made.ndim != 2 or len(made) != 1:
            shape = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
            raise InputError(
                f"backbone {self.name!r} gives {shape} for one picture, not (1, width); let it end "
                "with pooling and nn.Flatten()"
            )
        return made[0].float().numpy()


def load_backbone(name: str = DEFAULT) -> Backbone:
    """Load a backbone with ImageNet weights.

    Parameters
    ----------
    name : {"efficientnet-lite0", "resnet18", "resnet50"}, default="efficientnet-lite0"
        "efficientnet-lite0" has its weights in the extra `[images]`. The others need torchvision or
        timm, which download the weights.

    Returns
    -------
    backbone : Backbone
        The backbone.

    Raises
    ------
    InputError
        If the name is unknown or the weights are not available.

    Examples
    --------
    >>> from wri.features import load_backbone
    >>> load_backbone().preprocessing.side
    224
    """
    check_option("backbone", name, tuple(BACKBONES))
    return BACKBONES[name](name)


def as_backbone(given: "Backbone | str | None") -> Backbone:
    """Return a backbone, given or by its name."""
    if isinstance(given, Backbone):
        return given
    if given is None or isinstance(given, str):
        return load_backbone(given or DEFAULT)
    raise InputError(
        f"a backbone is a name or a Backbone, not {type(given).__name__}; wrap a module: "
        'Backbone("my network", module, Preprocessing(side=…))'
    )


def _efficientnet(name: str) -> Backbone:
    middle, spread = (127.0,) * 3, (128.0,) * 3
    return Backbone(name, load_efficientnet(), Preprocessing(mean=middle, spread=spread))


def _resnet(name: str) -> Backbone:
    """Load a ResNet without its last layer from torchvision, else from timm."""
    failures = []
    for make in (_torchvision_resnet, _timm_resnet):
        try:
            network = make(name)
        except ImportError as error:
            failures.append(f"{error.name or error} is not installed")
        except Exception as error:  # a download may fail in any way
            failures.append(f"{make.__name__.split('_')[1]}: {shorten(error)}")
        else:
            return Backbone(name, network, Preprocessing(interpolation="bilinear"))
    raise InputError(
        f"{name} and its weights are not available: {'; '.join(failures)}. Install torchvision or "
        f"timm and let it download the weights once, or use {DEFAULT!r}"
    )


def _torchvision_resnet(name: str) -> nn.Module:
    models: Any = import_module("torchvision.models")
    network: nn.Module = getattr(models, name)(weights="IMAGENET1K_V1")
    network.fc = nn.Identity()
    return network


def _timm_resnet(name: str) -> nn.Module:
    timm: Any = import_module("timm")
    network: nn.Module = timm.create_model(f"{name}.tv_in1k", pretrained=True, num_classes=0)
    return network


BACKBONES: dict[str, Callable[[str], Backbone]] = {
    DEFAULT: _efficientnet,
    "resnet18": _resnet,
    "resnet50": _resnet,
}
"""Functions that make the backbones, by name."""
