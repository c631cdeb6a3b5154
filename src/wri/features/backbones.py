"""Backbones: networks with fixed weights and the preprocessing of their training.

The digest of a backbone covers its name, layers, weights and preprocessing. A model trained on its
features is valid for that digest only.
"""

import hashlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn

from wri.errors import InputError, check_option, shorten
from wri.features.efficientnet import load_efficientnet
from wri.features.picture_files import Preprocessing

DEFAULT = "efficientnet-lite0"


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
    preprocessing: Preprocessing = Preprocessing()  # noqa: RUF009  (it is frozen)

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
